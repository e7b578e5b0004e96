"""Five data centres that follow Table I of the FedGPAD paper for C, I, M, O and S.

From the table: extra light or not, plain or complex background, kinds of attack, display devices. From the sets' own
descriptions: the kind of camera. The numbers are ours, chosen so that the domains look as different as the sets do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Camera:
    """What films. ``pixels`` across the crop of the face before it is resized: a webcam has 80, a phone 400."""

    pixels: float
    noise: float = 0.01
    compression: float = 0.02
    sharpen: float = 0.0  # strength of the halo that the camera's software draws around edges
    contrast: float = 1.0
    saturation: float = 1.0
    curve: float = 0.0  # above 0: lifts middle tones
    lift: float = 0.0  # above 0: black is grey
    exposure: float = 1.0
    warm: float = 0.0  # white balance: above 0 red, below 0 blue


@dataclass(frozen=True)
class Paper:
    """What photographs are printed on, and by what. ``dots`` of the halftone across the photograph."""

    dots: float
    gloss: float  # strength of the lamp's mirror image
    black: float = 0.08  # reflectance of the darkest ink
    white: float = 0.92
    saturation: float = 0.85
    warm: float = 0.0
    grain: float = 0.03  # mottling of ink and fibre
    margin: float = 0.1  # white border, as a share of half the photograph


@dataclass(frozen=True)
class Screen:
    """What shows photographs and videos. ``pixels`` across the part that shows the photograph."""

    pixels: float
    grid: float = 0.3  # contrast of the gaps between pixels
    brightness: float = 1.0
    saturation: float = 1.1
    contrast: float = 1.1
    cool: float = 0.06  # backlight: above 0 bluish
    veil: float = 0.03  # room light that the glass scatters back
    mirror: float = 0.12  # room light that the glass mirrors
    bezel: float = 0.06  # its brightness: black or white
    frame: float = 0.25  # its width, as a share of half the photograph


@dataclass(frozen=True)
class Domain:
    """One data centre: how live people are filmed there, and with what it is attacked."""

    cameras: tuple[Camera, ...]
    attacks: tuple[str, ...]
    papers: tuple[Paper, ...]
    screens: tuple[Screen, ...]
    rooms: int  # places with a light and a background of their own
    extra_light: bool
    complex_background: bool
    pose: float  # strength of ``Conditions.pose``
    expression: float
    loose: float  # half the crop, in half portraits: above 1 shows more around the face
    reach: tuple[float, float]  # half the photograph, in half crops: edges show where it is below 1
    bend: float  # how much paper curls
    held: float  # share of attacks in shaking hands; the others stand fixed


IPAD = Screen(520, grid=0.25, cool=0.05, veil=0.05, mirror=0.18, bezel=0.05)
IPAD_AIR = Screen(1050, grid=0.2, cool=0.03, veil=0.03, mirror=0.14, bezel=0.85)
IPAD_PRO = Screen(1300, grid=0.2, cool=0.02, veil=0.02, mirror=0.06, bezel=0.06, brightness=1.15)
IPHONE_3GS = Screen(230, grid=0.4, cool=0.12, veil=0.09, mirror=0.2, bezel=0.04, saturation=0.8, contrast=0.9)
IPHONE_5S = Screen(560, grid=0.25, cool=0.08, veil=0.04, mirror=0.16, bezel=0.9, frame=0.35)
IPHONE_7 = Screen(760, grid=0.2, cool=0.03, veil=0.03, mirror=0.12, bezel=0.06, frame=0.35)
GALAXY_S8 = Screen(1100, grid=0.35, cool=0.1, veil=0.01, mirror=0.14, bezel=0.03, saturation=1.35, contrast=1.25)
DELL_1905FP = Screen(430, grid=0.35, cool=0.0, veil=0.06, mirror=0.03, bezel=0.12, contrast=0.95, brightness=0.9)
MACBOOK_RETINA = Screen(900, grid=0.25, cool=0.0, veil=0.03, mirror=0.2, bezel=0.04)
ASUS_MB168B = Screen(500, grid=0.35, cool=0.1, veil=0.07, mirror=0.05, bezel=0.1, saturation=0.85, brightness=0.85)

DOMAINS: dict[str, Domain] = {
    # CASIA-MFSD: three cameras from poor to good, copper paper that is bent before the face, eye holes, an iPad.
    "C": Domain(
        cameras=(
            Camera(90, noise=0.03, compression=0.05, contrast=0.85, saturation=0.7, lift=0.06, warm=-0.03),
            Camera(120, noise=0.02, compression=0.03, contrast=0.95, saturation=0.85, warm=0.06),
            Camera(420, noise=0.006, compression=0.01, sharpen=0.25, saturation=1.1, curve=0.1, warm=0.05),
        ),
        attacks=("print", "cut", "replay"),
        papers=(Paper(500, gloss=0.22, black=0.1, saturation=0.8, warm=0.05, grain=0.03, margin=0.03),),
        screens=(IPAD,),
        rooms=3, extra_light=False, complex_background=True, pose=0.3, expression=0.6,
        loose=1.12, reach=(0.95, 1.5), bend=0.5, held=1.0,
    ),
    # Replay-Attack: a 320 × 240 webcam, two rooms (a lamp; daylight), a telephone and an iPad, fixed or in the hand.
    "I": Domain(
        cameras=(Camera(64, noise=0.025, compression=0.06, contrast=0.9, saturation=0.75, lift=0.05, curve=0.2),),
        attacks=("print", "display", "replay"),
        papers=(Paper(420, gloss=0.05, black=0.14, white=0.85, saturation=0.7, warm=-0.04, grain=0.02, margin=0.0),),
        screens=(IPHONE_3GS, IPAD),
        rooms=2, extra_light=True, complex_background=True, pose=0.25, expression=0.5,
        loose=1.2, reach=(1.0, 1.6), bend=0.08, held=0.5,
    ),
    # MSU-MFSD: a laptop's camera and a telephone's, one kind of office, large laser prints, an iPad Air, an iPhone 5S.
    "M": Domain(
        cameras=(
            Camera(130, noise=0.02, compression=0.03, contrast=1.05, saturation=0.9, warm=-0.07, curve=0.05),
            Camera(190, noise=0.015, compression=0.02, sharpen=0.5, contrast=1.15, saturation=1.05, warm=-0.1),
        ),
        attacks=("print", "replay"),
        papers=(Paper(800, gloss=0.1, black=0.05, saturation=0.95, warm=-0.08, grain=0.02, margin=0.05),),
        screens=(IPAD_AIR, IPHONE_5S),
        rooms=2, extra_light=False, complex_background=True, pose=0.35, expression=0.7,
        loose=1.05, reach=(1.05, 1.7), bend=0.15, held=0.7,
    ),
    # OULU-NPU: front cameras of telephones, three sessions with their light, plain walls, two printers, two screens.
    "O": Domain(
        cameras=(
            Camera(380, noise=0.01, compression=0.01, sharpen=0.6, contrast=1.1, saturation=1.15, curve=0.1),
            Camera(320, noise=0.012, compression=0.015, sharpen=0.3, saturation=0.95, curve=0.2, warm=0.08),
            Camera(260, noise=0.02, compression=0.02, sharpen=0.8, contrast=0.95, lift=0.03, warm=-0.04),
        ),
        attacks=("print", "display", "replay"),
        papers=(
            Paper(900, gloss=0.3, black=0.05, saturation=1.0, warm=0.02, grain=0.015),
            Paper(650, gloss=0.2, black=0.09, saturation=0.85, warm=-0.05, grain=0.02),
        ),
        screens=(DELL_1905FP, MACBOOK_RETINA),
        rooms=3, extra_light=True, complex_background=False, pose=0.25, expression=0.5,
        loose=1.0, reach=(1.1, 1.7), bend=0.1, held=0.6,
    ),
    # SiW: a good camera and a good webcam, much movement and light, five devices.
    "S": Domain(
        cameras=(
            Camera(480, noise=0.004, compression=0.008, sharpen=0.15, contrast=1.05, saturation=1.05, warm=0.04),
            Camera(330, noise=0.012, compression=0.02, sharpen=0.4, contrast=1.1, saturation=0.9),
        ),
        attacks=("print", "display", "replay"),
        papers=(
            Paper(1000, gloss=0.3, black=0.06, saturation=0.95, grain=0.012),
            Paper(350, gloss=0.03, black=0.15, white=0.88, saturation=0.7, warm=0.04, grain=0.04),
        ),
        screens=(DELL_1905FP, IPAD_PRO, IPHONE_7, GALAXY_S8, ASUS_MB168B),
        rooms=8, extra_light=True, complex_background=True, pose=0.6, expression=0.9,
        loose=1.08, reach=(1.05, 1.7), bend=0.12, held=0.7,
    ),
}  # fmt: skip
