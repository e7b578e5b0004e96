"""Flower's simulation on Ray, one worker per core."""

from __future__ import annotations

import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import CLIENTS, IMAGES, ROUNDS, WARM_UP, Classifier, faces, now, tell, train

client_app, server_app = ClientApp(), ServerApp()
stamps: list[float] = []


@client_app.train()
def local_epoch(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)  # a worker has one core
    model = Classifier()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, *faces(int(context.node_config["partition-id"])))
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": IMAGES})})
    return Message(content=content, reply_to=message)


@server_app.main()
def federate(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Classifier().state_dict()),
        num_rounds=WARM_UP + ROUNDS,
        evaluate_fn=lambda round_, arrays: stamps.append(now()),  # called before the first round and after each
    )


cores = os.cpu_count() or 1
run_simulation(
    server_app,
    client_app,
    num_supernodes=CLIENTS,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}},
)
tell(stamps)
