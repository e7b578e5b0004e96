"""The papers' tables and figures, made again by command: ``coalface reproduce NAME``."""

from __future__ import annotations

from coalface.reproduce import fedface, fedfr, fedfs, fedfv, fedgpad, real_lfw, real_personal, real_stills
from coalface.reproduce.artefact import Artefact
from coalface.reproduce.detectors import DetectorArtefact

ARTEFACTS: dict[str, Artefact | DetectorArtefact] = {
    **fedface.ARTEFACTS,
    **fedfv.ARTEFACTS,
    **fedfr.ARTEFACTS,
    **fedfs.ARTEFACTS,
    **fedgpad.ARTEFACTS,
    **real_lfw.ARTEFACTS,
    **real_personal.ARTEFACTS,
    **real_stills.ARTEFACTS,
}
