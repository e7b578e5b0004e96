"""Methods × attacks × protections: what can be told from what is really sent?

    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py [--methods …] [--seeds 0 1 2] [--cohort 16] [--device cuda]
    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py --collect

Real rounds of every method on synthetic people at laptop size; see docs/audits.md. Every (method, seed, cohort) is one
file in --parts, which is not measured again: processes may share the work. Sums over more than 16 are attacked without
the searches for pictures. --collect makes audit_matrix.json and .md of what is there, and the pictures of
docs/audits.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import audit_settings
import torch
from audit_report import as_markdown, quieter
from torch import Tensor

from coalface import provenance
from coalface.algorithms.chorus import Chorus
from coalface.config import Run, method_named
from coalface.data.contact_sheet import contact_sheet
from coalface.method import Method
from coalface.privacy.audits.audit import Attacker, Effort, Setting, audited, of_method, standard_views
from coalface.privacy.audits.result import AuditResult
from coalface.privacy.audits.view import View
from coalface.recipes.audit import audit
from coalface.report.png import encode_png
from coalface.report.progress import Progress

METHODS = (
    "fedavg/shared-head", "fedavg/positive-only", "random_targets", "random_targets/secret", "fedaws", "fedface",
    "feduv", "feduv/secret", "fedfv", "chorus", "chorus-8",
)  # fmt: skip
OTHERS: dict[str, Method] = {"chorus-8": Chorus(choir=8)}  # settings that have no name of their own
NOISE = 1.0
LADDER = (0.03, 0.1, 0.3)  # of less noise: how little is enough? Without the searches for pictures
COHORT = 16
PASSES = 30  # over the public people before anything else, so that people are told well apart
CALLED, LARGE = 5, 160  # times that everybody is, in all rounds together; in sums over more than that twice
TRYING = Effort(people=400, judge_epochs=12, decoder_epochs=20, inversions=16, iterations=80, several=2)
ENLARGED, ACROSS = 2, 8  # pictures: how much, and how many people
SHOWN = (
    "fedfv_template_inversion",
    "chorus-8_template_inversion",
    "feduv_gradient_inversion_1_step",
)  # in docs/audits.md


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--cohort", type=int, default=COHORT, help="of four times as many clients; of fewer above 64")
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
            left = [name for name in options.methods if not part(options.parts, name, seed, options.cohort).exists()]
            if left:
                blind = replace(TRYING, judge_epochs=1, inversions=0, decoder_epochs=0)
                effort = TRYING if options.cohort == COHORT else blind
                measure(options.parts, left, seed, options.cohort, effort, progress, device, until)


def made(name: str) -> Method:
    return OTHERS[name] if name in OTHERS else method_named(name)()


def of(cohort: int) -> int:
    """How many clients there are, of whom so many are called."""
    return cohort * (4 if cohort <= 64 else 2 if cohort <= LARGE else 1)


def planned(method: str, seed: int, cohort: int) -> Run:
    run = audit(made(method), seed, (CALLED if cohort <= LARGE else 2) * of(cohort) // cohort)
    run = replace(run, pretrain=replace(run.pretrain, rounds=PASSES))
    return replace(run, data=replace(run.data, clients=of(cohort)), rounds=replace(run.rounds, cohort=cohort))


def part(folder: Path, method: str, seed: int, cohort: int) -> Path:
    return folder / f"{method.replace('/', '.')}_{seed}_{cohort}_{PASSES}.json"


def picture(folder: Path, method: str, attack: str) -> Path:
    return folder / f"{method.replace('/', '.')}_{attack.replace(', ', '_').replace(' ', '_')}.png"


def measure(
    folder: Path,
    methods: Sequence[str],
    seed: int,
    cohort: int,
    effort: Effort,
    progress: Progress,
    device: torch.device,
    until: float,
) -> None:
    """Attack these methods, one file each."""
    attacker = Attacker.prepared(32, "easy", effort, seed, progress, device)
    setting = Setting.prepared(planned(methods[0], seed, cohort), progress, device)
    blind = replace(attacker, effort=replace(effort, inversions=0, decoder_epochs=0))
    for name in methods:
        if time.perf_counter() > until:
            return
        began = time.process_time()
        case = replace(of_method(setting, made(name), attacker, progress), name=name)
        results = audited(case, attacker, standard_views(NOISE), progress)
        for attack, sheet in sheets(results) if seed == 0 else ():
            picture(folder, name, attack).write_bytes(encode_png(sheet))
        results += audited(case, blind, [View(quieter(noise), True, noise) for noise in LADDER], progress)
        rows = [{"seed": seed, "cohort": cohort, **result.as_dict()} for result in results]
        for result in results:
            progress.say(line(result))
        found = {"seconds": round(time.process_time() - began, 1), "results": rows}
        found["made"] = provenance.describe(device)
        part(folder, name, seed, cohort).write_text(json.dumps(found, indent=1) + "\n")


def collect(folder: Path, out: Path, images: Path) -> None:
    """The tables of everything that was measured, and its pictures."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not parts:
        raise SystemExit(f"nothing was measured in {folder}: run this without --collect first")
    rows = [row for found in parts for row in found["results"]]
    rows.sort(key=lambda row: (METHODS.index(row["against"]), row["seed"]))  # stable: attacks and views as they came
    seeds = sorted({row["seed"] for row in rows})
    report: dict[str, Any] = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py, --cohort 16, 64, 160, 1000; then --collect",
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
    (out / "audit_matrix.md").write_text(as_markdown(report, rows, COHORT))
    (out / "audit_settings.md").write_text(audit_settings.as_markdown(report, rows, LADDER, NOISE))
    for name in SHOWN:
        if (folder / f"{name}.png").exists():
            (images / f"audit_{name}.png").write_bytes((folder / f"{name}.png").read_bytes())


def joined(parts: list[dict[str, Any]], what: str) -> str:
    return ", ".join(sorted({name for found in parts for name in found["made"][what].split(", ")}))


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
