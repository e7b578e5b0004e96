"""The simulated clients' own state: on disk per client, apart from the server's, in memory up to a bound.

Each version is tagged with the round that made it. A round reads versions from before it, so a repeated round starts
from the same state as its first try, and a resumed run from the same state as an undisturbed one.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch

from coalface import tree, wire


@dataclass
class _Held:
    round: int
    state: wire.Private
    size: int
    saved: bool


class PrivateStore:
    """Versions of each client's Private, newest in memory; the least recently used are spilled to disk."""

    def __init__(
        self, folder: Path, kind: type[wire.Private] | None, device: torch.device, memory: int = 1 << 30
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._device = device
        self._memory = memory  # bytes of state held in memory
        self._held: OrderedDict[tuple[int, int], _Held] = OrderedDict()  # (client, round)
        self._size = 0
        self._this_round: set[int] = set()  # clients that kept something in the round that is not yet settled
        self._newest: dict[int, list[int]] = {}  # client -> rounds of its versions, rising, in memory or on disk
        if kind is not None and folder.exists():
            for file in folder.glob("*/*.safetensors"):
                self._newest.setdefault(int(file.parent.name), []).append(int(file.stem))
            for rounds in self._newest.values():
                rounds.sort()

    def load(self, client: int, round_: int) -> wire.Private | None:
        """What this client kept from its last round before this one; None before its first."""
        rounds = [made for made in self._newest.get(client, ()) if made < round_]
        if not rounds:
            return None
        key = (client, rounds[-1])
        if key in self._held:
            self._held.move_to_end(key)
        else:
            flat = safetensors.torch.load_file(self._path(*key))
            self._hold(key, tree.rebuild(self._kind, flat), saved=True)
        state: wire.Private = tree.transform(lambda leaf: leaf.to(self._device), self._held[key].state)
        return state

    def keep(self, client: int, round_: int, private: wire.Private) -> None:
        """A new version; it replaces one of the same round."""
        self._this_round.add(client)
        versions = self._newest.setdefault(client, [])
        if round_ not in versions:
            versions.append(round_)
        self._drop((client, round_))
        # On the host: a GPU's memory must not grow with the number of clients.
        self._hold((client, round_), tree.transform(lambda leaf: leaf.cpu(), private), saved=False)

    def settle_round(self) -> None:
        """The round counts. Versions since the last flush that it made obsolete are gone: no resume could read them."""
        for client in self._this_round:
            for made in self._newest[client][:-1]:
                held = self._held.get((client, made))
                if held is not None and not held.saved:
                    self._remove(client, made)
        self._this_round.clear()

    def forget_round(self) -> None:
        """The round is void: what clients kept in it never was."""
        for client in self._this_round:
            self._remove(client, self._newest[client][-1])
        self._this_round.clear()

    def flush(self) -> None:
        """Write every unsaved version and wait until the disk has it."""
        for key, held in self._held.items():
            if not held.saved:
                self._save(key, held)

    def prune(self, oldest: int) -> None:
        """Remove versions that no run resumed at round ``oldest`` or later could read."""
        for client, rounds in self._newest.items():
            needed = [made for made in rounds if made <= oldest][-1:]
            for made in [made for made in rounds if made < oldest and made not in needed]:
                self._remove(client, made)

    def rewind(self, round_: int) -> None:
        """Forget everything made after a round."""
        for client, rounds in list(self._newest.items()):
            for made in [made for made in rounds if made > round_]:
                self._remove(client, made)

    def retain(self, client: int, rounds: Sequence[int]) -> None:
        """Of this client's versions, keep those made in these rounds only."""
        for made in [made for made in self._newest.get(client, ()) if made not in rounds]:
            self._remove(client, made)

    def versions(self, client: int) -> list[int]:
        """Rounds in which this client's versions were made, rising."""
        return list(self._newest.get(client, ()))

    def sha256(self) -> str:
        """A hash over every client's newest state."""
        digest = hashlib.sha256()
        for client in sorted(self._newest):
            digest.update(f"{client} {tree.sha256(self.load(client, 1 << 62))}\n".encode())
        return digest.hexdigest()

    def clients(self) -> list[int]:
        """Clients that keep something."""
        return sorted(self._newest)

    def _hold(self, key: tuple[int, int], state: wire.Private, saved: bool) -> None:
        size = sum(leaf.nbytes for leaf in tree.leaves(state).values())
        self._held[key] = _Held(key[1], state, size, saved)
        self._size += size
        while self._size > self._memory and len(self._held) > 1:
            oldest, held = next(iter(self._held.items()))
            if not held.saved:
                self._save(oldest, held)
            self._drop(oldest)

    def _drop(self, key: tuple[int, int]) -> None:
        if key in self._held:
            self._size -= self._held.pop(key).size

    def _remove(self, client: int, made: int) -> None:
        self._drop((client, made))
        self._path(client, made).unlink(missing_ok=True)
        self._newest[client].remove(made)
        if not self._newest[client]:
            del self._newest[client]

    def _save(self, key: tuple[int, int], held: _Held) -> None:
        path = self._path(*key)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".aside")
        with aside.open("wb") as file:
            leaves = tree.leaves(held.state)
            file.write(safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in leaves.items()}))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        held.saved = True

    def _path(self, client: int, made: int) -> Path:
        return self._folder / str(client) / f"{made}.safetensors"
