"""Can class embeddings be solved from what FedFV and chorus broadcast, and members be found with a photograph?

    OMP_NUM_THREADS=1 python benchmarks/audit_embeddings.py [--out results]

Simulated embeddings, static unless said, sent by the methods' own code. Writes audit_embeddings.json and .md; it takes
one to two minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import provenance, seeding
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV
from coalface.metrics.intervals import wilson
from coalface.privacy.audits import linkage, recovery, simulate
from coalface.privacy.audits.chords import least_voices
from coalface.privacy.audits.result import AuditResult

COMMAND = "OMP_NUM_THREADS=1 python benchmarks/audit_embeddings.py"
SEEDS = (0, 1, 2)
DIMENSIONS = 512
PEOPLE, ENROLLED, OUTSIDERS = 192, 960, 100_000  # of a recovery; of a linkage, whose bank should be large
GROUPED = 577  # of a recovery from several groupings: as many as in the table of real photographs
COHORT = 8
PARTS = 16
PHOTO = 0.7  # cosine of a photograph to its person's class embedding
COMMON = 0.3  # mean cosine between people, where they are not nearly orthogonal
DRIFT = 0.999  # cosine of each class embedding between two rounds, where it is not static

Found = Iterator[tuple[str, AuditResult]]  # what is special about the setting, and the result


def against_fedfv(seed: int) -> Found:
    for fused, rounds, common, drift, words in (
        (2, 1, 0.0, 1.0, "1 round"),
        (2, 5, 0.0, 1.0, "5 rounds"),
        (2, 10, 0.0, 1.0, "10 rounds"),
        (2, 20, 0.0, 1.0, "20 rounds"),
        (2, 20, 0.0, DRIFT, f"20 rounds, embeddings move (cosine {DRIFT} a round)"),
        (2, 20, COMMON, 1.0, f"20 rounds, mean cosine {COMMON} between people"),
        (3, 20, 0.0, 1.0, "20 rounds"),
        (5, 20, 0.0, 1.0, "20 rounds"),
    ):
        draw = seeding.generator(seed, "fedfv", fused, words)
        truth = simulate.embeddings(PEOPLE, DIMENSIONS, draw, common)
        sent = simulate.fedfv(FedFV(fused=fused), truth, rounds, COHORT, draw, drift)
        yield words, recovery.from_equivalents(sent.broadcasts, fused, truth[torch.cat(sent.mixed).unique()], draw)


def against_sums(seed: int) -> Found:
    for choir, common in ((3, 0.0), (4, 0.0), (8, 0.0), (16, 0.0), (4, COMMON)):
        draw = seeding.generator(seed, "sums", choir, str(common))
        truth, sung = choirs(choir, 0, 1, common, draw)
        words = "1 chord; further ones are the same" + (f"; mean cosine {common} between people" if common else "")
        yield words, recovery.from_sums(sung.chords, truth, draw)
        if choir == 4 and not common:
            yield f"{choir - 1} of {choir} collude, 1 chord", recovery.from_sums_by_members(sung.chords, truth, draw)


def against_groupings(seed: int) -> Found:
    """The server solves the sums of all groupings together."""
    for choir, groupings, noise, common in (
        (4, 1, 0.0, 0.0),
        (4, 2, 0.0, 0.0),
        (4, 3, 0.0, 0.0),
        (8, 2, 0.0, 0.0),
        (8, 4, 0.0, 0.0),
        (16, 4, 0.0, 0.0),
        (16, 8, 0.0, 0.0),
        (8, 4, 0.5, 0.0),
        (8, 4, 1.0, 0.0),
        (8, 4, 0.0, COMMON),
        (4, 3, 0.0, COMMON),
    ):
        draw = seeding.generator(seed, "groupings", choir, groupings, str((noise, common)))
        truth = simulate.embeddings(GROUPED, DIMENSIONS, draw, common)
        sung = simulate.groupings(Chorus(choir=choir, groupings=groupings, noise=noise), truth, draw)
        name = f"chorus, sums, k = {choir}, R = {groupings}" + (f", σ = {noise}" if noise else "")
        words = f"all sums together; mean cosine {common} between people" if common else "all sums together"
        yield words, recovery.from_groupings(sung.members, sung.sums, truth, draw, name)


def against_mixtures(seed: int) -> Found:
    for choir, rounds, common in ((4, 20, 0.0), (8, 20, 0.0), (16, 20, 0.0), (4, 100, COMMON), (8, 100, COMMON)):
        draw = seeding.generator(seed, "mixtures", choir, str(common))
        truth, sung = choirs(choir, PARTS, rounds, common, draw)
        words = f"{rounds} chords" + (f", mean cosine {common} between people" if common else "")
        yield f"{words}, a frame that agrees", recovery.from_mixtures(sung.chords, truth, draw)
        if not common:
            yield f"{words}, fourth moments", recovery.from_mixtures(sung.chords, truth, draw, "independent")
        if choir == 4:
            together = recovery.from_mixtures_by_members(sung.chords, sung.parts, truth, choir - 2, draw)
            yield f"{words}, {choir - 2} of {choir} collude", together


def choirs(choir: int, parts: int, rounds: int, common: float, draw: torch.Generator) -> tuple[Tensor, simulate.Sung]:
    """Voices [choirs, k, D], and what was sung."""
    people = simulate.embeddings(PEOPLE, DIMENSIONS, draw, common)
    sung = simulate.choirs(Chorus(choir=choir, parts=parts), people, rounds, draw)
    return people.view(-1, choir, DIMENSIONS), sung


def linked(seed: int) -> Found:
    draw = seeding.generator(seed, "linkage")
    people = simulate.embeddings(ENROLLED + OUTSIDERS, DIMENSIONS, draw)
    photos = simulate.moved(people, PHOTO, draw)
    enrolled, members, outsiders = people[:ENROLLED], photos[:ENROLLED], photos[ENROLLED:]
    rate = linkage.strictest_rate(OUTSIDERS)
    for fused in (2, 3, 5):
        sent = simulate.fedfv(FedFV(fused=fused), enrolled, 1, COHORT, draw)
        score = linkage.against_directions(sent.broadcasts[0])
        bank = f"{len(sent.broadcasts[0])} equivalents"
        yield bank, linkage.linkage(score, outsiders, members[sent.mixed[0]], f"fedfv, k = {fused}", rate)
    for choir in (3, 4, 8, 16):
        chords = simulate.choirs(Chorus(choir=choir), enrolled, 1, draw).chords[0]
        score = linkage.against_directions(chords[:, 0])
        yield f"{len(chords)} chords", linkage.linkage(score, outsiders, members, f"chorus, sums, k = {choir}", rate)
    for choir, groupings in ((8, 2), (8, 4), (16, 4)):
        sung = simulate.groupings(Chorus(choir=choir, groupings=groupings), enrolled, draw)
        guesses = F.normalize(least_voices(sung.members, sung.sums), dim=1).float()
        name = f"chorus, sums, k = {choir}, R = {groupings}"
        score = linkage.against_directions(guesses)
        yield f"{len(sung.sums)} sums, solved together", linkage.linkage(score, outsiders, members, name, rate)
    for choir in (4, 8, 16):
        chords = simulate.choirs(Chorus(choir=choir, parts=PARTS), enrolled, 1, draw).chords[0]
        score, name = linkage.against_spans(chords, choir), f"chorus, mixtures, k = {choir}, m = {PARTS}"
        yield f"{len(chords)} chords", linkage.linkage(score, outsiders, members, name, rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    began = time.process_time()
    rows: list[dict[str, Any]] = []
    for seed in SEEDS:
        for attack in (against_fedfv, against_sums, against_groupings, against_mixtures, linked):
            for setting, result in attack(seed):
                rows.append({"seed": seed, "setting": setting, **result.as_dict()})
                print(f"{seed}  {result.attack}  {result.against}  {setting}  {result.success:.3f}", flush=True)
    report: dict[str, Any] = {
        "command": COMMAND,
        "what": f"simulated embeddings, not trained ones: {DIMENSIONS} dimensions, {len(SEEDS)} seeds",
        "seconds": round(time.process_time() - began, 1),
        "made": provenance.describe(torch.device("cpu")),
        "results": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "audit_embeddings.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.out / "audit_embeddings.md").write_text(as_markdown(report))


def as_markdown(report: dict[str, Any]) -> str:
    """Two tables: people pooled over the seeds."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in report["results"]:
        groups.setdefault((row["attack"], row["against"], row["setting"]), []).append(row)
    made = report["made"]
    lines = [
        "# Attacks on what FedFV and chorus broadcast",
        "",
        f"**Simulated embeddings, not trained ones**: random unit vectors in {DIMENSIONS} dimensions, nearly "
        f"orthogonal and static unless said, sent by the methods' own code. {len(SEEDS)} seeds, pooled; 95 % "
        "Wilson intervals, which are somewhat narrow, as people of one choir fall together. "
        "Trained embeddings are less regular and move.",
        "",
        "## Recovery of class embeddings",
        f"{PEOPLE} people; FedFV sends 100 equivalents a round. The attacker sees the broadcasts and nothing else; "
        "colluders also know what they sang. *Recovered*: cosine above 0.9 to the class embedding. For every person "
        "the scorer takes the best of the attacker's guesses, so shares are upper bounds. *Luck*: as many random "
        "directions, for mixtures within the span of the choir, or of those who are left of it, which is told anyway.",
        "",
        "| against | setting | recovered | median cosine | recovered by luck | median cosine by luck |",
        "|---|---|---|---|---|---|",
    ]
    for (attack, against, setting), rows in groups.items():
        if attack != "linkage":
            median, luck, share = (mean(rows, key) for key in ("median_cosine", "chance_median_cosine", "chance"))
            lines.append(
                f"| {against} | {setting} | {pooled(rows)} | {median:.3f} | {100 * share:.1f} % | {luck:.3f} |"
            )
    lines += [
        "",
        "## Linkage of a photograph",
        f"One broadcast; {ENROLLED} people enrolled, {OUTSIDERS:,} outsiders. A photograph has cosine {PHOTO} to its "
        "person's class embedding. The score is the largest over the whole bank: a cosine, or for mixtures the length "
        "of the projection onto a choir's span. *Found*: TPR at an FPR of 1e-4, which is also what guessing finds.",
        "",
        "| against | bank | found | median score of members | of outsiders | threshold |",
        "|---|---|---|---|---|---|",
    ]
    for (attack, against, setting), rows in groups.items():
        if attack == "linkage":
            member, outsider, limit = (mean(rows, key) for key in ("median_member", "median_outsider", "threshold"))
            lines.append(f"| {against} | {setting} | {pooled(rows)} | {member:.3f} | {outsider:.3f} | {limit:.3f} |")
    return "\n".join(
        [
            *lines,
            "",
            f"`{report['command']}` in {report['seconds']:.0f} s of processor time on {made['hardware']}, "
            f"one thread, {made['date']}, commit {made['commit']}.",
            "",
        ]
    )


def mean(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.mean(row[key] if key in row else row["details"][key] for row in rows)


def pooled(rows: list[dict[str, Any]]) -> str:
    """Share of the people of all seeds, with its interval, in percent."""
    people = sum(row["details"]["people"] for row in rows)
    found = round(sum(row["success"] * row["details"]["people"] for row in rows))
    interval = wilson(found, people)
    return f"{100 * found / people:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


if __name__ == "__main__":
    main()
