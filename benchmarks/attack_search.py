"""Contenders for federated attack detection, tried where no table looks.

    python benchmarks/attack_search.py synthetic --variants plain cameras --seeds 10 11 --device cuda
    python benchmarks/attack_search.py stills --data PHOTOS --variants plain --seeds 10 11 --device cuda
    python benchmarks/attack_search.py table out/search

Synthetic users have seeds of their own. Real users are the training people of the set that is left out: tables test
the others. Each trained detector is judged in many ways, as judging costs little: by its logit, its depth map, both, or
nearness to live frames of the place; as it was sent or with statistics of the place; scores as they are, or held
against those of live frames of the place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from attack_candidates import VARIANTS, Candidate
from torch import Tensor

from coalface import provenance, seeding, tree
from coalface.config import DetectionRun
from coalface.data.attacks import draw_domain
from coalface.data.centres import centres
from coalface.data.population import ClientFaces
from coalface.data.recordings import Recordings
from coalface.engines.replay import Groups, Replay
from coalface.federation import Rounds
from coalface.local import Batch, batches, fresh_optimiser, is_statistic
from coalface.method import Local, Method
from coalface.metrics.attack import attack_rates, threshold_at_eer
from coalface.models.detector import detector
from coalface.models.net import Net, Weights, scaled
from coalface.normalisation import moved
from coalface.reproduce import fedgpad, real_stills

CALM_FROM = 0.5  # share of the rounds after which server's detectors are averaged
OUT = Path("results/attack_search")


@dataclass
class World:
    """Recordings of all domains, drawn or read once for a seed."""

    kind: str
    seed: int
    run: DetectionRun
    device: torch.device
    stills: real_stills.Stills | None
    held: dict[tuple[str, str], Recordings] = field(default_factory=dict)

    def protocols(self) -> Mapping[str, tuple[str, ...]]:
        return fedgpad.CENTRES if self.kind == "synthetic" else real_stills.CENTRES

    def get(self, name: str, split: str) -> Recordings:
        """``test`` of a real set are its training people."""
        if self.stills and name in "NL" and split == "test":
            split = "train"
        if (name, split) not in self.held:
            data = self.run.data
            people = {"train": data.subjects, "dev": data.dev_subjects, "test": data.test_subjects}[split]
            draw = self.stills or draw_domain
            self.held[name, split] = draw(
                name, split, people, data.videos, data.frames, data.size, self.seed, self.device
            )
        return self.held[name, split]


def trained(
    run: DetectionRun, method: Method, world: World, names: tuple[str, ...]
) -> tuple[Net, dict[str, Weights], Any]:
    """The last detector and the mean of the later ones; and the losses, round by round."""
    people = centres([world.get(name, "train") for name in names])
    net = detector(method.network, run.data.size, run.width, run.numerics)
    fresh = net.fresh(seeding.derive(world.seed, "weights")).map(lambda leaf: leaf.to(world.device))
    server = method.begin(net, fresh, people, seeding.generator(world.seed, "begin"))
    private: dict[int, Any] = {}
    later: list[Weights] = []
    losses = []
    replay = Replay() if world.device.type == "cuda" else None
    for round_ in range(1, run.rounds.rounds + 1):
        if isinstance(method, Candidate) and method.in_round(round_) != method:
            method, replay = method.in_round(round_), Replay() if replay else None
        changes, parts = [], []
        for client in range(len(names)):
            broadcast = method.broadcast(server, None, client)
            luck = seeding.generator(world.seed, "start", round_, client)
            local = method.start(net, broadcast, private.get(client), people[client], luck)
            order = seeding.generator(world.seed, "batches", round_, client)
            after, told = stepped(method, net, local, people[client], run, round_, order, replay)
            private[client] = method.keep(after)
            changes.append(method.upload(broadcast, after, people[client]).detector)
            parts.append(told)
        server = replace(server, detector=moved(server.detector, mean_of(changes)))
        losses.append({part: statistics.mean(mine[part] for mine in parts) for part in parts[0]})
        if round_ > CALM_FROM * run.rounds.rounds:
            later.append(server.detector)
    return net, {"last": server.detector, "calm": mean_of(later)}, losses


def stepped(
    method: Method, net: Net, local: Local, faces: ClientFaces, run: DetectionRun, round_: int,
    generator: torch.Generator, replay: Replay | None,
) -> tuple[Any, dict[str, float]]:  # fmt: skip
    """``local.train``, with each step replayed on a GPU: there these networks wait for Python."""
    flat = {name: leaf.detach().clone() for name, leaf in tree.leaves(local.trained).items()}
    fixed = tree.leaves(local.fixed) if local.fixed is not None else {}
    learnt = {name: leaf for name, leaf in flat.items() if not is_statistic(name)}
    optimiser = fresh_optimiser(list(learnt.values()), run.training, run.training.rate_at(round_))

    def step(given: Groups) -> Groups:
        own = {
            name: leaf if is_statistic(name) else leaf.detach().requires_grad_() for name, leaf in given["own"].items()
        }
        rest = tree.refill(local.fixed, given["fixed"]) if given["fixed"] else None
        batch = Batch(given["batch"]["images"], given["batch"]["labels"], depth=given["batch"]["depth"])
        losses = method.objective(net, tree.refill(local.trained, own), rest, batch)
        means = {part: value.mean() for part, value in losses.items()}
        wanted = [leaf for name, leaf in own.items() if not is_statistic(name)]
        gradients = torch.autograd.grad(means["loss"], wanted, allow_unused=True)
        return {
            "gradients": {name: found for name, found in zip(learnt, gradients, strict=True) if found is not None},
            "statistics": {name: leaf for name, leaf in own.items() if is_statistic(name)},
            "losses": {part: value.detach() for part, value in means.items()},
        }

    totals: dict[str, Tensor] = {}
    steps = 0
    for batch in batches(faces, run.training, generator):
        assert batch.depth is not None
        images = {"images": batch.images, "labels": batch.labels, "depth": batch.depth}
        given = {"own": flat, "fixed": fixed, "batch": images}
        found = replay(step, given) if replay else step(given)
        for name, leaf in learnt.items():
            leaf.grad = found["gradients"].get(name)
        optimiser.step()
        flat |= found["statistics"]
        for part, value in found["losses"].items():
            totals[part] = totals.get(part, torch.zeros_like(value)) + value
        steps += 1
    return tree.refill(local.trained, flat), {part: float(total) / steps for part, total in totals.items()}


def mean_of(several: list[Weights]) -> Weights:
    first, *rest = several
    return Weights(
        {name: sum((w.parameters[name] for w in rest), leaf) / len(several) for name, leaf in first.parameters.items()},
        {name: sum((w.statistics[name] for w in rest), leaf) / len(several) for name, leaf in first.statistics.items()},
    )


def with_statistics(net: Net, weights: Weights, images: Tensor, share: float) -> Weights:
    """Batch-norm statistics moved by a share towards those of these images, as the network sees them."""
    if not share:
        return weights
    here = Weights(weights.parameters, {name: torch.zeros_like(leaf) for name, leaf in weights.statistics.items()})
    with torch.no_grad():
        net(here, images, batch_statistics=True)
    mixed = {
        name: (1 - share) * weights.statistics[name] + share * leaf / 0.1 for name, leaf in here.statistics.items()
    }
    return Weights(weights.parameters, mixed)


def outputs(net: Net, weights: Weights, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [n], features [n, d] and depth [n, 32, 32]."""
    with torch.no_grad():
        parts = [net.all_outputs(weights, part) for part in seen.split(256)]
    logits, features, depth = (torch.cat(part).double().cpu() for part in zip(*parts, strict=True))
    return logits[:, 0], features, depth


def judged(
    net: Net, weights: Weights, method: Method, world: World, names: tuple[str, ...], user: str
) -> dict[str, Any]:
    """HTER, EER, AUC, and EER on dev, of every way to judge. The threshold is the centres' own.

    What is held against live frames of the place is so with frames of other people: half of a centre's dev subjects.
    """

    def seen(images: Tensor) -> Tensor:
        return method.seen(images.float() / 255) if isinstance(method, Candidate) else scaled(images, torch.float32)

    if isinstance(method, Candidate):
        weights = method.used(weights)
    places, probes = {name: world.get(name, "dev") for name in (*names, user)}, {}
    for name, dev in places.items():
        odd = dev.subject.unique(return_inverse=True)[1] % 2 == 1 if name != user else torch.ones_like(dev.live)
        home = dev.live & (~odd if name != user else odd)
        probes[name] = (world.get(user, "test") if name == user else dev, home, odd.cpu())
    train = [world.get(name, "train") for name in names]
    face = sum(held.depth[held.live].double().mean(0).cpu() for held in train) / len(train) / 255
    typical = float(face.mean())
    found: dict[str, Any] = {}
    for how, share in (("sent", 0.0), ("half", 0.5), ("home", 1.0)):
        scores: dict[str, dict[str, Tensor]] = {}
        homes: dict[str, dict[str, Tensor]] = {}
        for name, (recordings, home, _) in probes.items():
            frames = seen(places[name].images[home][:256])
            here = with_statistics(net, weights, frames, share)
            logit, at_home, depth = outputs(net, here, frames)
            middle, spread = at_home.mean(0), at_home.std(0) + 0.1 * at_home.std()
            for into, images in ((homes, frames), (scores, seen(recordings.images))):
                logit, features, maps = outputs(net, here, images)
                depth = maps.mean((1, 2)) / typical
                alike = (maps * face).sum((1, 2)) / face.square().sum()
                near = -((features - middle) / spread).square().mean(1).sqrt()
                into[name] = {
                    "logit": logit,
                    "depth": depth,
                    "both": logit.sigmoid() + depth.clamp(0, 2),
                    "near": near,
                    "face": alike,
                    "shape": alike / (maps.square().mean((1, 2)).sqrt() + 0.05),
                }
        for by in ("logit", "depth", "both", "near", "face", "shape"):
            for held in ("raw", "shift", "z"):
                mine = {}
                for name in places:
                    own = homes[name][by]
                    level = float(own.mean()) if held != "raw" else 0.0
                    unit = max(float(own.std()), 1e-6) if held == "z" else 1.0
                    mine[name] = (scores[name][by] - level) / unit
                attack = {name: recordings.attack.cpu() for name, (recordings, _, _) in probes.items()}
                whole = held == "raw" and by != "near"
                chosen = {name: probes[name][2] | whole for name in names}
                dev_scores = torch.cat([mine[name][chosen[name]] for name in names])
                dev_attack = torch.cat([attack[name][chosen[name]] for name in names])
                threshold = threshold_at_eer(dev_scores, dev_attack, "dev")
                rates = attack_rates(mine[user], attack[user], threshold)
                own_eer = attack_rates(dev_scores, dev_attack, threshold).eer
                found[f"{how} {by} {held}"] = [round(v, 4) for v in (rates.hter, rates.eer, rates.auc, own_eer)]
    return found


def runs(options: argparse.Namespace) -> DetectionRun:
    scale: DetectionRun = (fedgpad if options.world == "synthetic" else real_stills).SCALES[options.scale]
    run = replace(scale, width=options.width or scale.width)
    drops = ((10, 0.3), (15, 0.3)) if options.drops else ()
    run = replace(run, training=replace(run.training, rate=options.rate or run.training.rate, rate_drops=drops))
    rounds = options.rounds or run.rounds.rounds
    return replace(run, rounds=Rounds(rounds=rounds, checkpoint_every=rounds))


def searched(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    run, device = runs(options), torch.device(options.device)
    run.numerics.switch_on()
    stills = real_stills.Stills(options.data, options.cache) if options.world == "stills" else None
    worlds = {seed: World(options.world, seed, run, device, stills) for seed in options.seeds}
    start = time.perf_counter()
    for variant in options.variants:
        if time.perf_counter() - start > options.seconds:
            return
        for seed, world in worlds.items():
            for user, names in world.protocols().items():
                if options.users and user not in options.users:
                    continue
                began = time.perf_counter()
                net, models, losses = trained(run, VARIANTS[variant], world, names)
                seconds = round(time.perf_counter() - began, 1)
                named = variant + ", falling rate" * options.drops
                yield {
                    "world": options.world, "scale": options.scale, "variant": named, "seed": seed, "user": user,
                    "rate": run.training.rate, "width": run.width, "rounds": run.rounds.rounds, "seconds": seconds,
                    "losses": losses[:: max(1, len(losses) // 12)] + losses[-1:],
                    "judged": {
                        f"{which} {way}": rates
                        for which, model in models.items()
                        for way, rates in judged(net, model, VARIANTS[variant], world, names, user).items()
                    },
                }  # fmt: skip


WAYS = {
    "logit, as sent": "last sent logit raw",
    "logit, half of the statistics": "last half logit raw",
    "logit, half, zero of the place": "last half logit shift",
    "logit, all statistics, zero": "last home logit shift",
    "depth, as sent": "last sent depth raw",
    "a face's depth, as sent": "last sent face raw",
    "shape of depth, as sent": "last sent shape raw",
    "**depth, half**": "last half depth raw",
    "a face's depth, half": "last half face raw",
    "depth, half, zero": "last half depth shift",
    "depth, all": "last home depth raw",
    "logit and depth, half": "last half both raw",
    "nearness, half": "last half near raw",
    "later rounds' mean: depth, as sent": "calm sent depth raw",
    "later rounds' mean: depth, half": "calm half depth raw",
}


def page(rows: list[dict[str, Any]]) -> str:
    """Mean HTER over users and seeds, by variant and way to judge; EER of the first in brackets."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("world", "scale", "width", "rate", "rounds", "variant"))
        groups.setdefault(key, []).append(row)
    lines = ["| world | variant | users; seeds | " + " | ".join(WAYS) + " |", "|---|---|---|" + "---|" * len(WAYS)]
    for (world, scale, width, rate, rounds, variant), mine in groups.items():
        users, seeds = (", ".join(sorted({str(row[name]) for row in mine})) for name in ("user", "seed"))
        cells = []
        for way in WAYS.values():
            known = [row["judged"][way] for row in mine if way in row["judged"]]  # some ways came later
            means = [100 * statistics.mean(rates[n] for rates in known) for n in (0, 1) if known]
            cells.append(f"{means[0]:.1f} ({means[1]:.1f})" if known else "–")
        size = f"{world} {scale}, width {width}, rate {rate:g}, {rounds} rounds"
        lines.append(f"| {size} | {variant} | {users}; {seeds} | " + " | ".join(cells) + " |")
    made = sorted({f"{row['made']['hardware']}, {row['made']['date']}, commit {row['made']['commit']}" for row in rows})
    return (
        "# Contenders of attack detection, tried where no table looks\n\n"
        "HTER (EER) in percent of frames, mean over users and seeds. Synthetic users have seeds that no table has; "
        "real users are training people of the set that is left out. What the variants are stands in "
        "benchmarks/attack_candidates.py; ways to judge, in benchmarks/attack_search.py.\n\n"
        + "\n".join(lines)
        + f"\n\n`python benchmarks/attack_search.py table out/search`, rows made on {'; '.join(made)}.\n"
    )


def table(folder: Path, out: Path) -> None:
    """What was found, as attack_search.json and attack_search.md."""
    files = sorted(folder.glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    about = ("world", "scale", "width", "rate", "rounds", "variant", "seed", "user")
    rows = list({tuple(row[name] for name in about): row for row in rows}.values())  # a row that was made again: once
    for row in rows:
        row["judged"] = {way: row["judged"][way] for way in WAYS.values() if way in row["judged"]}
        row["losses"] = [{part: round(value, 3) for part, value in parts.items()} for parts in row["losses"]]
    (out / "attack_search.json").write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8"
    )
    (out / "attack_search.md").write_text(page(rows), encoding="utf-8")
    print(page(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=("synthetic", "stills", "table"))
    parser.add_argument("folder", nargs="?", type=Path, help="of table: where rows are")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10])
    parser.add_argument("--users", nargs="+", default=[])
    parser.add_argument("--scale", default="cpu")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--drops", action="store_true", help="a third of the rate from round 10 on, a tenth from 15")
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new variant after so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("out/photographs"))
    parser.add_argument("--out", type=Path, default=Path("out/search/rows.jsonl"))
    options = parser.parse_args()
    if options.world == "table":
        table(options.folder, Path("results"))
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    made = provenance.describe(torch.device(options.device))
    with options.out.open("a", encoding="utf-8") as file:
        for row in searched(options):
            file.write(json.dumps({**row, "made": made}) + "\n")
            file.flush()
            shown = [[round(100 * v, 1) for v in row["judged"][f"last {way} depth raw"]] for way in ("sent", "half")]
            print(row["variant"], row["user"], row["seed"], row["seconds"], *shown, flush=True)


if __name__ == "__main__":
    main()
