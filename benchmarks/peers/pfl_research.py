"""pfl's simulated backend: one model, trained in place for one user after another."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from workload import BATCH, CLIENTS, RATE, ROUNDS, WARM_UP, Classifier, faces, now, tell


class Model(Classifier):
    def loss(self, images: torch.Tensor, labels: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        return F.cross_entropy(self(images), labels)

    @torch.no_grad()
    def metrics(self, images: torch.Tensor, labels: torch.Tensor, is_eval: bool = True) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(images, labels)) * len(labels), len(labels))}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.stamps = [now()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        self.stamps.append(now())
        return False, Metrics()


held = [faces(client) for client in range(CLIENTS)]
in_turn = iter(client for _ in range(10**6) for client in range(CLIENTS))
users = FederatedDataset(lambda client: Dataset(raw_data=held[client], user_id=str(client)), lambda: next(in_turn))
module = Model()
model = PyTorchModel(
    module,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
)
np.random.seed(0)
clock = Clock()
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=WARM_UP + ROUNDS,
        evaluation_frequency=10**6,
        train_cohort_size=CLIENTS,
        val_cohort_size=0,
    ),
    SimulatedBackend(training_data=users, val_data=users),
    model,
    NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
    NNEvalHyperParams(local_batch_size=None),
    [clock],
)
tell(clock.stamps)
