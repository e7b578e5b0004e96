"""Methods × attacks × protections: what can be told from what is really sent?

    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py [--methods …] [--seeds 0 1 2] [--cohort 16] [--device cuda]
    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py --inversions [--methods feduv …] [--seeds 0 1 2]
    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py --collect

Real rounds of every method on synthetic people at laptop size; see docs/audits.md. Every (method, seed, cohort) is one
file in --parts, which is not measured again: processes may share the work. --collect makes audit_matrix.json and .md of
what is there, and the pictures of docs/audits.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from audit_report import as_markdown
from torch import Tensor

from coalface import provenance, seeding
from coalface.algorithms.chorus import Chorus
from coalface.config import Run, method_named
from coalface.data.contact_sheet import contact_sheet
from coalface.method import Method
from coalface.privacy.audits.audit import Attacker, Effort, Setting, audited, of_method, standard_views
from coalface.privacy.audits.gradient_inversion import gradient_inversion
from coalface.privacy.audits.result import AuditResult
from coalface.privacy.audits.view import SECURE_SUM, View
from coalface.recipes.audit import audit
from coalface.report.png import encode_png
from coalface.report.progress import Progress

METHODS = (
    "fedavg/shared-head", "fedavg/positive-only", "random_targets", "random_targets/secret", "fedaws", "fedface",
    "feduv", "feduv/secret", "fedfv", "chorus", "chorus-8",
)  # fmt: skip
OTHERS: dict[str, Method] = {"chorus-8": Chorus(choir=8)}  # settings that have no name of their own
PICTURED = ("feduv", "fedfv", "chorus")  # searches for pictures are slow: one method of each kind of upload
NOISE = 1.0
COHORT = 16
PASSES, LONGER = 12, 30  # over the public people before anything else; longer, so that people are told well apart
CALLED = 5  # times that everybody is, in all rounds together
TRYING = Effort(people=400, judge_epochs=12, decoder_epochs=20, inversions=16, iterations=80, several=2)
ENLARGED, ACROSS = 2, 8  # pictures: how much, and how many people
SHOWN = (
    "fedfv_template_inversion",
    "chorus_template_inversion",
    "feduv_gradient_inversion_1_step",
)  # in docs/audits.md


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--cohort", type=int, default=COHORT, help="of four times as many clients, twice above 64")
    parser.add_argument(
        "--passes", type=int, default=PASSES, help=f"over the public people; {LONGER} to compare cohorts"
    )
    parser.add_argument("--no-pictures", action="store_true", help="leave attacks 4 and 5 out")
    parser.add_argument("--inversions", action="store_true", help="attack 4 alone, beside the others' files")
    parser.add_argument("--summed", action="store_true", help="of --inversions: under the secure sum alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no method after so long")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="for what is trained or searched for")
    parser.add_argument("--parts", type=Path, default=Path("out/audit_matrix"), help="what is measured, and is kept")
    parser.add_argument("--collect", action="store_true", help="measure nothing: write the tables and pictures")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    if options.collect:
        collect(options.parts, options.out, options.images)
        return
    torch.set_num_threads(1)
    options.parts.mkdir(parents=True, exist_ok=True)
    until, device = time.perf_counter() + options.seconds, torch.device(options.device)
    with Progress() as progress:
        for seed in options.seeds:
            if options.inversions:
                views = [SECURE_SUM] if options.summed else standard_views(NOISE)
                invert(options.parts, options.methods, seed, views, progress, device)
                continue
            size, passes = options.cohort, options.passes
            left = [name for name in options.methods if not part(options.parts, name, seed, size, passes).exists()]
            if left:
                small = (size, passes) == (COHORT, PASSES) and not options.no_pictures
                effort = TRYING if small else replace(TRYING, judge_epochs=1, inversions=0, decoder_epochs=0)
                measure(options.parts, left, seed, size, passes, effort, progress, device, until)


def made(name: str) -> Method:
    return OTHERS[name] if name in OTHERS else method_named(name)()


def of(cohort: int) -> int:
    """How many clients there are, of whom so many are called."""
    return cohort * (4 if cohort <= 64 else 2)


def planned(method: str, seed: int, cohort: int, passes: int = PASSES) -> Run:
    run = audit(made(method), seed, CALLED * of(cohort) // cohort)
    run = replace(run, pretrain=replace(run.pretrain, rounds=passes))
    return replace(run, data=replace(run.data, clients=of(cohort)), rounds=replace(run.rounds, cohort=cohort))


def part(folder: Path, method: str, seed: int, cohort: int, passes: int) -> Path:
    longer = f"_{passes}" if passes != PASSES else ""
    return folder / f"{method.replace('/', '.')}_{seed}_{cohort}{longer}.json"


def picture(folder: Path, method: str, attack: str) -> Path:
    return folder / f"{method.replace('/', '.')}_{attack.replace(', ', '_').replace(' ', '_')}.png"


def measure(
    folder: Path,
    methods: Sequence[str],
    seed: int,
    cohort: int,
    passes: int,
    effort: Effort,
    progress: Progress,
    device: torch.device,
    until: float,
) -> None:
    """Attack these methods, one file each."""
    attacker = Attacker.prepared(32, "easy", effort, seed, progress, device)
    setting = Setting.prepared(planned(methods[0], seed, cohort, passes), progress, device)
    for name in methods:
        if time.perf_counter() > until:
            return
        began = time.process_time()
        trying = effort if name in PICTURED else replace(effort, inversions=0, decoder_epochs=0)
        trying = replace(trying, inversions=0)  # most of all the time: a command of their own
        case = replace(of_method(setting, made(name), attacker, progress), name=name)
        results = audited(case, replace(attacker, effort=trying), standard_views(NOISE), progress)
        rows = [{"seed": seed, "cohort": cohort, "passes": passes, **result.as_dict()} for result in results]
        for result in results:
            progress.say(line(result))
        for attack, sheet in sheets(results) if seed == 0 else ():
            picture(folder, name, attack).write_bytes(encode_png(sheet))
        found = {"seconds": round(time.process_time() - began, 1), "results": rows}
        found["made"] = provenance.describe(device)
        part(folder, name, seed, cohort, passes).write_text(json.dumps(found, indent=1) + "\n")


def invert(
    folder: Path, methods: Sequence[str], seed: int, views: Sequence[View], progress: Progress, device: torch.device
) -> None:
    """Attack 4 on these methods, one step and several, on as many people as TRYING says."""
    attacker = Attacker.prepared(32, "easy", TRYING, seed, progress, device)
    setting = Setting.prepared(planned(methods[0], seed, COHORT), progress, device)
    for name in methods:
        case = replace(of_method(setting, made(name), attacker, progress), name=name)
        for steps in (1, TRYING.several):
            place = folder / f"{name.replace('/', '.')}-inversion-{steps}_{seed}_{COHORT}.json"
            if place.exists():
                continue
            began, results = time.process_time(), []
            for view in views:
                luck = seeding.generator(seed, f"gradient inversion, {steps}", view.name)
                found = gradient_inversion(
                    case, view, luck, attacker.judge, steps, TRYING.inversions, TRYING.iterations
                )
                results += [found] if found else []
                progress.say(line(results[-1]) if found else f"{name}: nobody sent anything")
            for attack, sheet in sheets(results) if seed == 0 and len(views) > 1 else ():
                picture(folder, name, attack).write_bytes(encode_png(sheet))
            rows = [{"seed": seed, "cohort": COHORT, **result.as_dict()} for result in results]
            told = {"seconds": round(time.process_time() - began, 1), "results": rows}
            place.write_text(json.dumps(told | {"made": provenance.describe(device)}, indent=1) + "\n")


def collect(folder: Path, out: Path, images: Path) -> None:
    """The tables of everything that was measured, and its pictures."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not parts:
        raise SystemExit(f"nothing was measured in {folder}: run this without --collect first")
    rows = [{"passes": PASSES, **row} for found in parts for row in found["results"]]
    most = Counter[tuple[str, str, str, int, int, int]]()  # of attack 4 there may be two: that on more people counts
    for row in rows:
        most[_cell(row)] = max(most[_cell(row)], row["details"]["people"])
    rows = [row for row in rows if row["details"]["people"] == most[_cell(row)]]
    rows.sort(key=lambda row: (METHODS.index(row["against"]), row["seed"]))  # stable: attacks and views as they came
    seeds = sorted({row["seed"] for row in rows})
    report: dict[str, Any] = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py, with --inversions, and with --passes 30 and "
        "--cohort 16, 64, 160; then --collect",
        "what": f"{CALLED * of(COHORT) // COHORT} rounds of {COHORT} of {of(COHORT)} clients, one synthetic person "
        "each, 32 pixels, feduv_cnn_small; the "
        f"attacks are on the last round, recovery on all; noise multiplier {NOISE:g}; seeds {seeds}",
        "seconds": round(sum(found["seconds"] for found in parts), 1),
        "made": {
            "hardware": joined(parts, "hardware"),
            "date": max(found["made"]["date"] for found in parts),
            "commit": joined(parts, "commit"),
        },
        "results": rows,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit_matrix.json").write_text(json.dumps(report, indent=1) + "\n")
    apart = ([row for row in rows if row["passes"] == passes] for passes in (PASSES, LONGER))
    (out / "audit_matrix.md").write_text(as_markdown(report, *apart))
    for name in SHOWN:
        if (folder / f"{name}.png").exists():
            (images / f"audit_{name}.png").write_bytes((folder / f"{name}.png").read_bytes())


def joined(parts: list[dict[str, Any]], what: str) -> str:
    return ", ".join(sorted({name for found in parts for name in found["made"][what].split(", ")}))


def _cell(row: dict[str, Any]) -> tuple[str, str, str, int, int, int]:
    return row["against"], row["attack"], row["view"], row["seed"], row["cohort"], row["passes"]


def sheets(results: Sequence[AuditResult]) -> Iterator[tuple[str, Tensor]]:
    """For each attack that ends in pictures: people across; a photograph, then the attacker's picture in each view."""
    drawn = [(result.attack, result.pictures) for result in results if result.pictures is not None]
    for attack in dict.fromkeys(attack for attack, _ in drawn):
        shown = [pictures for its, pictures in drawn if its == attack]
        people = min(ACROSS, *map(len, shown))
        rows = torch.stack([shown[0][:people, 0], *(pictures[:people, 1] for pictures in shown)])
        larger = rows.flatten(0, 1).repeat_interleave(ENLARGED, 2).repeat_interleave(ENLARGED, 3)
        yield attack, contact_sheet(larger, columns=people)


def line(result: AuditResult) -> str:
    share = f"{100 * result.success:.0f} % against {100 * result.chance:.1f} % by luck"
    return f"{result.against}, {result.attack}, {result.view}: {share}"


if __name__ == "__main__":
    main()
