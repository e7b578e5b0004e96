"""A client's side of a deployment: from a Flower message to the participant, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import RecordDict

from coalface import wire
from coalface.engines.flower_messages import (
    ADVERTISE,
    AGREE,
    COLLECT,
    SHARE,
    TRAIN,
    UNMASK,
    Answer,
    Call,
    pack,
    unpack,
)
from coalface.offer import Declined
from coalface.participant import Participant

STEPS = {ADVERTISE: "advertise", SHARE: "share", AGREE: "agree", UNMASK: "unmask"}  # of a secure sum
DONE = {ADVERTISE: "advertised", SHARE: "shared", AGREE: "agreed", UNMASK: "unmasked"}

log = logging.getLogger("coalface.client")


def handler(participant: Participant) -> Callable[[str, RecordDict], RecordDict]:
    """A function that answers messages, whatever is in them: declining is an answer too."""

    def answer(kind: str, content: RecordDict) -> RecordDict:
        try:
            call, broadcast = unpack(Call, content)
        except wire.Refused as reason:
            log.warning("a message is refused: %s", reason)
            return pack(Answer("", 0, 0, 0, "", declined="terms", images=0), b"")
        declined, images, data = "", 0, b""
        try:
            if kind == TRAIN:
                data = participant.train(call.terms, call.federation, call.round, call.counted, broadcast, call.sealed)
                log.info("round %d: answered with %d bytes", call.round, len(data))
            elif kind == COLLECT:
                images, data = participant.collect(call.terms)
                log.info("collected: %d images LEAVE this machine, in %d bytes", images, len(data))
            elif kind in STEPS:
                data = participant.take_step(STEPS[kind], call.terms, call.federation, broadcast)
                log.info("round %d: %s in a secure sum", call.round, DONE[kind])
            else:
                raise Declined("terms")
        except Declined as reason:
            declined = str(reason)
            log.info("round %d: declined (%s)", call.round, declined)
        except Exception:  # whatever it is, the client stays there for the next call
            log.exception("round %d could not be done", call.round)
            declined = "trouble"
        return pack(Answer(call.federation, call.round, call.attempt, call.client, call.nonce, declined, images), data)

    return answer
