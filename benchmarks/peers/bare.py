"""A bare PyTorch loop: copy, train, add up, average."""

from __future__ import annotations

import copy

import torch
from workload import CLIENTS, ROUNDS, WARM_UP, Classifier, faces, now, tell, train

held = [faces(client) for client in range(CLIENTS)]
model, stamps = Classifier(), [now()]
for _ in range(WARM_UP + ROUNDS):
    total = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for images, labels in held:
        local = copy.deepcopy(model)
        train(local, images, labels)
        for addend, parameter in zip(total, local.parameters(), strict=True):
            addend.add_(parameter.detach())
    with torch.no_grad():
        for parameter, addend in zip(model.parameters(), total, strict=True):
            parameter.copy_(addend / CLIENTS)
    stamps.append(now())
tell(stamps)
