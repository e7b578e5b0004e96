"""The verbs. Plain argparse, so that they work on a bare machine with torch, numpy and safetensors alone."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch
import torch
from torch import Tensor

from coalface import __version__, config, seeding
from coalface.allocator import keep_freed_memory
from coalface.config import ConfigError, DetectionRun, Run
from coalface.data import pairs as pair_lists
from coalface.data.faces import list_photos, read_folder, read_images
from coalface.data.faceset import FaceSet
from coalface.data.pair_bin import read_bin
from coalface.detection import Detection
from coalface.detection import table as detection_table
from coalface.evaluation import embed
from coalface.experiment import Experiment
from coalface.federation import QuorumError
from coalface.metrics.cosine import NoDirection
from coalface.models import networks
from coalface.models.checkpoints import load_weights
from coalface.models.net import Net, Weights
from coalface.protocols.verification import all_pairs, lfw_folds, pair_scores, synthetic_pairs
from coalface.recipes import RECIPES
from coalface.recipes.demo import demo as demo_run
from coalface.recipes.detection import detection
from coalface.report import seeds, tables
from coalface.report.progress import Progress
from coalface.store import StoreError
from coalface.verbs import audit, flower_sim, ijb, join, keys, reproduce
from coalface.verbs import serve as serving
from coalface.verbs.listing import list_methods

EPILOG = """\
start here
  coalface demo                                 pre-train, federate 200 phones, compare, open out/demo/report.html
  coalface list                                 the methods, and what leaves a client under each
  coalface run fedprox/shared-head --out out/a  one method on synthetic faces
  coalface run demo --set rounds.rounds=50 --set method.scale=30 --out out/b
  coalface run fedavg/private-head --data PHOTOS --set data.identities_each=4 --out out/c
  coalface resume out/c                         after a crash: the same result as if nothing had happened
  coalface eval out/c --data PHOTOS --pairs pairs.txt
  coalface keys north south west                keys for real machines, then `serve` and `join`: docs/deploy.md
"""


OPTIONAL = {"rich": "progress bars", "matplotlib": "figures in the report"}
ENGINES = (
    "sequential: one client at a time, the reference; stacked: many at a time where that is quicker, with the same "
    "results; auto: stacked for every method that can be; flower-sim: Flower's own, on Ray"
)
LOWER = "training has diverged; start again with a lower rate (pretrain.training.rate, training.rate)"


class Parser(argparse.ArgumentParser):
    """One clear line on error, exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"coalface: {message} (try `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 on success, 1 when nobody reads what it prints, 2 for a bad request, 130 when interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    warnings.showwarning = _one_line_warning
    keep_freed_memory()  # `serve` and `join`, which run for weeks, take this back
    try:
        options.verb(options, _shown_command(given, options))
        sys.stdout.flush()  # here, where it is known what to do if nobody reads on
    except BrokenPipeError:
        # As after `| head`. Python writes what is left when it ends, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except NoDirection as error:
        print(f"coalface: the embeddings have no direction ({error}): {LOWER}", file=sys.stderr)
        return 2
    except (ConfigError, StoreError, QuorumError, OSError, ImportError) as error:
        print(f"coalface: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"coalface: stopped{_how_to_go_on(options)}", file=sys.stderr)
        return 130
    return 0


def _how_to_go_on(options: argparse.Namespace) -> str:
    """After an interruption; nothing, where nothing was begun yet."""
    if options.verb in (run, resume):
        folder = options.folder if options.verb is resume else options.out
        return f"; continue with `coalface resume {folder}`" if (folder / "config.json").exists() else ""
    return "; the same command goes on where it stopped" if options.verb in (demo, serve, make_again) else ""


# --- verbs ------------------------------------------------------------------------------------------------------------


def demo(options: argparse.Namespace, command: str) -> None:
    """Pre-train, federate 200 phones with one synthetic person each, compare with central training; per seed."""
    results = []
    for seed in options.seeds:
        out = options.out if len(options.seeds) == 1 else options.out / f"seed{seed}"
        results.append(_execute(replace(demo_run(), seed=seed), out, options, command, fresh=False))
    if len(results) > 1:
        print(seeds.write_summary(results, options.out))


def run(options: argparse.Namespace, command: str) -> None:
    """Run a method at the demo's size, a recipe, or the config.json of an earlier run."""
    _execute(_requested(options), options.out, options, command, fresh=True)


def serve(options: argparse.Namespace, command: str) -> None:
    """Run a federation of real machines over Flower; the same command again goes on where it stopped."""
    asked = _requested(options)
    result = serving.serve(asked, options, command, _device(options.device))
    if isinstance(asked, DetectionRun):
        print(detection_table(result))
    else:
        tables.print_table(result)


def resume(options: argparse.Namespace, command: str) -> None:
    """Go on where a run stopped, with its own settings."""
    _execute(_read_config(_config_of(options.folder)), options.folder, options, command, fresh=False)


def evaluate(options: argparse.Namespace, command: str) -> None:
    """A model on photographs that it has not seen."""
    net, weights = _model(options)
    weights = weights.map(lambda leaf: leaf.to(_device(options.device)))
    head = _head(options)
    assert net.size is not None  # every recognition model has one
    size = net.size[0]
    with Progress(quiet=options.quiet) as progress:
        if options.pairs is None:
            faces = _described(lambda: _photographs(options, size, progress))
            embeddings = _embedded(net, weights, faces.images, head, progress)
            identities = torch.repeat_interleave(torch.arange(len(faces)), faces.counts())
            result: Any = _described(lambda: all_pairs(embeddings, identities, options.fmr))
        else:
            listed = _described(lambda: _pair_list(options))
            images = _described(lambda: _listed_images(listed, size, progress))
            embeddings = _embedded(net, weights, images, head, progress)
            scores = pair_scores(embeddings, listed.pairs)
            result = _described(lambda: lfw_folds(scores, listed.same, listed.fold))
    print(result.to_json() if options.json else str(result))


def templates(options: argparse.Namespace, command: str) -> None:
    """A model on templates of several images each, by the list files of IJB."""
    net, weights = _model(options)
    weights = weights.map(lambda leaf: leaf.to(_device(options.device)))
    _described(lambda: ijb.ijb(options, net, weights, _head(options)))


def make_again(options: argparse.Namespace, command: str) -> None:
    """A paper's table or figure, ours beside theirs."""
    reproduce.reproduce(options, command, _device(options.device))


def pairs(options: argparse.Namespace, command: str) -> None:
    """A balanced, LFW-style pair list for a folder of photographs."""
    root = _folder(options.data)
    if options.out.is_dir():
        raise ConfigError(f"--out is the file to write, and {options.out} is a folder: try {options.out / 'pairs.csv'}")
    photos: dict[str, list[Path]] = _described(lambda: list_photos(root))  # as `eval` finds them
    if not photos:
        raise ConfigError(f"{root} holds no photographs: it needs one sub-folder per identity")
    files = [file for several in photos.values() for file in several]
    each = torch.tensor([len(several) for several in photos.values()])
    identities = torch.repeat_interleave(torch.arange(len(photos)), each)
    generator = seeding.generator(options.seed, "pairs")
    chosen, same, fold = _described(lambda: synthetic_pairs(identities, options.count, 10, generator))
    listed = pair_lists.PairList(tuple(files), chosen[:, 0], chosen[:, 1], same, fold)
    pair_lists.write_csv(listed, options.out, root)
    print(f"{len(listed)} pairs of {len(photos)} identities in 10 folds: {options.out}")


# --- parts ------------------------------------------------------------------------------------------------------------


def _shown_command(given: Sequence[str], options: argparse.Namespace) -> str:
    """The command for a report, which may be passed on: without the folder of photographs and without full paths."""
    photos = str(options.data) if getattr(options, "data", None) is not None else None
    shown = []
    for argument in given:
        name, equals, value = argument.rpartition("=")
        short = "PHOTOS" if value == photos else Path(value).name if Path(value).is_absolute() else value
        shown.append(name + equals + short)
    return shlex.join(["coalface", *shown])


def _execute(
    run_: Run | DetectionRun, out: Path, options: argparse.Namespace, command: str, fresh: bool
) -> dict[str, Any]:
    if fresh and out.exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise ConfigError(f"{out} is not empty: continue it with `coalface resume {out}`, or choose another --out")
    with Progress(quiet=options.quiet) as progress:
        device = _device(options.device)
        if missing := [f"{what} ({name})" for name, what in OPTIONAL.items() if not _importable(name)]:
            progress.say(
                f"not installed here, so left out: {', '.join(missing)}; pip install 'coalface[app]' adds them"
            )
        # Faces and network are made before anything is written: a bad request leaves no trace.
        if options.engine == "flower-sim":
            result: dict[str, Any] = flower_sim.simulate(run_, out, device, progress, command)
        else:
            kind = Detection if isinstance(run_, DetectionRun) else Experiment
            experiment = _described(lambda: kind(run_, out, device, progress, command, options.engine))  # type: ignore[arg-type]
            result = experiment.execute()
    if isinstance(run_, DetectionRun):
        print(f"{detection_table(result)}\nreport: {out / 'report.html'}")
        return result
    tables.print_table(result)
    print(f"report: {out / 'report.html'}")
    return result


def _requested(options: argparse.Namespace) -> Run | DetectionRun:
    settings = [*options.set]
    if options.data is not None:
        settings.insert(0, f"data.source={_folder(options.data)}")
    if options.weights is not None:
        settings.insert(0, f"weights={options.weights}")
    return config.override(_named_run(options.what), settings)


def _named_run(what: str) -> Run | DetectionRun:
    if what in RECIPES:
        return RECIPES[what]()
    if what.endswith(".json"):
        return _read_config(Path(what))
    try:
        method = config.method_named(what)()
        return (
            replace(detection(), method=method) if method.world == "recordings" else replace(demo_run(), method=method)
        )
    except ConfigError as error:
        raise ConfigError(f"{error}; recipes: {', '.join(RECIPES)}; or a config.json") from None


def _config_of(folder: Path) -> Path:
    file = folder / "config.json"
    if not file.exists():
        raise ConfigError(f"{folder} holds no run: there is no config.json in it")
    return file


def _read_config(file: Path) -> Run | DetectionRun:
    try:
        values = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    return config.run_from_json(values)


def _model(options: argparse.Namespace) -> tuple[Net, Any]:
    folder = options.model_or_run
    if not folder.exists():
        raise ConfigError(f"there is no {folder}: give a run's folder, or a weights file with --model")
    if folder.is_dir():
        run_ = _read_config(_config_of(folder))
        if isinstance(run_, DetectionRun):
            raise ConfigError(f"{folder} detects attacks: `eval` compares faces; see its result.json")
        net = Net(run_.model, embedding=run_.embedding, size=run_.data.size)
        file = folder / "model.safetensors"
        if not file.exists():
            raise ConfigError(f"{folder} is not finished: coalface resume {folder}")
    else:
        if options.model is None:
            raise ConfigError("weights alone do not say which network they are for: add --model NAME")
        if options.model not in networks("faces"):
            raise ConfigError(f"--model {options.model}: networks for faces are {', '.join(networks('faces'))}")
        net = _described(lambda: Net(options.model, size=options.size))
        file = folder
    return net, _described(lambda: load_weights(file, net))


def _head(options: argparse.Namespace) -> Tensor | None:
    """Of a run whose method compares faces by more than its embeddings: the linear map that comes after them."""
    file = options.model_or_run / "head.safetensors"
    return safetensors.torch.load_file(file, str(_device(options.device)))["head"] if file.exists() else None


def _pair_list(options: argparse.Namespace) -> pair_lists.PairList:
    if options.pairs.suffix == ".bin":
        return read_bin(options.pairs)
    if options.pairs.suffix == ".csv":
        return pair_lists.read_csv(options.pairs, options.data)
    return pair_lists.read_lfw(options.pairs, _folder(options.data))


def _photographs(options: argparse.Namespace, size: int, progress: Progress) -> FaceSet:
    """Everybody in a folder of whom there are two photographs, which make a pair."""
    folder = _folder(options.data)
    images = sum(len(files) for files in list_photos(folder).values() if len(files) > 1)
    with progress.stage("decoding", total=images) as stage:
        told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
        return read_folder(folder, size, min_images=2, skip_broken=options.skip_broken, progress=told).faces


def _listed_images(listed: pair_lists.PairList, size: int, progress: Progress) -> Tensor:
    """Photographs as a folder's are read; the encoded images of a .bin as they are."""
    paths = [image for image in listed.images if isinstance(image, Path)]
    with progress.stage("decoding", total=len(listed.images)) as stage:
        told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
        return read_images(paths, size, told) if paths else pair_lists.load_images(listed.images, size, told)


def _embedded(net: Net, weights: Weights, images: Tensor, head: Tensor | None, progress: Progress) -> Tensor:
    with progress.stage("embedding", total=len(images)) as stage:
        return embed(net, weights, images, head=head, progress=stage.advance).cpu()


def _described(make: Any) -> Any:
    """ValueErrors from reading the request are the user's to mend; those from training would be ours."""
    try:
        return make()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _folder(path: Path | None) -> Path:
    if path is None:
        raise ConfigError("which photographs? Add --data FOLDER, with one sub-folder per identity")
    if not path.is_dir():
        raise ConfigError(f"{path} is not a folder; --data takes one with a sub-folder per identity")
    return path


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no GPU here; use --device cpu or auto")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"coalface: {message}", file=sys.stderr)


def _parser() -> Parser:
    parser = Parser(
        prog="coalface",
        description="Train face models without collecting faces, and see exactly what leaves a device.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"coalface {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(name: str, function: Any, teach: str, device: bool = True) -> Parser:
        sub: Parser = verbs.add_parser(name, help=function.__doc__, description=f"{function.__doc__} {teach}")
        sub.set_defaults(verb=function)
        if device:
            sub.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
            sub.add_argument("--quiet", action="store_true", help="no progress, results only")
        if device and name not in ("eval", "ijb", "reproduce", "serve"):
            sub.add_argument(
                "--engine", choices=("auto", "sequential", "stacked", "flower-sim"), default="auto", help=ENGINES
            )
        return sub

    sub = verb("demo", demo, "Writes a report that explains itself.")
    sub.add_argument("--out", type=Path, default=Path("out/demo"), help="where to write it (default: out/demo)")
    sub.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="one run for each (default: 0)")

    runs = verb("run", run, "Everything that can be set stands in the config.json of any run.")
    served = verb("serve", serve, "`coalface keys` first, then `coalface join` on each machine: docs/deploy.md.")
    for sub in (runs, served):
        sub.add_argument(
            "what",
            metavar="ALGORITHM_OR_RECIPE",
            help=f"a method (`coalface list`), a recipe ({', '.join(RECIPES)}), or a config.json",
        )
        sub.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change a setting; repeatable")
        sub.add_argument("--data", type=Path, metavar="DIR", help="photographs, one sub-folder per identity")
        sub.add_argument("--weights", type=Path, metavar="FILE", help="start from these instead of pre-training")
        sub.add_argument("--out", type=Path, required=True, metavar="DIR")
    serving.arguments(served)
    join.arguments(verb("join", join.join, "It sends nothing that client.toml does not accept.", device=False))
    keys.arguments(verb("keys", keys.keys, "For rehearsals and closed federations.", device=False))

    sub = verb("resume", resume, "A finished stage is not done again.")
    sub.add_argument("folder", type=Path)

    sub = verb("eval", evaluate, "All pairs of a folder, or the pairs of a list.")
    sub.add_argument("model_or_run", type=Path, help="a run's folder, or a weights file with --model")
    sub.add_argument("--data", type=Path, metavar="DIR", help="photographs, one sub-folder per identity")
    sub.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="LFW's pairs.txt, an insightface .bin, or a CSV as `coalface pairs` writes",
    )
    sub.add_argument("--fmr", type=float, nargs="+", default=[1e-3, 1e-2], help="for all pairs (default: 1e-3 1e-2)")
    sub.add_argument(
        "--skip-broken", action="store_true", help="leave out photographs of a folder that cannot be decoded"
    )
    sub.add_argument("--model", metavar="NAME", help="the network that a weights file is for")
    sub.add_argument("--size", type=int, default=112, help="its image size (default: 112); a run knows its own")
    sub.add_argument("--json", action="store_true", help="for machines")

    ijb.arguments(verb("ijb", templates, ijb.TEACH))

    sub = verb("reproduce", make_again, reproduce.TEACH)
    reproduce.arguments(sub)
    audit.arguments(verb("audit", audit.audit, "Plain, summed, and summed with noise.", device=False))

    sub = verb("list", list_methods, "Generated from the types that travel.", device=False)
    sub.add_argument("--json", action="store_true")

    sub = verb("pairs", pairs, "Write it, look at it, and give it to `eval`.", device=False)
    sub.add_argument("data", type=Path, metavar="DIR", help="photographs, one sub-folder per identity")
    sub.add_argument("--out", type=Path, default=Path("pairs.csv"), help="the list (default: pairs.csv)")
    sub.add_argument("--count", type=int, default=6000, help="half of them genuine, in 10 folds (default: 6000)")
    sub.add_argument("--seed", type=int, default=0)
    return parser
