"""Many real clients on one machine: what server and clients cost in memory and time, round after round.

    python benchmarks/federation_load.py [--nodes 50] [--rounds 20] [--secure] [--out results]

Every client is a `coalface join` process of its own, behind TLS, with one synthetic person; the server is
`coalface serve`. Clients are forked from one process, so that the program's pages are shared: their memory here is less
than on machines of their own, and whether it grows is the question. A machine that is too small for so many clients
gets as many as fit: the result says how many there were. What other work the machine had shows in the load average.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import config, provenance
from coalface.cli import main as coalface
from coalface.config import Run, method_named
from coalface.data import world
from coalface.recipes import RECIPES
from coalface.report.png import encode_png
from coalface.report.tables import markdown_table
from coalface.terms import fingerprint

METHOD = "fedavg/positive-only"
SETTINGS = [
    "model=feduv_cnn_small", "data.size=32", "embedding=128", "data.images_each=4", "data.public=0", "data.test=20",
    "data.test_images=4", "data.pairs=200", "rounds.cohort=0", "rounds.quorum=0.5", "training.batch=4",
]  # fmt: skip
SECURE = ["privacy.secure_sum=true", "privacy.most_images=10", "privacy.value_bound=64"]
A_NODE = 200 << 20  # bytes, about, of a client's own
FORK = multiprocessing.get_context("fork")  # Flower and torch are imported once for all clients
SPARE = 3 << 30  # for the server and everybody else
PORT = 39551


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--secure", action="store_true", help="secure sums")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # before anything: what is forked from a process with threads of OpenMP stands still
    fit = (available() - SPARE) // A_NODE
    nodes = min(options.nodes, fit)
    run = config.override(
        replace(RECIPES["demo"](), method=method_named(METHOD)()),
        [*SETTINGS, *(SECURE if options.secure else []), f"data.clients={nodes}", f"rounds.rounds={options.rounds}"],
    )
    with tempfile.TemporaryDirectory() as folder:
        result = measured(run, nodes, Path(folder))
    name = "federation_load_secure" if options.secure else "federation_load"
    flags = " --secure" if options.secure else ""
    result = {
        "command": f"python benchmarks/federation_load.py --nodes {options.nodes} --rounds {options.rounds}{flags}",
        "what": f"{METHOD}, feduv_cnn_small at 32×32, 4 images a client, one step a round, every client in every round",
        "asked_for": options.nodes,
        **result,
        **provenance.describe(torch.device("cpu")),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.out / f"{name}.md").write_text(page(result))
    print(page(result))


def measured(run: Run, nodes: int, folder: Path) -> dict[str, Any]:
    """Start everybody, and look at them after each round."""
    for name in ("coalface.engines.flower_node", "coalface.engines.flower_client", "torch._dynamo"):
        importlib.import_module(name)  # once, and not by each client
    torch.optim.SGD([torch.zeros(1)])
    names = [f"client{number}" for number in range(nodes)]
    coalface(["keys", *names, "--server", f"localhost:{PORT}", "--out", str(folder)])
    people = world.load(run.data, run.seed, torch.device("cpu")).clients
    (folder / "config.json").write_text(json.dumps(config.to_json(run)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    clients: list[BaseProcess] = []
    out = folder / "run"
    with (folder / "output").open("wb") as log:
        given = ["--listen", f"localhost:{PORT}", "--tls-dir", folder / "server", "--patience", "900", "--quiet"]
        given += ["--clients", folder / "server" / "clients.toml", "--out", out, "--device", "cpu"]
        arguments = [sys.executable, "-m", "coalface", "serve", str(folder / "config.json"), *map(str, given)]
        server = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        try:
            for number, name in enumerate(names):
                home = folder / name
                (home / "photographs" / "somebody").mkdir(parents=True)
                for image, pixels in enumerate(people[number].images):
                    (home / "photographs" / "somebody" / f"{image}.png").write_bytes(encode_png(pixels))
                accept = f'accept = ["{METHOD} {fingerprint(method_named(METHOD))}"]'
                file = home / "client.toml"
                file.write_text(file.read_text().replace("accept = []", accept))
                clients.append(FORK.Process(target=coalface, args=(["join", str(file), "--quiet"],), daemon=True))
                clients[-1].start()
            rounds = watched(server, clients, out, run.rounds.rounds)
        finally:
            for client in clients:
                client.kill()
                client.join()
            server.kill()
            server.wait()
        if len(rounds) < run.rounds.rounds:
            raise SystemExit((folder / "output").read_text()[-2000:])
    return summary(nodes, rounds, out)


def watched(
    server: subprocess.Popen[bytes], clients: list[BaseProcess], out: Path, rounds: int
) -> list[dict[str, Any]]:
    """Memory after each round, in megabytes of their own: what a process shares with others is shared out."""
    seen: list[dict[str, Any]] = []
    while len(seen) < rounds and server.poll() is None:
        done = lines(out / "rounds.jsonl")
        if len(done) <= len(seen):
            time.sleep(0.1)
            continue
        held = [memory(client.pid) for client in clients]
        seen.append(
            {
                "round": len(done),
                "seconds": done[-1]["seconds"],
                "counted": done[-1]["counted"],
                "server_mb": memory(server.pid),
                "node_mb_mean": statistics.mean(held),
                "node_mb_max": max(held),
                "load_average": os.getloadavg()[0],
            }
        )
    return seen


def summary(nodes: int, rounds: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    """Growth is the slope of a straight line through the later half, when caches are warm."""
    seconds = [row["seconds"] for row in lines(out / "rounds.jsonl")]
    ledger = lines(out / "ledger.jsonl")
    late = rounds[len(rounds) // 2 :]
    return {
        "nodes": nodes,
        "counted": sum(row["outcome"] == "counted" for row in ledger),
        "calls": len(ledger),
        "bytes_up_a_call": statistics.mean(row["bytes_up"] for row in ledger),
        "seconds_a_round": statistics.median(seconds),
        "rounds_a_second": 1 / statistics.median(seconds),
        "client_rounds_a_second": nodes / statistics.median(seconds),
        "server_mb_growth_a_round": slope(late, "server_mb"),
        "node_mb_growth_a_round": slope(late, "node_mb_mean"),
        "load_average": [min(r["load_average"] for r in rounds), max(r["load_average"] for r in rounds)],
        "rounds": rounds,
    }


def page(result: dict[str, Any]) -> str:
    """The result for people."""
    header = ["round", "seconds", "counted", "server, MB", "node, MB (mean)", "node, MB (max)", "load average"]
    rows = [
        [
            str(row["round"]), f"{row['seconds']:.1f}", str(row["counted"]), f"{row['server_mb']:.0f}",
            f"{row['node_mb_mean']:.0f}", f"{row['node_mb_max']:.0f}", f"{row['load_average']:.1f}",
        ]
        for row in result["rounds"]
    ]  # fmt: skip
    return (
        f"# {result['nodes']} clients on one machine\n"
        f"`{result['command']}` on {result['hardware']}, {result['date']}, commit {result['commit']}.\n"
        f"{result['what']}. {result['counted']} of {result['calls']} calls counted.\n\n"
        f"Median {result['seconds_a_round']:.1f} s a round, {result['client_rounds_a_second']:.1f} clients a second, "
        f"on a machine that had other work (load average {result['load_average'][0]:.0f} to "
        f"{result['load_average'][1]:.0f}): memory is what counts here. Over the later half of the rounds the server "
        f"grew by {result['server_mb_growth_a_round']:+.2f} MB a round, a client by "
        f"{result['node_mb_growth_a_round']:+.3f} MB.\n\n"
        f"{markdown_table(rows, header)}\n"
    )


def slope(rows: list[dict[str, Any]], what: str) -> float:
    return statistics.linear_regression([row["round"] for row in rows], [row[what] for row in rows]).slope


def memory(pid: int | None) -> float:
    """Proportional set size in megabytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1000


def available() -> int:
    text = Path("/proc/meminfo").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:")) * 1024


def lines(file: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last one may be half written."""
    found = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in found if line.endswith("\n")]


if __name__ == "__main__":
    main()
