"""Photographs made small, for a machine that little can be carried to: the same packs, every image re-encoded.

    python benchmarks/pack_photographs.py ../shared/data .carry/photographs --size 64

    python benchmarks/pack_photographs.py ../shared/data .carry/photographs112 --size 112 --coding WEBP --quality 45 \
        --celeba 10 --only lfw112_pairs cfp112 celeba299_112

    python benchmarks/pack_photographs.py ../shared/data .carry/stills --only nuaa128_every4th lcc_like128_balanced

`coalface reproduce real-lfw --data` and `real-stills --data` take the result as they take the packs themselves. The
images are coded again under their old names, so figures made from them are those of photographs re-encoded at this size
and quality: the result says so.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

from PIL import Image

PACKS = ("lfw112_pairs", "cfp112", "celeba299_112", "nuaa128_every4th", "lcc_like128_balanced")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder of NAME.tar.xz")
    parser.add_argument("out", type=Path, help="a folder that git ignores")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--coding", choices=("JPEG", "WEBP"), default="JPEG")
    parser.add_argument("--celeba", type=int, default=0, metavar="N", help="at most N of a CelebA person's images")
    parser.add_argument("--only", nargs="+", choices=PACKS, default=PACKS, metavar="NAME", help="only these packs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        small = options.out / f"{name}.tar.xz"
        people: Counter[str] = Counter()
        with tarfile.open(options.source / f"{name}.tar.xz") as pack, tarfile.open(small, "w:xz") as shrunk:
            for member in pack:
                person = str(Path(member.name).parent)
                people[person] += member.isfile()
                too_many = name.startswith("celeba") and 0 < options.celeba < people[person]
                if not member.isfile() or too_many:
                    continue
                file = pack.extractfile(member)
                assert file is not None  # it is a plain file
                data = file.read()
                if member.name.endswith(".jpg"):
                    data = _shrunk(data, options.size, options.coding, options.quality)
                entry = tarfile.TarInfo(member.name)
                entry.size = len(data)
                shrunk.addfile(entry, io.BytesIO(data))
        print(f"{small}: {small.stat().st_size / 1e6:.1f} MB")
    for file in options.source.glob("*.json"):
        shutil.copy(file, options.out)
    about = {"re_encoded": f"{options.size}×{options.size}, {options.coding} quality {options.quality}"}
    if options.celeba:
        about["re_encoded"] += f", at most {options.celeba} of a CelebA person"
    (options.out / "packed.json").write_text(json.dumps(about) + "\n")


def _shrunk(data: bytes, size: int, coding: str, quality: int) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    out = io.BytesIO()
    small.save(out, coding, quality=quality)
    return out.getvalue()


if __name__ == "__main__":
    main()
