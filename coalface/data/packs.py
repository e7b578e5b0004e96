"""Research sets that come as packs: NAME.tar.xz (or .tar) in a folder, unpacked where nobody else reads them."""

from __future__ import annotations

import tarfile
from lzma import LZMAError
from pathlib import Path

ENDINGS = (".tar.xz", ".tar")


def unpacked(root: Path, name: str, into: Path) -> Path:
    """The folder that pack ``name`` unpacks to, under ``into``; unpacked on first use, and never outside of it."""
    done = into / f"{name}.done"
    folder = into / name
    if not done.exists():
        packs = [root / f"{name}{ending}" for ending in ENDINGS if (root / f"{name}{ending}").exists()]
        if not packs:
            raise FileNotFoundError(f"there is no {name}.tar.xz in {root}: --data takes the folder of the packs")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with tarfile.open(packs[0]) as archive:
                archive.extractall(folder, filter="data")  # refuses members that would land elsewhere
        except tarfile.FilterError:
            raise
        except (tarfile.TarError, LZMAError, EOFError) as damage:
            raise OSError(f"{packs[0]} is damaged or not whole: copy it again") from damage
        done.touch()
    return folder
