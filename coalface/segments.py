"""Many small states on disk in few files: one file and one wait for the disk, however many states are written.

    FOLDER/00000017.safetensors     leaves named CLIENT/ROUND/LEAF

A file never changes. It goes when nothing in it is wanted any more; one that is wanted for little is emptied into
another, so that the disk holds a few times what is wanted, and no more.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

Key = tuple[int, int]  # client, round
Flat = dict[str, Tensor]

SPARSE = 0.25  # a file with less than this share of its states still wanted is emptied


class Segments:
    """States by (client, round). What is written is on the disk when ``write`` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_of: dict[Key, int] = {}
        self._wanted: dict[int, int] = {}  # file -> its states that are still wanted
        self._written: dict[int, int] = {}  # file -> its states in all
        self._latest: dict[int, int] = {}  # file -> the latest round of its states
        self._sparse: set[int] = set()  # files that are wanted for little
        self._last = 0
        for path in sorted(folder.glob("*.safetensors")):  # rising: of a state that is in two, the later counts
            self._index(int(path.stem), self._keys_in(int(path.stem)))

    def __contains__(self, key: Key) -> bool:
        return key in self._file_of

    def found(self) -> list[Key]:
        """Everything that can be read, sorted."""
        return sorted(self._file_of)

    def write(self, states: dict[Key, Flat]) -> None:
        """Write states into one new file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = self._last + 1
        path = self._path(number)
        aside = path.with_suffix(".aside")
        leaves: Flat = {}
        for (client, made), flat in states.items():
            leaves |= {f"{client}/{made}/{name}": leaf.detach().cpu().contiguous() for name, leaf in flat.items()}
        with aside.open("wb") as file:
            file.write(safetensors.torch.save(_apart(leaves)))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        self._index(number, states)

    def read(self, key: Key) -> Flat:
        """One state."""
        prefix = f"{key[0]}/{key[1]}/"
        with safe_open(self._path(self._file_of[key]), framework="pt") as file:
            names = [name for name in list(file.keys()) if name.startswith(prefix)]
            return {name.removeprefix(prefix): file.get_tensor(name).clone() for name in names}  # not a map of the file

    def forget(self, key: Key) -> None:
        """This state is not wanted any more. Until its file goes, a new process finds it: see ``forget_after``."""
        number = self._file_of.pop(key)
        self._wanted[number] -= 1
        if not self._wanted[number]:
            self._path(number).unlink(missing_ok=True)
            del self._written[number], self._wanted[number], self._latest[number]
            self._sparse.discard(number)
        elif self._wanted[number] < SPARSE * self._written[number]:
            self._sparse.add(number)

    def forget_after(self, round_: int) -> list[Key]:
        """Remove every state of a later round, for new processes too; which they were."""
        forgotten = []
        for number in [number for number, latest in self._latest.items() if latest > round_]:
            for key in self._keys_in(number):
                if key[1] > round_ and self._file_of.get(key) == number:
                    self.forget(key)
                    forgotten.append(key)
            if number in self._latest:
                self._empty(number)
        return forgotten

    def compact(self) -> None:
        """Empty files that are wanted for little."""
        for number in sorted(self._sparse):
            self._empty(number)

    def _empty(self, number: int) -> None:
        """Write what is wanted of a file anew: the file goes with the last of it."""
        self.write({key: self.read(key) for key in self._keys_in(number) if self._file_of.get(key) == number})

    def _index(self, number: int, keys: Collection[Key]) -> None:
        self._last = number
        self._written[number] = self._wanted[number] = len(keys)
        self._latest[number] = max(made for _, made in keys)
        for key in keys:
            if key in self._file_of:
                self.forget(key)
            self._file_of[key] = number

    def _keys_in(self, number: int) -> list[Key]:
        with safe_open(self._path(number), framework="pt") as file:
            names = list(file.keys())
        found = {tuple(name.split("/")[:2]) for name in names}
        return [(int(client), int(made)) for client, made in found]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.safetensors"


def _apart(leaves: Flat) -> Flat:
    """The leaves, copied where two are in one place: clients may keep what none of them changes, and files may not."""
    seen: set[int] = set()
    apart: Flat = {}
    for name, leaf in leaves.items():
        place = leaf.untyped_storage().data_ptr()
        apart[name] = leaf.clone() if place in seen else leaf
        seen.add(place)
    return apart
