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
from coalface.state_table import Key, StateTable
from coalface.transfer import sent

ENTRY = 2048  # bytes that Python spends on a held state besides its tensors' numbers; for small states that is most


@dataclass(frozen=True)
class _Held:
    state: wire.Private
    size: int  # bytes


class PrivateStore:
    """Versions of each client's Private, newest in memory; the least recently used are spilled to disk.

    A start and a round cost the same, however many clients have kept something before: only unsaved versions are looked
    at when they are flushed, and only clients that have kept something since when old versions are removed.
    """

    def __init__(
        self, folder: Path, kind: type[wire.Private] | None, device: torch.device, memory: int = 1 << 30
    ) -> None:
        self._kind = kind
        self._device = device
        self._memory = memory  # bytes of state held in memory
        self._held: OrderedDict[Key, _Held] = OrderedDict()
        self._size = 0
        self._unsaved: dict[int, set[int]] = {}  # client -> rounds of its versions that are in memory only
        self._this_round: set[int] = set()  # clients that kept something in the round that is not yet settled
        self._outdated: set[int] = set()  # clients that kept something since old versions were last removed
        self._disk = StateTable(folder)

    def load(self, client: int, round_: int) -> wire.Private | None:
        """What this client kept from its last round before this one; None before its first."""
        rounds = [made for made in self.versions(client) if made < round_]
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
        self._outdated.add(client)
        self._drop((client, round_))
        # On the host: a GPU's memory must not grow with the number of clients.
        self._hold((client, round_), tree.transform(_on_its_own, private), saved=False)

    def settle_round(self) -> None:
        """The round counts. Versions since the last flush that it made obsolete are gone: no resume could read them."""
        for client in self._this_round:
            for made in sorted(self._unsaved.get(client, ()))[:-1]:
                self._drop((client, made))
        self._this_round.clear()

    def forget_round(self) -> None:
        """The round is void: what clients kept in it never was."""
        self._remove([(client, self.versions(client)[-1]) for client in self._this_round])
        self._this_round.clear()

    def flush(self) -> None:
        """Write every unsaved version and wait until the disk has it."""
        keys = sorted((client, made) for client, rounds in self._unsaved.items() for made in rounds)
        if keys:
            self._disk.write((key, tree.leaves(self._held[key].state)) for key in keys)
            self._unsaved.clear()

    def prune(self, oldest: int) -> None:
        """Remove versions that no run resumed at round ``oldest`` or later could read."""
        obsolete: list[Key] = []
        for client in sorted(self._outdated):
            versions = self.versions(client)
            last = max((made for made in versions if made <= oldest), default=oldest)
            old = [(client, made) for made in versions if made < last]
            obsolete += old
            if len(versions) - len(old) < 2:
                self._outdated.discard(client)
        self._remove(obsolete)

    def rewind(self, round_: int) -> None:
        """Forget everything made after a round."""
        for key in [key for key in self._held if key[1] > round_]:
            self._drop(key)
        self._disk.forget_after(round_)

    def retain(self, client: int, rounds: Sequence[int]) -> None:
        """Of this client's versions, keep those made in these rounds only."""
        self._remove([(client, made) for made in self.versions(client) if made not in rounds])

    def versions(self, client: int) -> list[int]:
        """Rounds in which this client's versions were made, rising."""
        return sorted({*self._disk.rounds_of(client), *self._unsaved.get(client, ())})

    def newest(self) -> int | None:
        """The latest round that made a state that is on the disk; None: nothing is."""
        return self._disk.newest()

    def sha256(self) -> str:
        """A hash over every client's newest state."""
        digest = hashlib.sha256()
        for client in self.clients():
            digest.update(f"{client} {tree.sha256(self.load(client, 1 << 62))}\n".encode())
        return digest.hexdigest()

    def clients(self) -> list[int]:
        """Clients that keep something."""
        return sorted({*self._disk.clients(), *self._unsaved})

    def _hold(self, key: Key, state: wire.Private, saved: bool) -> None:
        size = sum(leaf.nbytes for leaf in tree.leaves(state).values())
        self._held[key] = _Held(state, size)
        if not saved:
            self._unsaved.setdefault(key[0], set()).add(key[1])
        self._size += size
        while self._size + ENTRY * len(self._held) > self._memory and len(self._held) > 1:
            client, made = next(iter(self._held))
            if made in self._unsaved.get(client, ()):
                self.flush()  # all of them: the disk is waited for once
            self._drop((client, made))

    def _drop(self, key: Key) -> None:
        """Out of memory."""
        if key in self._held:
            self._size -= self._held.pop(key).size
            client, made = key
            if made in self._unsaved.get(client, ()):
                self._unsaved[client].remove(made)
                if not self._unsaved[client]:
                    del self._unsaved[client]

    def _remove(self, keys: list[Key]) -> None:
        """Out of memory and off the disk."""
        for key in keys:
            self._drop(key)
        self._disk.forget(keys)


def _on_its_own(leaf: Tensor) -> Tensor:
    """The tensor on the host; a copy where it is a view, which would hold a whole launch of clients in memory."""
    leaf = leaf.detach().cpu()
    return leaf.clone() if leaf.untyped_storage().nbytes() > leaf.nbytes else leaf
