"""The table of methods. A method is one file here, and one line below."""

from __future__ import annotations

from coalface.algorithms import fedavg, fedprox
from coalface.algorithms.all import AllCentres, AllFedGPAD
from coalface.algorithms.centralised import Centralised
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.chorus_personal import ChorusPersonal
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfr import FedFR
from coalface.algorithms.fedfs import FedFS
from coalface.algorithms.fedfv import FedFV
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fedma import FedMA
from coalface.algorithms.fedpad import FedPAD
from coalface.algorithms.feduv import FedUV
from coalface.algorithms.feduv_secret import SecretFedUV
from coalface.algorithms.fine_tune import FineTune
from coalface.algorithms.fused import Fused
from coalface.algorithms.local_only import LocalOnly
from coalface.algorithms.random_targets import RandomTargets, SecretTargets
from coalface.algorithms.relief import Relief
from coalface.algorithms.single import Single
from coalface.method import Method

METHODS: dict[str, type[Method]] = {
    "fedavg/shared-head": fedavg.SharedHead,
    "fedavg/private-head": fedavg.PrivateHead,
    "fedavg/positive-only": fedavg.PositiveOnly,
    "fedprox/shared-head": fedprox.SharedHead,
    "fedprox/private-head": fedprox.PrivateHead,
    "random_targets": RandomTargets,
    "random_targets/secret": SecretTargets,
    "fedaws": FedAwS,
    "fedface": FedFace,
    "feduv": FedUV,
    "feduv/secret": SecretFedUV,
    "fedfv": FedFV,
    "chorus": Chorus,
    "chorus/personal": ChorusPersonal,
    "fedfr": FedFR,
    "fedfs": FedFS,
    "fine_tune": FineTune,
    "local_only": LocalOnly,
    "centralised": Centralised,
    # of presentation attacks
    "fedpad": FedPAD,
    "fedgpad": FedGPAD,
    "relief": Relief,
    "fedma": FedMA,
    "fused": Fused,
    "single": Single,
    "all": AllCentres,
    "all/fedgpad": AllFedGPAD,
}
