"""The papers' tables and figures, made again by command: ``coalface reproduce NAME``."""

from __future__ import annotations

from coalface.reproduce import fedface, fedfr, fedfs, fedfv, real_lfw
from coalface.reproduce.artefact import Artefact

ARTEFACTS: dict[str, Artefact] = {
    **fedface.ARTEFACTS,
    **fedfv.ARTEFACTS,
    **fedfr.ARTEFACTS,
    **fedfs.ARTEFACTS,
    **real_lfw.ARTEFACTS,
}
