"""What a simulated NVFlare client runs; the first one writes down when each round reached it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import nvflare.client as flare
import torch
from workload import IMAGES, Classifier, faces, now, train

parser = argparse.ArgumentParser()
parser.add_argument("--stamps", type=Path)
options = parser.parse_args()
torch.set_num_threads(1)
flare.init()
client = int(flare.get_site_name().removeprefix("site-")) - 1
model, held, stamps = Classifier(), faces(client), []
while flare.is_running():
    received = flare.receive()
    if received is None:
        break
    stamps.append(now())
    model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
    train(model, *held)
    flare.send(flare.FLModel(params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": IMAGES}))
    if client == 0:
        options.stamps.write_text(json.dumps(stamps))
