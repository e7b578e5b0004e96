"""A real client's part of secure sums. What it insists on stands in its own client.toml; a server cannot lower it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from coalface import wire
from coalface.privacy.layout import UploadLayout
from coalface.privacy.noise import Noise, of_this_machine
from coalface.privacy.secagg.client import Client as Session
from coalface.privacy.secagg.fixed_point import OutOfRange
from coalface.privacy.secagg.messages import (
    Agreements,
    Inbox,
    Opening,
    Roster,
    Sent,
    Survivors,
    decode,
    encode,
)
from coalface.privacy.secagg.node_keys import EcdsaKey, is_signed, read_members
from coalface.privacy.secagg.rules import Refusal, Rules
from coalface.registry import Client
from coalface.store import write_atomically
from coalface.terms import NoiseTerms, SecureTerms, Terms

log = logging.getLogger("coalface.client")


class SecureParticipant:
    """The one session that a client is in. It is in memory only: after a restart the client has dropped out of it."""

    def __init__(self, client: Client) -> None:
        """ValueError if there are no members to hide among, or this client is not one of them."""
        if not client.members:
            raise ValueError("no members: put the file of everybody's public keys into client.toml")
        self.insisted = client.secure_sum
        self.key = EcdsaKey(Path(client.key))
        self.directory = read_members(Path(client.members))
        self._session: Session | None = None
        self._opening = Opening(b"", 0, (), ())
        self._begun = SecureTerms(), NoiseTerms()  # what the session began with

    def take(self, step: str, terms: Terms, folder: Path, data: bytes) -> bytes:
        """A step by its name."""
        if step == "advertise":
            return self.advertise(terms, folder, data)
        return {"share": self.share, "agree": self.agree, "unmask": self.unmask}[step](data)

    def advertise(self, terms: Terms, folder: Path, data: bytes) -> bytes:
        """A session begins, if its rules are as strict as this client's and it is who the server says.

        ``folder`` is what this client keeps of the federation: in it, with whom it is grouped.
        """
        secure = terms.secure
        if secure.min_cohort < self.insisted.min_cohort or secure.threshold < self.insisted.threshold:
            raise Refusal(
                f"a cohort of {secure.min_cohort} and a threshold of {secure.threshold:.3g} are less than "
                f"{self.insisted.min_cohort} and {self.insisted.threshold:.3g}"
            )
        if self.directory.get(terms.client) != self.key.public:
            raise Refusal(f"this client is not number {terms.client} in its list of members")
        self._session, self._opening, self._begun = None, decode(Opening, data), (secure, terms.noise)
        if self._opening.group:
            mine = terms.method.groups(terms.client, len(self.directory))
            _stay_in_groups(folder / "groups.json", mine, self._opening.group)
        self._session = Session(
            terms.client,
            self.key,
            self.directory,
            rules_of(secure, terms.noise),
            self._opening.session,
            self._opening.group,
            is_signed=is_signed,
        )
        return encode(self._session.advertise())

    def share(self, data: bytes) -> bytes:
        """Part of the session."""
        return encode(self._in_session().share(decode(Roster, data)))

    def mask(self, terms: Terms, upload: wire.Upload, sealed: bytes) -> bytes:
        """The upload under masks, with what it reveals beside it; OutOfRange if a number does not fit."""
        opening, session, secure = self._opening, self._in_session(), terms.secure
        self._session = None  # whatever goes wrong below ends it: what is refused tells something, and not twice
        if (secure, terms.noise) != self._begun:
            raise Refusal(f"the session began under {self._begun}, and now it would be {(secure, terms.noise)}")
        layout = UploadLayout(
            upload,
            opening.cohort,
            [*opening.group_sizes],
            secure.value_bound,
            secure.most_images,
            session.rules.needed(opening.cohort),
            share_of(terms.noise),
            # Not by what the server says of the cohort and its groups: it could call them large, and shares small.
            among=(session.fewest, len(opening.group)),
        )
        masked = session.mask(decode(Inbox, sealed), *layout.vectors(upload, {}, session.me))
        self._session = session
        return encode(Sent(masked, wire.encode_fields(upload, layout.revealed)))

    def agree(self, data: bytes) -> bytes:
        """Part of the session."""
        return encode(self._in_session().agree(decode(Survivors, data)))

    def unmask(self, data: bytes) -> bytes:
        """Part of the session, and its end."""
        session, self._session = self._in_session(), None
        return encode(session.unmask(decode(Agreements, data)))

    def _in_session(self) -> Session:
        if self._session is None:
            raise Refusal("this client is in no session: it was restarted, or never asked for its keys")
        return self._session


def _stay_in_groups(file: Path, mine: list[tuple[int, ...]], group: tuple[int, ...]) -> None:
    """Sums over groups of a server's choice could be subtracted from each other, down to one client.

    So a client is only in the groups that the method deals it out to among the members of its own list, and these are
    the same for the whole federation.
    """
    if group not in mine:
        raise Refusal(f"{group} is none of this client's groups, which are {mine}")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(mine).encode())
    elif (before := [tuple(members) for members in json.loads(file.read_text())]) != mine:
        raise Refusal(f"this client's groups were {before} first, and now would be {mine}")


def share_of(noise: NoiseTerms) -> Noise | None:
    """A client's share of the noise, from its own machine; None where the server adds it, or nobody."""
    if not noise.in_shares:
        return None
    whole, in_group = noise.noise * noise.clip, noise.group_noise * noise.group_clip
    return Noise(whole, in_group, 0.0, noise.clip, noise.group_clip, of_this_machine)


def rules_of(secure: SecureTerms, noise: NoiseTerms) -> Rules:
    """The rules of a session; ValueError if there can be none.

    Shares of noise are as large as the fewest need that can be unmasked: in a sparse graph an arc, which is far fewer.
    """
    return Rules(min_cohort=secure.min_cohort, threshold=secure.threshold, complete=noise.in_shares)


__all__ = ["OutOfRange", "Refusal", "SecureParticipant"]
