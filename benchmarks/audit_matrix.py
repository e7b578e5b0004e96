"""Methods × attacks × protections: what can be told from what is really sent?

    OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py [--scale small|full] [--methods …] [--seeds 0 1 2]

Real rounds of every method on synthetic people at laptop size; see docs/audits.md. Writes audit_matrix.json
and .md. Pictures: `coalface audit METHOD`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coalface import provenance
from coalface.config import method_named
from coalface.metrics.intervals import wilson
from coalface.privacy.audits.audit import Attacker, Effort, Setting, audited, of_method, standard_views
from coalface.privacy.audits.result import AuditResult
from coalface.recipes.audit import audit
from coalface.report.progress import Progress

METHODS = (
    "fedavg/shared-head", "fedavg/positive-only", "random_targets", "fedaws", "fedface", "feduv", "fedfv", "chorus",
)  # fmt: skip
PICTURED = ("feduv", "fedfv", "chorus")  # searches for pictures are slow: one method of each kind of upload
NOISE = 1.0
ROUNDS = 20
EFFORTS = {
    "small": Effort(people=320, judge_epochs=10, decoder_epochs=6, inversions=2, iterations=80, several=0),
    "full": Effort(people=480, judge_epochs=14, decoder_epochs=30, inversions=4, iterations=200, several=2),
}
COLUMNS = (
    "template leak", "recovery", "codeword", "gradient inversion, 1 step", "gradient inversion, 2 steps",
    "template inversion", "membership, person", "membership, image",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--scale", choices=EFFORTS, default="small")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    options = parser.parse_args()
    began, effort = time.process_time(), EFFORTS[options.scale]
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        attacker = Attacker.prepared(32, "easy", effort, 0, progress)
        for seed in options.seeds:
            setting = Setting.prepared(audit(method_named(options.methods[0])(), seed, ROUNDS), progress)
            for name in options.methods:
                trying = effort if name in PICTURED else replace(effort, inversions=0, decoder_epochs=0)
                case = of_method(setting, method_named(name)(), attacker, progress)
                results = audited(case, replace(attacker, effort=trying), standard_views(NOISE), progress)
                rows += [{"seed": seed, **result.as_dict()} for result in results]
                for result in results:
                    progress.say(line(result))
    report: dict[str, Any] = {
        "command": f"OMP_NUM_THREADS=1 python benchmarks/audit_matrix.py --scale {options.scale}",
        "what": f"{ROUNDS} rounds of 16 of 64 clients, one synthetic person each, 32 pixels, feduv_cnn_small; the "
        f"attacks are on the last round, recovery on all; noise multiplier {NOISE:g}; seeds {options.seeds}",
        "seconds": round(time.process_time() - began, 1),
        "made": provenance.describe(torch.device("cpu")),
        "results": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "audit_matrix.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "audit_matrix.md").write_text(as_markdown(report))


def line(result: AuditResult) -> str:
    share = f"{100 * result.success:.0f} % against {100 * result.chance:.1f} % by luck"
    return f"{result.against}, {result.attack}, {result.view}: {share}"


def as_markdown(report: dict[str, Any]) -> str:
    """One table for each view, methods down and attacks across; people pooled over the seeds."""
    made, rows = report["made"], report["results"]
    lines = [
        "# Attacks on what is really sent",
        "",
        f"{report['what']}. Each cell is the share of people (for images: of photographs) against whom the attack "
        "succeeded, pooled over the seeds, its 95 % Wilson interval, and the share that luck reaches. **Bold**: the "
        "interval is above that of luck. What each attack is, and what counts: [docs/audits.md](../docs/audits.md).",
    ]
    columns = [name for name in COLUMNS if any(row["attack"] == name for row in rows)]
    for view in dict.fromkeys(row["view"] for row in rows):
        lines += ["", f"## {view}", "", f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for method in dict.fromkeys(row["against"] for row in rows):
            cells = [
                cell([r for r in rows if (r["view"], r["against"], r["attack"]) == (view, method, attack)])
                for attack in columns
            ]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    lines += ["", "## Medians", "", "| method | view | " + " | ".join(MEDIANS.values()) + " |"]
    lines += ["|---" * (len(MEDIANS) + 2) + "|"]
    for method in dict.fromkeys(row["against"] for row in rows):
        for view in dict.fromkeys(row["view"] for row in rows):
            found = [r for r in rows if (r["view"], r["against"]) == (view, method)]
            lines.append(f"| {method} | {view} | " + " | ".join(middle(found, *key) for key in MEDIANS) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"`{report['command']}` in {report['seconds']:.0f} s of processor time on {made['hardware']}, one thread, "
            f"{made['date']}, commit {made['commit']}.",
            "",
        ]
    )


MEDIANS = {
    ("template leak", "median_cosine"): "template leak: cosine",
    ("template leak", "chance_median_cosine"): "by luck",
    ("recovery", "median_cosine"): "recovery: cosine",
    ("recovery", "chance_median_cosine"): "by luck",
    ("recovery", "any_sum_tells"): "any sum tells",
    ("codeword", "bits_read"): "code bits read",
    ("template inversion", "median_ssim"): "template inversion: SSIM",
    ("template inversion", "chance_median_ssim"): "to strangers",
    ("membership, person", "auc"): "person: AUC",
    ("membership, image", "auc"): "image: AUC",
}


def middle(rows: list[dict[str, Any]], attack: str, key: str) -> str:
    """Mean over the seeds of a number in the details."""
    values = [row["details"][key] for row in rows if row["attack"] == attack and key in row["details"]]
    return f"{sum(values) / len(values):.3f}" if values else "–"


def cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "–"
    people = sum(row["details"]["people"] for row in rows)
    found = round(sum(row["success"] * row["details"]["people"] for row in rows))
    chance = sum(row["chance"] for row in rows) / len(rows)
    strangers = sum(row["details"]["strangers"] for row in rows)
    interval, luck = wilson(found, people), wilson(round(chance * strangers), strangers)
    share = f"{100 * found / people:.0f} %"
    share = f"**{share}**" if interval.low > luck.high else share
    return f"{share} [{100 * interval.low:.0f}, {100 * interval.high:.0f}], luck {100 * chance:.1f}"


if __name__ == "__main__":
    main()
