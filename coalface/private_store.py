"""The simulated clients' own state: on disk, apart from the server's, and in memory up to a bound.

Each version is tagged with the round that made it. A round reads versions from before it, so a repeated round starts
from the same state as its first try, and a resumed run from the same state as an undisturbed one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from coalface import tree, wire
from coalface.segments import Key, Segments
from coalface.transfer import sent

ENTRY = 2048  # bytes that Python spends on a held state besides its tensors' numbers; for small states that is most
FILE = 64 << 20  # bytes of state in a file, at most, unless one state is more


@dataclass(frozen=True)
class _Held:
    state: wire.Private
    size: int  # bytes


class PrivateStore:
    """Versions of each client's Private, newest in memory; the least recently used are spilled to disk.

    A round costs what its cohort costs, however many clients have kept something before: only unsaved versions are
    looked at when it is flushed, and only clients with more than one version when old ones are pruned.
    """

    def __init__(
        self, folder: Path, kind: type[wire.Private] | None, device: torch.device, memory: int = 1 << 30
    ) -> None:
        self._kind = kind
        self._device = device
        self._memory = memory  # bytes of state held in memory
        self._held: OrderedDict[Key, _Held] = OrderedDict()
        self._unsaved: set[Key] = set()
        self._size = 0
        self._this_round: set[int] = set()  # clients that kept something in the round that is not yet settled
        self._newest: dict[int, list[int]] = {}  # client -> rounds of its versions, rising, in memory or on disk
        self._several: set[int] = set()  # clients with more than one version
        self._disk = Segments(folder)
        for client, made in self._disk.found():
            self._add_version(client, made)

    def load(self, client: int, round_: int) -> wire.Private | None:
        """What this client kept from its last round before this one; None before its first."""
        rounds = [made for made in self._newest.get(client, ()) if made < round_]
        if not rounds:
            return None
        key = (client, rounds[-1])
        if key in self._held:
            self._held.move_to_end(key)
        else:
            self._hold(key, tree.rebuild(self._kind, self._disk.read(key)), saved=True)
        state: wire.Private = tree.transform(lambda leaf: sent(leaf, self._device), self._held[key].state)
        return state

    def keep(self, client: int, round_: int, private: wire.Private) -> None:
        """A new version; it replaces one of the same round."""
        self._this_round.add(client)
        if round_ not in self._newest.get(client, ()):
            self._add_version(client, round_)
        self._drop((client, round_))
        # On the host: a GPU's memory must not grow with the number of clients.
        self._hold((client, round_), tree.transform(_on_its_own, private), saved=False)

    def settle_round(self) -> None:
        """The round counts. Versions since the last flush that it made obsolete are gone: no resume could read them."""
        for client in self._this_round:
            for made in self._newest[client][:-1]:
                if (client, made) in self._unsaved:
                    self._remove(client, made)
        self._this_round.clear()

    def forget_round(self) -> None:
        """The round is void: what clients kept in it never was."""
        for client in self._this_round:
            self._remove(client, self._newest[client][-1])
        self._this_round.clear()

    def flush(self) -> None:
        """Write every unsaved version and wait until the disk has it."""
        batch: list[Key] = []
        size = 0
        for key in sorted(self._unsaved):
            if size + self._held[key].size > FILE:
                self._save(batch)
                batch, size = [], 0
            batch.append(key)
            size += self._held[key].size
        self._save(batch)

    def prune(self, oldest: int) -> None:
        """Remove versions that no run resumed at round ``oldest`` or later could read."""
        for client in sorted(self._several):
            *obsolete, _ = [made for made in self._newest[client] if made <= oldest] or [0]
            for made in obsolete:
                self._remove(client, made)
        self._disk.compact()

    def rewind(self, round_: int) -> None:
        """Forget everything made after a round."""
        held = [key for key in self._held if key[1] > round_]
        for client, made in {*held, *self._disk.forget_after(round_)}:
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

    def _add_version(self, client: int, made: int) -> None:
        versions = self._newest.setdefault(client, [])
        versions.append(made)
        if len(versions) > 1:
            self._several.add(client)

    def _hold(self, key: Key, state: wire.Private, saved: bool) -> None:
        size = sum(leaf.nbytes for leaf in tree.leaves(state).values())
        self._held[key] = _Held(state, size)
        if not saved:
            self._unsaved.add(key)
        self._size += size
        while self._size + ENTRY * len(self._held) > self._memory and len(self._held) > 1:
            oldest = next(iter(self._held))
            if oldest in self._unsaved:
                self._save([oldest])  # in a file of its own, which goes at once should the round be void
            self._drop(oldest)

    def _drop(self, key: Key) -> None:
        if key in self._held:
            self._size -= self._held.pop(key).size
            self._unsaved.discard(key)

    def _remove(self, client: int, made: int) -> None:
        self._drop((client, made))
        if (client, made) in self._disk:
            self._disk.forget((client, made))
        versions = self._newest[client]
        versions.remove(made)
        if len(versions) < 2:
            self._several.discard(client)
        if not versions:
            del self._newest[client]

    def _save(self, keys: list[Key]) -> None:
        if keys:
            self._disk.write({key: tree.leaves(self._held[key].state) for key in keys})
            self._unsaved.difference_update(keys)


def _on_its_own(leaf: Tensor) -> Tensor:
    """The tensor on the host; a copy where it is a view, which would hold a whole launch of clients in memory."""
    leaf = leaf.detach().cpu()
    return leaf.clone() if leaf.untyped_storage().nbytes() > leaf.nbytes else leaf
