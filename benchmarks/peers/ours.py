"""coalface, with its checks and ledger; checkpoints nobody writes here. First argument: stacked or sequential."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from workload import BATCH, CLIENTS, IMAGES, RATE, ROUNDS, SCALE, SIZE, WARM_UP, faces, now, tell

from coalface import seeding
from coalface.algorithms.fedavg import SharedHead
from coalface.allocator import keep_freed_memory
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net
from coalface.store import Stage

keep_freed_memory()  # as the command line does
pixels = torch.cat([faces(client)[0] for client in range(CLIENTS)])
population = Population(FaceSet(pixels, torch.arange(0, len(pixels) + 1, IMAGES)), tuple((i,) for i in range(CLIENTS)))
net, method = Net("feduv_cnn", size=SIZE), SharedHead(scale=SCALE)
with tempfile.TemporaryDirectory() as folder:
    stage = Stage(Path(folder), method.types.server, method.types.private, "peers", torch.device("cpu"))
    kinds = {"stacked": Stacked, "sequential": Sequential}
    engine = kinds[sys.argv[1]](population, stage.private)
    federation = Federation(
        method,
        net,
        CLIENTS,
        engine,
        Rounds(rounds=WARM_UP + ROUNDS, checkpoint_every=WARM_UP + ROUNDS),
        Training(rate=RATE, batch=BATCH, flip=False),
        0,
        stage,
        lambda server: {},
    )
    server = method.begin(net, net.fresh(0), population, seeding.generator(0, "begin"))
    stamps = [now()]
    for _ in federation.run(server):
        stamps.append(now())
tell(stamps)
