"""What to set so that attacks on a sum are at chance: from what benchmarks/audit_matrix.py measured.

For every method and cohort the least noise that was tried from which on an attack is not above luck. The noise is in
clips on the sum, as ``privacy.dp.noise`` is; beside it stands the ε that it would be worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit_report import BY_COHORT, SUMMED, WITHIN, Rows, above, cell, pooled, quieter, within

from coalface.privacy.account import Account

FULL, DELTA = "secure sum + DP", 1e-4  # the view with the most noise; below one over the number of people
PICTURES = ("gradient inversion, 1 step", "gradient inversion, 2 steps", "template inversion")
ROUNDS = (1, 5, 30)  # that a person is called in


def as_markdown(report: dict[str, Any], rows: Rows, ladder: Sequence[float], most: float) -> str:
    """The settings first, then the numbers behind them."""
    noises = {SUMMED: 0.0, **{quieter(noise): noise for noise in ladder}, FULL: most}
    told = [{**row, "noise": noises[row["view"]]} for row in rows if row["view"] in noises]
    attacks, made = [*BY_COHORT[:3], *PICTURES, *BY_COHORT[3:], WITHIN], report["made"]
    lines = [
        "# What to set for chance",
        "",
        WHAT,
        "",
        *settings(told, attacks),
        "",
        "## What noise is worth",
        "",
        WORTH,
    ]
    lines += ["", *worth(list(noises.values())), "", "## The numbers", "", NUMBERS, "", *numbers(told, attacks)]
    return "\n".join(
        [*lines, "", f"`{report['command']}`; on {made['hardware']}, {made['date']}, commit {made['commit']}.", ""]
    )


WHAT = (
    "People pooled over the seeds. Each cell: the least noise on the sum, in clips, with which the attack is not above "
    "luck (its 95 % interval touches that of luck; *within a person*: includes 50 %), nor with the next larger one; "
    "one cell in forty is above luck by luck. **0**: the secure sum by itself is enough. Of pictures, and where one "
    "seed of 64 or `random_targets` of 160 stands alone, no noise and noise 1 were tried and nothing between; – no "
    "hold for this attack, or not tried. *never*: not with the most noise "
    "either, as a template is revealed beside the sum. In brackets: seeds."
)
WORTH = (
    "ε at δ = 1e-4 for a server that knows whom it called, if a person is in so many sums (`privacy/account.py`): what "
    "is promised against every attack, not only against those tried here. Above about 10 a promise means little."
)
NUMBERS = "Columns: noise. Cells as in [audit_matrix.md](audit_matrix.md)."


def settings(rows: Rows, attacks: Sequence[str]) -> list[str]:
    """Methods and cohorts down, attacks across."""
    lines = [f"| method | sum over | {' | '.join(attacks)} |", "|---" * (len(attacks) + 2) + "|"]
    for method in dict.fromkeys(row["against"] for row in rows):
        for cohort in sorted({row["cohort"] for row in rows if row["against"] == method}):
            mine = [row for row in rows if (row["against"], row["cohort"]) == (method, cohort)]
            cells = [enough(of(mine, attack), attack) for attack in attacks]
            seeds = len({row["seed"] for row in mine})
            lines.append(f"| {method} | {cohort} ({seeds}) | {' | '.join(cells)} |")
    return lines


def of(rows: Rows, attack: str) -> Rows:
    return [row for row in rows if row["attack"] == attack.partition(":")[0]]


def enough(rows: Rows, attack: str) -> str:
    """The least noise with which, and with the next larger one, the attack is at chance."""
    noises = sorted({row["noise"] for row in rows})
    if not noises:
        return "–"
    above_luck = [succeeds([row for row in rows if row["noise"] == noise], attack) for noise in noises]
    for place, noise in enumerate(noises):
        if not any(above_luck[place : place + 2]):
            return f"{noise:g}" if noise else "**0**"
    return "never"


def succeeds(rows: Rows, attack: str) -> bool:
    return within(rows).startswith("**") if attack == WITHIN else above(*pooled(rows))


def worth(noises: Sequence[float]) -> list[str]:
    lines = ["| noise, clips | " + " | ".join(f"{times} sum{'s' * (times > 1)}" for times in ROUNDS) + " |"]
    lines += ["|---" * (len(ROUNDS) + 1) + "|"]
    for noise in [noise for noise in noises if noise] + [2.0, 4.0, 8.0]:
        account = Account(noise, DELTA, 1, 1, sample_is_secret=False)
        found = []
        for _ in range(max(ROUNDS)):
            account.charge([0])
            found.append(account.server())
        lines.append(f"| {noise:g} | " + " | ".join(f"{found[times - 1]:,.1f}" for times in ROUNDS) + " |")
    return lines


def numbers(rows: Rows, attacks: Sequence[str]) -> list[str]:
    noises = sorted({row["noise"] for row in rows})
    lines = ["| attack | method | sum over | " + " | ".join(f"{noise:g}" for noise in noises) + " |"]
    lines += ["|---" * (len(noises) + 3) + "|"]
    for attack in attacks:
        found = of(rows, attack)
        for method in dict.fromkeys(row["against"] for row in found):
            for cohort in sorted({row["cohort"] for row in found if row["against"] == method}):
                mine = [row for row in found if (row["against"], row["cohort"]) == (method, cohort)]
                by_noise = ([row for row in mine if row["noise"] == noise] for noise in noises)
                cells = [within(some) if attack == WITHIN else cell(some) for some in by_noise]
                lines.append(f"| {attack} | {method} | {cohort} | {' | '.join(cells)} |")
    return lines
