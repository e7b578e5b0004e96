"""Recovery and linkage on TRAINED embeddings: what the server, or a listener, has after a whole run of FedFV or chorus.

    OMP_NUM_THREADS=1 python benchmarks/audit_trained.py [--cases fedfv:2 chorus:4x2 …] [--seeds 0 1 2] [--device cuda]
    OMP_NUM_THREADS=1 python benchmarks/audit_trained.py --collect

A case is METHOD:K, or chorus:KxR for R groupings that sing in turn. Real rounds on synthetic people, at laptop size. A
case and seed is one file in --parts, which is not measured again.

recovery   FedFV: the equivalents of the last rounds are solved for their members. Chorus: the server knows who is in
           which choir, and every sum over a whole choir is an equation; all of them together, of all groupings, are
           solved for the likeliest voices, given how faces spread. A person is recovered above a cosine of 0.9.
linkage    photographs that nobody trained on, of people who take part and of others, against the last broadcast of
           FedFV or the sums of all groupings, and against what recovery made of them; the better one counts.
noise      on each sum of a choir, fresh in every round, in units of a voice's length for each number. It is laid on
           what was recorded: training did not see it. The server averages it away as far as a choir sings again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import provenance, seeding, tree
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV
from coalface.data import synthetic, world
from coalface.engines.stacked import Stacked
from coalface.metrics.intervals import wilson
from coalface.privacy.audits import equivalents, linkage
from coalface.privacy.audits.audit import ATTACKER_FIRST, Setting
from coalface.privacy.audits.embedding_recovery import any_sum_tells
from coalface.privacy.audits.recording import Case, Memory, begun, played
from coalface.privacy.audits.recovery import RECOVERED, best_match
from coalface.recipes.audit import audit
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table

CASES = (
    *(f"fedfv:{k}" for k in (2, 4, 8, 16)), *(f"chorus:{k}" for k in (4, 8, 16)),
    "chorus:4x2", "chorus:4x3", "chorus:4x8", "chorus:8x2", "chorus:8x4", "chorus:8x7", "chorus:8x16",
)  # fmt: skip
PEOPLE, COHORT, ROUNDS, RATE = 320, 32, 160, 0.1
PUBLIC, PRETRAINED = 1000, 20  # people, and passes over them: a network that can tell people apart
PHOTOS = 2  # of a person, that are not trained on: the attacker takes their mean
LISTENED = 20  # rounds of FedFV's equivalents: late ones, in which embeddings hardly move
OUTSIDERS = 11_000  # of whom the attacker uses a thousand for the mean face
NOISES = (0.0, 0.1, 0.3, 1.0)
DRIFTS = (0.0, 0.1, 0.3)  # voices move between their sums, as if there were so much noise: the server tries each
RATES = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Equation:
    """A sum over a whole choir, as often as it was heard in one grouping."""

    members: Tensor  # int64 [k], people
    sums: Tensor  # [times, D]


@dataclass(frozen=True)
class Heard:
    """What a whole run told, and the truth."""

    bank: Tensor  # [n, D]: the last broadcast of FedFV; of chorus nothing
    recent: Tensor  # [N, D]: FedFV's equivalents of the last rounds
    equations: list[Equation]  # of chorus
    truth: Tensor  # [people, D]: class embeddings at the end
    case: Case  # after the last round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where rounds are played")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so long")
    parser.add_argument("--parts", type=Path, default=Path("out/audit_trained"))
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.collect:
        collect(options.parts, options.out)
        return
    options.parts.mkdir(parents=True, exist_ok=True)
    device, since = torch.device(options.device), time.perf_counter()
    with Progress() as progress:
        for seed in options.seeds:
            left = [name for name in options.cases if not part(options.parts, name, seed).exists()]
            if not left:
                continue
            run = audit(FedFV(), seed, ROUNDS)
            data = replace(run.data, clients=PEOPLE, probe_images=PHOTOS, public=PUBLIC)
            run = replace(run, data=data, training=replace(run.training, rate=RATE))
            training = replace(run.pretrain.training, rate=0.05, batch=128, rate_drops=((PRETRAINED - 4, 0.2),))
            run = replace(run, pretrain=replace(run.pretrain, rounds=PRETRAINED, training=training))
            setting = Setting.prepared(run, progress, device)
            draw = seeding.derive(seed, "attacker")
            strangers = synthetic.draw_faceset(
                ATTACKER_FIRST, OUTSIDERS, PHOTOS, 32, draw, world.CONDITIONS["easy"], options.device
            )
            for name in left:
                if time.perf_counter() - since > options.seconds:
                    return
                began = time.process_time()
                rows = attacked(name, setting, strangers.images, seed, progress, device)
                found = {"case": name, "seed": seed, "seconds": round(time.process_time() - began, 1), "rows": rows}
                found["made"] = provenance.describe(device)
                part(options.parts, name, seed).write_text(json.dumps(found, indent=1) + "\n")
                progress.say(f"{name} seed {seed}: {json.dumps(rows)}")


def part(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name.replace(':', '_')}_{seed}.json"


def attacked(
    name: str, setting: Setting, strangers: Tensor, seed: int, progress: Progress, device: torch.device
) -> list[dict[str, Any]]:
    """One whole run, and both attacks on it, for every noise."""
    kind, _, size = name.partition(":")
    members, _, groupings = size.partition("x")
    k, times = int(members), int(groupings or 1)
    with progress.stage(name, total=ROUNDS) as bar:
        if kind == "fedfv":
            heard = federated_fedfv(k, setting, device, bar.advance)
        else:
            heard = sung(k, times, setting, device, bar.advance)
    case, drawn = heard.case, seeding.generator(seed, "attack", name)
    backbone = case.method.embedder(case.server)
    there = backbone.map(lambda leaf: leaf.to(device))
    photos, outside = embedded(case, there, probes(setting)), embedded(case, there, strangers)
    half = OUTSIDERS - 10_000
    common = outside[:half].mean(dim=0)  # what all faces share; of people whom the attacker draws itself
    ceiling = linked(heard.truth, outside[half:], photos, common)
    rows = []
    for noise in NOISES if kind == "chorus" else (0.0,):
        if kind == "chorus":
            systems = equations(heard, noise, drawn)
            doubts = sorted({max(noise, moved) for moved in DRIFTS})
            guesses = torch.stack([solved(*told, doubt, common) for told in systems for doubt in doubts], dim=1)
            own = torch.einsum("ngd,nd->ng", guesses, heard.truth).max(dim=1).values
            luck = torch.einsum("ngd,pd->npg", guesses, outside[:half]).max(dim=2).values
            banks = [F.normalize(systems[1][1], dim=1), *guesses.unbind(dim=1)]
        else:
            found = equivalents.recovered(heard.recent, k, drawn)
            own, luck = best_match(found, heard.truth), best_match(found, outside[:half])
            banks = [heard.bank, found]
        found_by = [linked(bank, outside[half:], photos, common) for bank in banks]
        best = {key: max(found[key] for found in found_by) for key in found_by[0]}
        told = {f"{key}, by the template itself": value for key, value in ceiling.items()}
        rows.append(
            {
                "noise": noise,
                "people": len(own),
                **(told_of(systems[0][0]) if kind == "chorus" else {}),
                **(beside_mates(systems[0][0], heard.truth, own > RECOVERED) if kind == "chorus" else {}),
                "recovered": float((own > RECOVERED).double().mean()),
                "by_luck": float((luck > RECOVERED).double().mean()),
                "median_cosine": float(own.median()),
                "cosine_of_the_mean_face": float((heard.truth @ F.normalize(common, dim=0)).median()),
                "any_sum_tells": any_sum_tells(case.strangers(backbone), k, drawn),
                **best,
                **told,
            }
        )
    return rows


def linked(bank: Tensor, outside: Tensor, photos: Tensor, common: Tensor) -> dict[str, float]:
    """Shares of the members whose photograph is found in a bank, at three FPRs."""
    score = linkage.against_directions(bank - common)
    return {
        f"linked, FPR {rate:g}": linkage.linkage(score, outside - common, photos - common, "", rate).success
        for rate in RATES
    }


def federated_fedfv(k: int, setting: Setting, device: torch.device, step: Any) -> Heard:
    """A whole run of FedFV; of its last rounds, what every client was sent."""
    case = begin(FedFV(fused=k), setting, device)
    sent: list[Tensor] = []
    for after, round_ in played(case, case.server, case.memory, 0, ROUNDS, case.training, Stacked):
        case = replace(case, server=after, rounds=[round_])
        sent = [*sent, next(iter(round_.broadcasts.values())).equivalents.cpu()][-LISTENED:]
        step(1)
    recent = torch.cat(sent)
    case = on_host(case, setting)
    return Heard(sent[-1], recent[recent.any(dim=1)], [], case.server.class_embeddings, case)


def sung(k: int, groupings: int, setting: Setting, device: torch.device, step: Any) -> Heard:
    """A whole run of chorus: every sum over a whole choir, which is all that the server sees of voices."""
    method = Chorus(choir=k)
    object.__setattr__(method, "groupings", groupings)  # as many as k and more are refused: here is what for
    case = begin(method, setting, device)
    sums: dict[int, list[Tensor]] = {}
    before = case.server
    for after, round_ in played(case, case.server, case.memory, 0, ROUNDS, case.training, Stacked):
        choirs: dict[int, list[Tensor]] = {}
        for client, upload in round_.uploads.items():
            choirs.setdefault(method.group(before, client), []).append(upload.chord[0].cpu())
        for choir, voices in choirs.items():
            sums.setdefault(choir, []).append(torch.stack(voices).sum(dim=0))
        case, before = replace(case, server=after, rounds=[round_]), after
        step(1)
    found = [Equation(torch.tensor(method.members(before, choir)), torch.stack(told)) for choir, told in sums.items()]
    kept: list[Any] = [case.memory.load(client, ROUNDS + 1) for client in range(PEOPLE)]
    if None in kept:
        raise SystemExit(f"{kept.count(None)} people were never called: play more than {ROUNDS} rounds")
    truth = torch.stack([private.class_embedding.cpu() for private in kept])
    return Heard(truth[:0], truth[:0], found, truth, on_host(case, setting))


def told_of(who: Tensor) -> dict[str, float]:
    """What the sums alone settle: their rank, and of one person's voice the largest share that lies in their span.

    A share of 1 would be a voice that follows from the sums; with R groupings of choirs of k it is about R / k.
    """
    _, values, right = torch.linalg.svd(who, full_matrices=False)
    rank = int((values > 1e-9).sum())
    return {"sums": len(who), "rank": rank, "largest_share": float(right[:rank].square().sum(dim=0).max())}


def beside_mates(who: Tensor, truth: Tensor, recovered: Tensor) -> dict[str, float | None]:
    """Cosine of a person to the sum of the others of their choir, the nearest choir of several: medians.

    Of those who were recovered, and of all: where the first is high, a choir looked alike, and nothing was solved.
    """
    sums = who.float() @ truth
    others = F.normalize(sums[:, None] - truth, dim=2)  # [sums, people, D]
    near = torch.where(who > 0, torch.einsum("spd,pd->sp", others, truth), -1.0).max(dim=0).values
    found = float(near[recovered].median()) if bool(recovered.any()) else None
    return {"mates_of_recovered": found, "mates_of_all": float(near.median())}


def begin(method: FedFV | Chorus, setting: Setting, device: torch.device) -> Case:
    run, people = setting.run, setting.world.clients
    case = Case(
        name="", method=method, net=setting.net, training=run.training, cohort=COHORT, seed=run.seed,
        clients=replace(people, device=device), outsiders=setting.world.test, public=setting.world.test, server=None,
        memory=Memory(device=device), rounds=[],
    )  # fmt: skip
    return replace(case, server=begun(case, setting.start.map(lambda leaf: leaf.to(device))))


def on_host(case: Case, setting: Setting) -> Case:
    server = tree.transform(lambda leaf: leaf.cpu(), case.server)
    return replace(case, server=server, clients=setting.world.clients)


System = tuple[Tensor, Tensor, Tensor]  # who is in which sum [n, people], the sums [n, D], how many were averaged [n]


def equations(heard: Heard, noise: float, luck: torch.Generator) -> tuple[System, System]:
    """All sums as they were heard last, and as means over all times: the first are newer, the second less noisy."""
    who = torch.zeros(len(heard.equations), len(heard.truth), dtype=torch.float64)
    last, mean, times = [], [], []
    for row, equation in enumerate(heard.equations):
        who[row, equation.members] = 1
        told = equation.sums + noise * torch.randn(equation.sums.shape, generator=luck)
        last.append(told[-1])
        mean.append(told.mean(dim=0))
        times.append(len(told))
    often = torch.tensor(times, dtype=torch.float64)
    return (who, torch.stack(last), torch.ones_like(often)), (who, torch.stack(mean), often)


def solved(who: Tensor, sums: Tensor, times: Tensor, noise: float, common: Tensor) -> Tensor:
    """Unit voices [people, D]: the likeliest ones, if voices spread around the mean face as strangers do.

    Without noise this is, of all answers, the one nearest to everybody having the mean face.
    """
    usual = common.double().expand(who.shape[1], -1)
    spread = (1 - common.double().square().sum()) / len(common)  # variance of each number of a unit vector
    trust = noise**2 / times / spread + 1e-6
    found = usual + who.T @ torch.linalg.solve(who @ who.T + trust.diag(), sums.double() - who @ usual)
    return F.normalize(found, dim=1).float()


def probes(setting: Setting) -> Tensor:
    """Photographs [people · 2, 3, H, W] of the clients' people that nobody trained on."""
    kept = setting.world.probes
    if kept is None:
        raise ValueError("linkage needs photographs that nobody trained on: set data.probe_images")
    return kept.faces.gather(kept.rows)


def embedded(case: Case, backbone: Any, images: Tensor) -> Tensor:
    """Mean embeddings of people, of so many photographs each."""
    with torch.no_grad():
        device = next(iter(backbone.parameters.values())).device
        blocks = images.split(500)
        each = torch.cat([F.normalize(case.net(backbone, block.to(device)), dim=1).cpu() for block in blocks])
    return F.normalize(each.view(-1, PHOTOS, each.shape[1]).mean(dim=1), dim=1)


def collect(folder: Path, out: Path) -> None:
    """Seeds pooled; one row for each case and noise."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not parts:
        raise SystemExit(f"nothing was measured in {folder}: run this without --collect first")
    parts.sort(key=lambda found: (CASES.index(found["case"]), found["seed"]))
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for found in parts:
        for row in found["rows"]:
            groups.setdefault((found["case"], row["noise"]), []).append(row)
    report = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/audit_trained.py, then --collect",
        "what": f"whole runs: {ROUNDS} rounds of {COHORT} of {PEOPLE} clients, one synthetic person each, 32 pixels, "
        f"feduv_cnn_small, 128 dimensions, pre-trained on {PUBLIC:,} public people; 10,000 outsiders; "
        f"{PHOTOS} held-out photographs of everybody",
        "seconds": round(sum(found["seconds"] for found in parts), 1),
        "made": {
            "hardware": ", ".join(sorted({found["made"]["hardware"] for found in parts})),
            "date": max(found["made"]["date"] for found in parts),
            "commit": ", ".join(sorted({found["made"]["commit"] for found in parts})),
        },
        "parts": [{key: value for key, value in found.items() if key != "made"} for found in parts],
    }
    cells, keys = [], [f"linked, FPR {rate:g}" for rate in RATES]
    for (name, noise), rows in groups.items():
        method, _, size = name.partition(":")
        k, _, groupings = size.partition("x")
        regrouped = (groupings or "1") if method == "chorus" else "every round"
        rank = f"{mean_of(rows, 'rank'):.0f} of {PEOPLE}, {mean(rows, 'largest_share')}" if "rank" in rows[0] else "–"
        cells.append(
            [method, k, regrouped, f"{noise:g}", rank, share(rows, "recovered"),
             f"{100 * mean_of(rows, 'by_luck'):.1f} %", f"{100 * mean_of(rows, 'any_sum_tells'):.1f} %",
             mean(rows, "median_cosine"), mates(rows), mean(rows, "cosine_of_the_mean_face"),
             *(f"{share(rows, key)} of {share(rows, f'{key}, by the template itself', False)}" for key in keys),
             str(len(rows))]
        )  # fmt: skip
    header = ["method", "k", "groupings", "noise", "rank of the sums, largest share", "recovered", "by luck",
              "any sum of k strangers tells", "median cosine", "cosine to one's mates: recovered, all",
              "mean face: cosine", *keys, "runs"]  # fmt: skip
    made = report["made"]
    text = f"# Recovery and linkage on trained embeddings\n\n{report['what']}. "
    text += "*Rank*: how many independent equations all sums of the run are, of as many as there are people; *largest "
    text += "share*: of one person's voice, how much lies in their span, 1 if it followed from them. "
    text += "*Recovered*: cosine above 0.9 to the class embedding at the end of the run; for FedFV the best direction "
    text += (
        "counts, for chorus the best of a few answers. *By luck*: strangers whom the same guesses meet. *Cosine to "
        "one's mates*: to the sum of the others of the choir, medians of those recovered and of all. *Mean face*: "
    )
    text += "what a guess without any sum has. *Linked*: "
    text += "members found by held-out photographs at that FPR, of so many that are found if the class embeddings "
    text += "themselves are known; at 1e-4 one outsider decides. 95 % Wilson intervals over people of all seeds, which "
    text += "are somewhat narrow, as people of one choir fall together. *Runs*: of each seed one, or two from networks "
    text += "that were pre-trained anew.\n\n"
    text += markdown_table(cells, header)
    text += f"\n`{report['command']}`: {report['seconds']:.0f} s of processor time on {made['hardware']}, one thread, "
    text += f"{made['date']}, commit {made['commit']}.\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit_trained.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "audit_trained.md").write_text(text)


def mean_of(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.mean(row[key] for row in rows)


def mean(rows: list[dict[str, Any]], key: str) -> str:
    return f"{mean_of(rows, key):.3f}"


def mates(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds; those who were recovered where anybody was."""
    both = [[row[key] for row in rows if row.get(key) is not None] for key in ("mates_of_recovered", "mates_of_all")]
    return ", ".join(f"{statistics.mean(values):.2f}" if values else "–" for values in both)


def share(rows: list[dict[str, Any]], key: str, interval: bool = True) -> str:
    people = sum(row["people"] for row in rows)
    found = round(sum(row[key] * row["people"] for row in rows))
    around = wilson(found, people)
    words = f" [{100 * around.low:.1f}, {100 * around.high:.1f}]" if interval else ""
    return f"{100 * found / people:.1f} %{words}"


if __name__ == "__main__":
    main()
