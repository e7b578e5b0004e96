"""Tables of benchmarks/audit_matrix.py, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalface.metrics.intervals import wilson

Rows = list[dict[str, Any]]
COLUMNS = (
    "template leak", "recovery", "codeword", "gradient inversion, 1 step", "gradient inversion, 2 steps",
    "template inversion", "membership, person", "membership, image",
)  # fmt: skip


QUIETER = "secure sum, noise "  # less of it than in the matrix: audit_settings.py


def quieter(noise: float) -> str:
    """The name of a view with so much noise."""
    return f"{QUIETER}{noise:g}"


def as_markdown(report: dict[str, Any], everything: Rows, cohort: int) -> str:
    """One table for each view, methods down and attacks across; people pooled over the seeds."""
    made, everything = report["made"], [row for row in everything if not row["view"].startswith(QUIETER)]
    rows = [row for row in everything if row["cohort"] == cohort]
    lines = [
        "# Attacks on what is really sent",
        "",
        f"{report['what']}. Each cell is the share of people (for images: of photographs) against whom the attack "
        "succeeded, pooled over the seeds, its 95 % Wilson interval, and the share that luck reaches. **Bold**: the "
        "interval is above that of luck. *Any sum*: how often a plain sum of as many strangers as a choir has meets "
        "one of them. What each attack is, and what counts: "
        "[docs/audits.md](../docs/audits.md).",
    ]
    columns = [name for name in COLUMNS if any(row["attack"] == name for row in rows)]
    lines += ["", "## In short", "", SIGNS, "", *short(rows, columns)]
    for view in dict.fromkeys(row["view"] for row in rows):
        lines += ["", f"## {view[0].upper()}{view[1:]}", "", *table(rows, view, columns)]
    lines += ["", "## Secure sums over larger cohorts", "", LARGER, "", *larger(everything)]
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
            f"`{report['command']}`: {report['seconds']:.0f} s of processor time on {made['hardware']}, one thread, "
            f"{made['date']}, commit {made['commit']}.",
            "",
        ]
    )


def table(rows: Rows, view: str, columns: Sequence[str]) -> list[str]:
    lines = [f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for method in dict.fromkeys(row["against"] for row in rows):
        mine = [row for row in rows if (row["view"], row["against"]) == (view, method)]
        cells = [cell([row for row in mine if row["attack"] == attack]) for attack in columns]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


MEDIANS = {
    ("template leak", "median_cosine"): "template leak: cosine",
    ("template leak", "chance_median_cosine"): "by luck",
    ("recovery", "median_cosine"): "recovery: cosine",
    ("recovery", "chance_median_cosine"): "by luck",
    ("recovery", "any_sum_tells"): "any sum tells",
    ("codeword", "bits_read"): "code bits read",
    ("gradient inversion, 1 step", "own_before_others"): "inversion, 1 step: own before others",
    ("gradient inversion, 2 steps", "own_before_others"): "2 steps",
    ("template inversion", "median_ssim"): "template inversion: SSIM",
    ("template inversion", "chance_median_ssim"): "to strangers",
    ("membership, person", "auc"): "person: AUC",
    ("membership, image", "auc"): "image: AUC",
}


LARGER = (
    "Everybody is called five times in all, of 64, 256 and 320 clients; in sums over 1,000 twice, and all 1,000 are "
    "called. The last layer has 128 inputs and 128 outputs, so that sums over more people have no unique answer. "
    "*Within a person*: how often a photograph that was trained on lies nearer than another one of the same person, "
    "± 1.96 standard errors over people; luck: 50 %. In brackets: the seeds."
)
BY_COHORT = ("template leak", "recovery", "codeword", "membership, person", "membership, image")


def larger(rows: Rows) -> list[str]:
    """Methods and attacks down, cohorts across: what larger sums still tell."""
    methods, cohorts = [row["against"] for row in rows], sorted({row["cohort"] for row in rows})
    others = [view for view in dict.fromkeys(row["view"] for row in rows) if view != SUMMED]
    lines = ["| attack | method | " + " | ".join(f"sum over {cohort}" for cohort in cohorts) + " |"]
    lines += ["|---" * (len(cohorts) + 2) + "|"]
    for attack, view in [*((attack, SUMMED) for attack in BY_COHORT), *((WITHIN, view) for view in (SUMMED, *others))]:
        for method in dict.fromkeys(methods):
            named, told = attack.split(":")[0], attack if view == SUMMED else f"{attack}, {view}"
            mine = [row for row in rows if (row["attack"], row["view"], row["against"]) == (named, view, method)]
            apart = [[row for row in mine if row["cohort"] == cohort] for cohort in cohorts]
            cells = [within(found) if attack == WITHIN else cell(found) for found in apart]
            cells = [f"{text} ({len(found)})" if found else "–" for text, found in zip(cells, apart, strict=True)]
            if any(text != "–" for text in cells):
                lines.append(f"| {told} | {method} | {' | '.join(cells)} |")
    return lines


SUMMED = "secure sum"
WITHIN = "membership, image: within a person"


def within(rows: Rows) -> str:
    """The mean over seeds, with its interval."""
    found = [row["details"] for row in rows if "same_person_auc" in row["details"]]
    if not found:
        return "–"
    mean = sum(one["same_person_auc"] for one in found) / len(found)
    half = 1.96 * sum(one["same_person_auc_error"] ** 2 for one in found) ** 0.5 / len(found)
    words = f"{100 * mean:.1f} ± {100 * half:.1f} %"
    return f"**{words}**" if mean - half > 0.5 else words


def middle(rows: Rows, attack: str, key: str) -> str:
    """Mean over the seeds of a number in the details."""
    values = [row["details"][key] for row in rows if row["attack"] == attack and key in row["details"]]
    return f"{sum(values) / len(values):.3f}" if values else "–"


SIGNS = (
    "● above luck, ○ not above it, – no hold for this attack, or not tried. In brackets: in so many seeds "
    "it is above luck by itself."
)


def short(rows: Rows, columns: Sequence[str]) -> list[str]:
    """A sign for every cell of every view."""
    lines = [f"| view | method | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for view in dict.fromkeys(row["view"] for row in rows):
        for method in dict.fromkeys(row["against"] for row in rows):
            mine = [row for row in rows if (row["view"], row["against"]) == (view, method)]
            signs = [sign([row for row in mine if row["attack"] == attack]) for attack in columns]
            lines.append(f"| {view} | {method} | {' | '.join(signs)} |")
    return lines


def sign(rows: Rows) -> str:
    if not rows:
        return "–"
    several = [above(*pooled([row])) for row in rows]
    return f"{'●' if above(*pooled(rows)) else '○'} ({sum(several)} of {len(several)})"


def above(found: int, people: int, lucky: int, strangers: int) -> bool:
    return wilson(found, people).low > wilson(lucky, strangers).high


def pooled(rows: Rows) -> tuple[int, int, int, int]:
    """Of all seeds: whom the attack met, of how many; and whom luck did, of how many strangers."""
    people = sum(row["details"]["people"] for row in rows)
    found = round(sum(row["success"] * row["details"]["people"] for row in rows))
    strangers = sum(row["details"]["strangers"] for row in rows)
    return found, people, round(sum(row["chance"] * row["details"]["strangers"] for row in rows)), strangers


def cell(rows: Rows) -> str:
    if not rows:
        return "–"
    found, people, lucky, strangers = pooled(rows)
    interval, chance = wilson(found, people), lucky / strangers
    share = f"{100 * found / people:.0f} %"
    share = f"**{share}**" if above(found, people, lucky, strangers) else share
    told = [row["details"]["any_sum_tells"] for row in rows if "any_sum_tells" in row["details"]]
    beside = f", any sum {100 * sum(told) / len(told):.1f}" if told and rows[0]["view"] != "plain" else ""
    return f"{share} [{100 * interval.low:.0f}, {100 * interval.high:.0f}], luck {100 * chance:.1f}{beside}"
