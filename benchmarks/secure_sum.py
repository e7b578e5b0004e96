"""What a secure sum costs a client and the server, in seconds and bytes, beside sending the update in the open.

    python benchmarks/secure_sum.py [--parameters N …] [--cohorts N …] [--train sphere64] [--parts out/secure_sum]
    python benchmarks/secure_sum.py --collect

Every client exchanges keys and shares, and one in twenty drops out before its upload. A few clients are timed through
all five steps, with every signature checked and a whole vector masked. The others of a cohort mask an empty vector and
hand in zeros, as a thousand real ones would take hours in one process; the server does all of its work on all of them:
it adds every whole vector as it arrives, and takes every mask away. Where everybody fits (--whole), everybody masks,
and the sum is checked against the plain one.

``--train`` times one client's local round of that network (one step on 10 images) in the same process, for the ratio.
A cell is one file in --parts and is not measured again; --collect makes secure_sum.json and .md of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance, wire
from coalface.algorithms.backbone_only import Upload
from coalface.models.net import Net, Weights
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg import masks
from coalface.privacy.secagg.client import Client
from coalface.privacy.secagg.messages import Masked, encoded_size
from coalface.privacy.secagg.rules import Rules
from coalface.privacy.secagg.server import Server
from coalface.received import Received
from coalface.report.tables import markdown_table

TIMED = 3  # clients
DROPPED = 20  # one in so many
IMAGES = 10
T = TypeVar("T")


@dataclass
class Clock:
    """Seconds of processor time of what was done under it: other work on the machine does not count."""

    seconds: float = 0.0

    def __call__(self, work: Callable[[], T]) -> T:
        began = time.process_time()
        result = work()
        self.seconds += time.process_time() - began
        return result


def update(parameters: int, seed: int) -> Upload:
    values = torch.randn(parameters, generator=torch.Generator().manual_seed(seed)) * 1e-3
    return Upload(Weights({"w": values}, {}), images=IMAGES)


def plain(parameters: int, cohort: int) -> dict[str, float]:
    """Encode on one client; decode, check and add on the server, for the whole cohort."""
    client, server = Clock(), Clock()
    upload = update(parameters, 0)
    data = client(lambda: wire.encode(upload))
    received = Received(Upload)
    few = min(cohort, 10)
    for number in range(few):
        server(lambda n=number: received.add(n, wire.decode(data, upload)))
    server(lambda: received.mean("backbone"))
    return {"client_seconds": client.seconds, "server_seconds": server.seconds * cohort / few, "bytes_up": len(data)}


def secure(parameters: int, cohort: int, whole: bool) -> dict[str, Any]:
    dropped = max(1, cohort // DROPPED)
    rules = Rules(min_cohort=min(16, cohort - dropped))
    upload = update(parameters, 0)
    layout = UploadLayout(upload, cohort, [], 4.0, IMAGES, rules.needed(cohort))
    nodes = {c: Ed25519PrivateKey.generate() for c in range(cohort)}
    directory = {c: key.public_key().public_bytes_raw() for c, key in nodes.items()}
    once = lru_cache(maxsize=None)(masks.is_signed)  # only those who are timed check everything themselves
    session = os.urandom(32)
    timed = range(min(TIMED, cohort))
    clients = {
        c: Client(c, nodes[c], directory, rules, session, is_signed=masks.is_signed if c in timed else once)
        for c in nodes
    }
    clocks = {c: Clock() for c in nodes}
    server, server_clock = Server(session, rules, layout.size), Clock()
    up, down = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    gone = set(range(cohort - dropped, cohort))
    there = [c for c in nodes if c not in gone]

    def sent(c: int, message: T, took: Callable[[T], None]) -> None:
        up[c] += encoded_size(message)
        server_clock(lambda: took(message))

    def got(c: int, message: T) -> T:
        down[c] += encoded_size(message)
        return message

    for c in nodes:
        sent(c, clocks[c](clients[c].advertise), server.advertised)
    roster = server_clock(server.roster)
    for c in nodes:
        sent(c, clocks[c](lambda c=c: clients[c].share(got(c, roster))), server.shared)
    expected = np.zeros(layout.size, np.uint32)
    nothing = np.zeros(0, np.uint32)
    for c in there:
        inbox = got(c, server_clock(lambda c=c: server.inbox(c)))
        if c in timed or whole:
            mine = update(parameters, c)
            vector = clocks[c](lambda m=mine: layout.vectors(m, {}, 0))[0]
            expected += vector
            message = clocks[c](lambda c=c, v=vector, i=inbox: clients[c].mask(i, v, nothing.copy()))
        else:
            clients[c].mask(inbox, nothing.copy(), nothing.copy())
            message = Masked(c, np.zeros(layout.size, np.uint32), nothing)
        sent(c, message, server.masked)
    survivors = server_clock(server.survivors)
    for c in there:
        sent(c, clocks[c](lambda c=c: clients[c].agree(got(c, survivors))), server.agreed)
    agreements = server_clock(server.agreements)
    for c in there:
        sent(c, clocks[c](lambda c=c: clients[c].unmask(got(c, agreements))), server.unmasked)
    total = server_clock(server.total)
    if whole:
        assert np.array_equal(total.vector, expected), "the secure sum is not the sum"
    return {
        "client_seconds": statistics.median(clocks[c].seconds for c in timed),
        "server_seconds": server_clock.seconds,
        "bytes_up": statistics.median(up[c] for c in timed),
        "bytes_down": statistics.median(down[c] for c in timed),
        "neighbours": rules.layout(nodes, roster.digest).degree,
        "dropped": len(gone),
        "everybody_masked": whole,
        "quantum": layout.fixed.quantum,
    }


def training_seconds(model: str) -> tuple[int, float]:
    """One step on a client's images, after one to warm up; and how many parameters the network has."""
    net = Net(model)
    weights = net.fresh(0)
    height, width = net.size or (112, 112)
    images = torch.randint(0, 256, (IMAGES, 3, height, width), dtype=torch.uint8)
    seconds = []
    for _ in range(2):
        moving = weights.map(lambda leaf: leaf.clone().requires_grad_())
        clock = Clock()
        clock(lambda m=moving: net(m, images).square().mean().backward())
        seconds.append(clock.seconds)
    return sum(leaf.numel() for leaf in weights.parameters.values()), seconds[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, nargs="+", default=[1_000_000, 25_000_000])
    parser.add_argument("--cohorts", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--whole", type=int, default=10**8, help="everybody masks up to so many numbers in all")
    parser.add_argument("--train", metavar="MODEL", help="instead: a cohort of 100 beside this network's local round")
    parser.add_argument("--parts", type=Path, default=Path("out/secure_sum"), help="what was measured, and is kept")
    parser.add_argument("--collect", action="store_true", help="measure nothing: write the table")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    if options.collect:
        collect(options.parts, options.out)
        return
    torch.set_num_threads(1)
    options.parts.mkdir(parents=True, exist_ok=True)
    if options.train:
        keep(options.parts / f"{options.train}.json", lambda: beside(options.train))
        return
    for parameters in options.parameters:
        for cohort in options.cohorts:
            whole = parameters * cohort <= options.whole
            keep(
                options.parts / f"{parameters}_{cohort}.json",
                lambda p=parameters, c=cohort, w=whole: {
                    "parameters": p, "cohort": c, "plain": plain(p, c), "secure": secure(p, c, w),
                },
            )  # fmt: skip


def keep(path: Path, measure: Callable[[], dict[str, Any]]) -> None:
    """Measure, unless that was done, and write it down with where it was done."""
    if not path.exists():
        found = {**measure(), "made": provenance.describe(torch.device("cpu"))}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found), flush=True)


def beside(model: str) -> dict[str, Any]:
    """A cohort of 100: one client's masks against its training, and against what it does without masks."""
    parameters, seconds = training_seconds(model)
    open_, hidden = plain(parameters, 100), secure(parameters, 100, whole=False)
    return {
        "model": model, "parameters": parameters, "training_seconds": seconds, "plain": open_, "secure": hidden,
        "client_seconds_over_training": (hidden["client_seconds"] - open_["client_seconds"]) / seconds,
    }  # fmt: skip


def collect(folder: Path, out: Path) -> None:
    parts = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    cells = sorted((found for found in parts if "cohort" in found), key=lambda c: (c["parameters"], c["cohort"]))
    if not cells:
        raise SystemExit(f"nothing was measured in {folder}: run this without --collect first")
    result: dict[str, Any] = {
        "command": "python benchmarks/secure_sum.py; python benchmarks/secure_sum.py --train sphere64; then --collect",
        "what": f"one client in {DROPPED} drops out before its upload; seconds of one client (median of {TIMED}) and "
        "of the server for the whole cohort, of processor time, on one thread",
        "cells": cells,
        "beside_training": [found for found in parts if "model" in found],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "secure_sum.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "secure_sum.md").write_text(page(result))


def page(result: dict[str, Any]) -> str:
    header = ["parameters", "cohort", "neighbours", "client s", "plain client s", "server s", "plain server s",
              "bytes up / fp32", "MB down"]  # fmt: skip
    rows = []
    for cell in result["cells"]:
        hidden, open_ = cell["secure"], cell["plain"]
        rows.append([
            f"{cell['parameters']:,}", f"{cell['cohort']:,}", str(hidden["neighbours"]),
            f"{hidden['client_seconds']:.3f}", f"{open_['client_seconds']:.3f}",
            f"{hidden['server_seconds']:.2f}", f"{open_['server_seconds']:.2f}",
            f"{hidden['bytes_up'] / (4 * cell['parameters']):.4f}", f"{hidden['bytes_down'] / 1e6:.3f}",
        ])  # fmt: skip
    text = f"# Secure sums against plain\n\n{result['what'].capitalize()}. "
    text += "The timed clients mask a whole vector. Where the cohort times the parameters is more than 10⁸, the other "
    text += "clients hand in zeros, and the server adds and unmasks all of them: nothing is extrapolated but the plain "
    text += "server's seconds, which are ten clients' times the cohort over ten.\n\n"
    text += markdown_table(rows, header) + "\n"
    for found in result["beside_training"]:
        text += (
            f"\nBeside training: {found['model']} ({found['parameters']:,} parameters), cohort of 100: a client's "
            f"masks take {found['secure']['client_seconds']:.2f} s, and one step on {IMAGES} images "
            f"{found['training_seconds']:.2f} s, both on one thread of the same processor: "
            f"{found['client_seconds_over_training']:.1%} on top of the shortest local round there is. It sends "
            f"{found['secure']['bytes_up'] / (4 * found['parameters']):.3f} times the bytes of fp32.\n"
        )
    made = result["cells"][0]["made"]
    text += f"\n`{result['command']}` on {made['hardware']}, {made['date']}, commit {made['commit']}.\n"
    return text


if __name__ == "__main__":
    main()
