"""Whether the engines agree on a GPU, where CI has none: the largest difference to `sequential`, in double precision.

    python benchmarks/engines_agree.py --device cuda
    python benchmarks/engines_agree.py --device cuda --processes 8    # eight methods at a time

Every method of faces that the stacked engine takes, on noise: one step; several with momentum and weight decay, by the
quickest ways to a convolution and each model apart; Adam; clients with unequal numbers of images; faces that stay on
the host. After two rounds the servers and the clients' private states must be the same but for the order of sums, or
the command fails. A GPU then records what it runs: the CPU's contract tests (tests/contract/test_engines.py) do not see
that.

Where they are further apart, `sequential` is run again from weights that are off by one rounding error: FedFS under
Adam begins where its gradient is zero, so that its first step is rounding error made large, by any engine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance, seeding, tree
from coalface.algorithms import METHODS
from coalface.config import method_named
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import Population
from coalface.data.public import Public
from coalface.engines.forms import why_not
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net
from coalface.numerics import Numerics
from coalface.report.tables import markdown_table
from coalface.store import Stage

AGREED = 1e-9  # of numbers about 1, over some ten steps
AS_ITSELF = 10  # or so many times as far apart as the reference is from itself
CLIENTS, IMAGES, PUBLIC, SIZE = 8, 6, 3, 32
UNEQUAL = (1, 6, 2, 3, 4, 2, 1, 5)
STEPS = Training(rate=0.05, weight_decay=1e-3, momentum=0.9, batch=2, epochs=2)
ADAM = replace(STEPS, optimiser="adam", rate=1e-3, momentum=0.0)
# training; images of each client; whether faces stay on the host; whether ways to a convolution are tried
FORMS: dict[str, tuple[Training, tuple[int, ...] | None, bool, bool]] = {
    "one step": (Training(rate=0.05, weight_decay=1e-3), None, False, True),
    "one step, unequal": (Training(rate=0.05), UNEQUAL, False, True),
    "several steps, momentum": (STEPS, None, False, True),
    "several steps, unequal": (STEPS, UNEQUAL, False, True),
    "each model apart, momentum": (STEPS, None, False, False),
    "each model apart, unequal": (STEPS, UNEQUAL, False, False),
    "Adam": (ADAM, UNEQUAL, False, True),
    "faces on the host": (STEPS, UNEQUAL, True, True),
}


def people(
    identities_each: int, images_each: tuple[int, ...] | None, at_home: bool, device: torch.device
) -> Population:
    """Noise for faces; the last three people are public."""
    count = CLIENTS * identities_each
    shape = ((count + PUBLIC) * IMAGES, 3, SIZE, SIZE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    faces = FaceSet(images if at_home else images.to(device), torch.arange(0, len(images) + 1, IMAGES))
    held = tuple(tuple(range(i * identities_each, (i + 1) * identities_each)) for i in range(CLIENTS))
    public = Public(FaceView.of(faces, range(count, count + PUBLIC)))
    return Population(faces, held, images_each=images_each, device=device if at_home else None, public=public)


def finished(
    engine: type, name: str, form: str, device: torch.device, folder: Path, nudge: float = 0.0
) -> dict[str, torch.Tensor]:
    """The server's state and the clients' own after two rounds, by name."""
    training, images_each, at_home, autotune = FORMS[form]
    method, net = method_named(name)(), Net("feduv_cnn_small", Numerics(autotune=autotune), size=SIZE)
    start = net.fresh(0).map(lambda leaf: leaf.to(device) * (1 + nudge))
    all_of_them = people(1 if method.one_identity else 2, images_each, at_home, device)
    public = replace(all_of_them.public, backbone=start)
    population = method.clients(replace(all_of_them, public=public))
    stage = Stage(folder, method.types.server, method.types.private, "agree", device)
    federation = Federation(
        method,
        net,
        len(population),
        engine(population, stage.private),
        Rounds(rounds=2),
        training,
        0,
        stage,
        lambda server: {},
    )
    *_, (_, server) = federation.run(method.begin(net, start, population, seeding.generator(0, "begin")))
    found = tree.leaves(server)
    for client in stage.private.clients():
        found |= tree.leaves(stage.private.load(client, 99), f"client {client}")
    return {path: leaf.detach().cpu() for path, leaf in found.items()}


def difference(name: str, form: str, device: torch.device) -> dict[str, float]:
    """The largest, over all numbers; where that is much, also of the reference to itself."""
    with tempfile.TemporaryDirectory() as folder:
        one = finished(Sequential, name, form, device, Path(folder) / "sequential")
        two = finished(Stacked, name, form, device, Path(folder) / "stacked")
        if one.keys() != two.keys():
            raise SystemExit(f"{name}, {form}: the engines do not even name the same tensors")
        found = {form: largest(one, two)}
        if found[form] > AGREED:
            off = finished(Sequential, name, form, device, Path(folder) / "nudged", torch.finfo(torch.float64).eps)
            found[f"{form}, by rounding"] = largest(one, off)
    return found


def largest(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """Difference of two numbers of the same name and place."""
    return max(float((leaf.double() - two[path].double()).abs().max()) for path, leaf in one.items() if leaf.numel())


def row_of(name: str, forms: Sequence[str], device: torch.device) -> dict[str, Any]:
    """A method in all forms."""
    row: dict[str, Any] = {"method": name}
    for form in forms:
        row |= difference(name, form, device)
    return row


def rows_by_processes(names: list[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The same, several methods at a time, as they are done: Python takes longer than a GPU here."""

    def row_of_another_process(name: str) -> dict[str, Any]:
        out = Path(folder) / name.replace("/", "-")
        command = [sys.executable, __file__, "--device", options.device, "--methods", name, "--out", str(out)]
        done = subprocess.run([*command, "--forms", *options.forms], capture_output=True, text=True, check=False)
        file = out / f"engines_agree_{options.device}.json"
        if not file.exists():
            raise SystemExit(f"{name}: {done.stderr}")
        row: dict[str, Any] = json.loads(file.read_text())["rows"][0]
        return row

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        for done in as_completed([pool.submit(row_of_another_process, name) for name in names]):
            yield done.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--methods", nargs="+", default=[n for n, kind in METHODS.items() if kind.world == "faces"])
    parser.add_argument("--forms", nargs="+", choices=tuple(FORMS), default=list(FORMS))
    parser.add_argument("--processes", type=int, default=1, help="methods at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_default_dtype(torch.float64)
    refusals = {name: why_not(method_named(name)()) for name in options.methods}
    for name, refusal in refusals.items():
        if refusal is not None:
            print(f"{name}: not stacked, as {refusal}")
    names = [name for name, refusal in refusals.items() if refusal is None]
    rows: list[dict[str, Any]] = []
    one_by_one = (row_of(name, options.forms, device) for name in names)
    for row in rows_by_processes(names, options) if options.processes > 1 else one_by_one:
        print("  ".join(f"{v:.1e}" if isinstance(v, float) else v for v in row.values()), flush=True)
        rows = sorted([*rows, row], key=lambda row: names.index(row["method"]))
        write(options.out / f"engines_agree_{options.device}", rows, provenance.describe(device))
    refuse_disagreement(rows, options.forms)


def write(stem: Path, rows: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """What is measured so far, as numbers and as a table."""
    forms = [form for form in FORMS if any(form in row for row in rows)]
    result = made | {"agreed": AGREED, "rows": rows}
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    cells = [[row["method"], *(_cell(row, form) for form in forms)] for row in rows]
    told = f"float64; {result['hardware']}, {result['date']}, commit {result['commit']}."
    stem.with_suffix(".md").write_text(f"{markdown_table(cells, ['method', *forms])}\n\n{told}\n")


def refuse_disagreement(rows: list[dict[str, Any]], forms: Sequence[str]) -> None:
    """Failure, if a number is too large."""
    for row in rows:
        for form in forms:
            if not row[form] <= max(AGREED, AS_ITSELF * row.get(f"{form}, by rounding", 0.0)):
                raise SystemExit(f"{row['method']}, {form}: the engines differ by {row[form]:.1e}")


def _cell(row: dict[str, Any], form: str) -> str:
    itself = row.get(f"{form}, by rounding")
    return f"{row[form]:.0e}" + ("" if itself is None else f" (by rounding alone {itself:.0e})")


if __name__ == "__main__":
    main()
