"""A client's share of the noise on a secure sum: not what the server says, but what the client sees decides."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cryptography")

from coalface import wire
from coalface.config import ConfigError
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg.messages import (
    Advertisement,
    Agreement,
    Opening,
    Sent,
    Shares,
    Unmasking,
    decode,
    encode,
)
from coalface.privacy.secagg.rules import Refusal, Rules
from coalface.privacy.secagg.server import Server
from coalface.registry import Client, Insisted
from coalface.secure_participant import SecureParticipant, rules_of, share_of
from coalface.terms import NoiseTerms, SecureTerms, check_silence
from coalface.verbs.keys import key_pair

CLIENTS, WORDS = 6, 4000
RULES = Rules(min_cohort=4, threshold=0.6)
SECURE = SecureTerms(RULES.min_cohort, RULES.threshold, value_bound=4.0, most_images=1)
NOISE = NoiseTerms(clip=0.5, group_clip=1.0, noise=4.0, in_shares=True)


@dataclass(frozen=True)
class Upload(wire.Upload):
    change: wire.Summed[torch.Tensor] = wire.sends("a change")
    images: wire.Count = wire.sends("how many images")


def participants(folder: Path) -> list[SecureParticipant]:
    files = [folder / f"{number}.key" for number in range(CLIENTS)]
    (folder / "members.pub").write_bytes(b"".join(map(key_pair, files)))
    insisted = Insisted(min_cohort=4, threshold=0.6)
    return [
        SecureParticipant(Client(name="a", key=str(file), members=str(folder / "members.pub"), secure_sum=insisted))
        for file in files
    ]


def terms(client: int, secure: SecureTerms = SECURE) -> Any:
    return SimpleNamespace(secure=secure, client=client, method=None, noise=NOISE)


def noise_on_the_sum(folder: Path, told_cohort: int, secure: SecureTerms = SECURE) -> float:
    """Over the clip, where nobody has anything to send; ``secure`` is said when the vectors are asked for."""
    clients, like = participants(folder), Upload(torch.zeros(WORDS), images=1)
    opening = Opening(bytes(32), told_cohort, (), ())
    layout = UploadLayout(like, told_cohort, [], 4.0, 1, RULES.needed(told_cohort), share_of(NOISE))
    server = Server(opening.session, RULES, layout.size)
    for number, one in enumerate(clients):
        server.advertised(decode(Advertisement, one.advertise(terms(number), folder, encode(opening))))
    roster = encode(server.roster())
    for one in clients:
        server.shared(decode(Shares, one.share(roster)))
    for number, one in enumerate(clients):
        sent = one.mask(terms(number, secure), like, encode(server.inbox(number)))
        server.masked(decode(Sent, sent).masked)
    survivors = encode(server.survivors())
    for one in clients:
        server.agreed(decode(Agreement, one.agree(survivors)))
    agreements = encode(server.agreements())
    for one in clients:
        server.unmasked(decode(Unmasking, one.unmask(agreements)))
    return float(np.std(np.asarray(layout.sums(server.total().vector)["change"]))) / NOISE.clip


@pytest.mark.parametrize("told_cohort", [CLIENTS, 60])
def test_the_cohort_that_a_server_tells_does_not_thin_the_noise(told_cohort: int, tmp_path: Path) -> None:
    """Four of six can unmask, and have all of the noise: six have √(6/4) of 4. Of 60, 36 would have to be there."""
    assert noise_on_the_sum(tmp_path, told_cohort) == pytest.approx((6 / 4) ** 0.5 * 4, rel=0.05)


def test_with_shares_of_noise_everybody_masks_with_everybody() -> None:
    """Of a hundred in a sparse graph an arc of 17 can be unmasked for itself, with half of the noise."""
    sparse, complete = (rules_of(SECURE, noise).layout(range(100), b"") for noise in (NoiseTerms(), NOISE))
    assert sparse.degree < 99 == complete.degree
    assert sparse.holders_needed < RULES.needed(100) == 60 == complete.holders_needed


@pytest.mark.parametrize(
    ("secure", "noise", "says"),
    [
        (replace(SECURE, value_bound=1.0), NOISE, r"numbers up to 1\.001"),
        (replace(SECURE, max_norm=2.0), NOISE, "who is over it"),
        (SECURE, NOISE, ""),
    ],
)
def test_under_noise_nobody_refuses_by_an_exact_update(secure: SecureTerms, noise: NoiseTerms, says: str) -> None:
    """Ten such answers would tell the length of an update, which the noise is there to hide."""
    with pytest.raises(ConfigError, match=says) if says else nullcontext():
        check_silence(secure, noise)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
def test_noise_that_is_no_number_is_none(number: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and finite"):
        NoiseTerms(clip=number, group_clip=1.0)


def test_a_session_ends_under_the_terms_it_began_with(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="the session began under"):
        noise_on_the_sum(tmp_path, CLIENTS, replace(SECURE, min_cohort=1000))
