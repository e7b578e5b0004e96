"""What a server offers a real client, with all that follows from it by the client's own code and data."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from coalface import seeding, wire
from coalface.data.centres import centres
from coalface.data.faces import read_folder
from coalface.data.faceset import FaceView
from coalface.data.held_file import HELD, read_held
from coalface.data.own_recordings import read_own
from coalface.data.population import ClientFaces
from coalface.data.public import Public
from coalface.data.public_file import read_public
from coalface.registry import Client, absent
from coalface.terms import Terms

DECLINED = {  # why a client declines; only these words enter a ledger
    "terms": "it cannot read the terms",
    "protocol": "it speaks another protocol",
    "method": "it has not agreed to what this method sends",
    "identities": "it holds another number of people than was agreed",
    "photographs": "it cannot read its own photographs or recordings",
    "public": "it does not hold the public set of this federation",
    "open": "it takes part in secure sums only",
    "secure": "the secure sum would not protect it as it insists",
    "noise": "the sum would carry less noise than it insists on",
    "norm": "its own update is longer than rounds.max_norm",
    "range": "its update does not fit into the secure sum: raise privacy.value_bound or privacy.most_images",
    "limit": "a limit of its own is reached",
    "broadcast": "the broadcast is not what the method sends",
    "trouble": "it has trouble of its own",
}

log = logging.getLogger("coalface.client")
terminal = logging.getLogger("coalface.client.terminal")  # an owner may read names of people there; a file keeps none


class Declined(Exception):
    """The client will not do it; the argument is a key of DECLINED."""


class Offer:
    """Terms, and what is made of them here. Nothing is read from the client's folders before it is asked for."""

    def __init__(self, terms: Terms, client: Client, device: torch.device) -> None:
        self.terms, self.client, self.device = terms, client, device
        self.net = terms.net()

    @cached_property
    def broadcast(self) -> wire.Broadcast:
        """A broadcast of the right shapes, made by playing server with fresh weights: nobody else is asked."""
        terms, method = self.terms, self.terms.method
        after = terms.clients - terms.client - 1
        behind = terms.classes - terms.first_class - terms.identities
        sizes = [*_dealt(terms.client, terms.first_class), terms.identities, *_dealt(after, behind)]
        known = replace(absent(sizes, terms.size, method.world), public=_shapes_of(self.public))
        luck = seeding.generator(0, "shapes")
        server = method.begin(self.net, self.net.fresh(0), known, luck)
        shown: wire.Broadcast = method.broadcast(server, method.open_round(server, [terms.client], luck), terms.client)
        return shown

    @cached_property
    def public(self) -> Public:
        """The public set, if it is the one that the terms name; nothing where they name none."""
        if not self.terms.public:
            return Public()
        where = self.client.public or "nowhere"
        try:
            public, sha256 = read_public(Path(where), self.device)
        except (OSError, ValueError) as error:
            log.warning("no public set: put the server's public.safetensors where client.toml says (%s)", error)
            raise Declined("public") from error
        if sha256 != self.terms.public:
            log.warning("%s is %.16s…, and this federation's public set is %.16s…", where, sha256, self.terms.public)
            raise Declined("public")
        return public

    @cached_property
    def faces(self) -> ClientFaces:
        """This client's photographs or recordings, read once."""
        try:
            return self._read()
        except (OSError, ValueError) as error:
            log.warning("what is in data of client.toml cannot be used; `coalface join` without --quiet says what")
            terminal.warning("%s", error)
            raise Declined("photographs") from error

    def _read(self) -> ClientFaces:
        terms, place = self.terms, Path(self.client.data)
        classes = torch.arange(terms.first_class, terms.first_class + terms.identities, device=self.device)
        if place.name == HELD:
            return read_held(place, terms.size, classes, self.device, self.public)
        if terms.method.world == "recordings":
            held = centres([read_own(place, terms.size, self.client.layout, self.client.frames).to(self.device)])[0]
            return ClientFaces(held.images, held.labels, classes, depth=held.depth)
        found = read_folder(place, terms.size).faces
        if len(found) != terms.identities:
            log.warning("%d people are here, and %d were agreed", len(found), terms.identities)
            raise Declined("identities")
        labels = torch.repeat_interleave(torch.arange(len(found)), found.counts()).to(self.device)
        return ClientFaces(found.images.to(self.device), labels, classes, public=self.public)


def _dealt(clients: int, identities: int) -> list[int]:
    """Some way to deal identities to clients, one each at least: only the totals matter to shapes."""
    return [1] * (clients - 1) + [identities - clients + 1] if clients else []


def _shapes_of(public: Public) -> Public:
    """One image of each public person: a server that begins looks at all of them, and shapes need no more."""
    if public.faces is None:
        return public
    view = public.faces
    first = torch.searchsorted(view.labels, torch.arange(view.classes))  # labels rise
    return replace(public, faces=FaceView(view.faces, view.rows[first], view.labels[first], view.classes))
