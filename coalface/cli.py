"""The verbs. Plain argparse, so that they work on a bare machine with torch, numpy and safetensors alone."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from coalface import __version__, config
from coalface.allocator import keep_freed_memory
from coalface.config import ConfigError, DetectionRun, Run
from coalface.detection import Detection
from coalface.detection import table as detection_table
from coalface.experiment import Experiment
from coalface.federation import QuorumError
from coalface.metrics.cosine import NoDirection
from coalface.recipes import RECIPES
from coalface.recipes.demo import demo as demo_run
from coalface.recipes.detection import detection
from coalface.report import seeds, tables
from coalface.report.progress import Progress
from coalface.run_folder import alone
from coalface.store import StoreError
from coalface.verbs import audit, flower_sim, ijb, join, keys, reproduce
from coalface.verbs import serve as serving
from coalface.verbs.evaluate import evaluate, pairs, templates
from coalface.verbs.given import config_of, described, device_of, folder_of, read_config
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
NO_MEMORY = "can't allocate memory"  # in torch's words, of a CPU; then how much it was
SMALLER = "Set less of it (data, rounds.cohort, model); data.cache=FOLDER keeps decoded photographs on the disk"
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
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and NO_MEMORY not in str(error):
            raise
        asked = str(error).rpartition(NO_MEMORY)[2].partition(". ")[0] if NO_MEMORY in str(error) else ""
        print(f"coalface: there is not enough memory here{asked}. {SMALLER}", file=sys.stderr)
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
    if len(set(options.seeds)) < len(options.seeds):
        raise ConfigError(f"--seeds {' '.join(map(str, options.seeds))}: the same seed twice shows no spread")
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
    result = serving.serve(asked, options, command, device_of(options.device))
    if isinstance(asked, DetectionRun):
        print(detection_table(result))
    else:
        tables.print_table(result)


def resume(options: argparse.Namespace, command: str) -> None:
    """Go on where a run stopped, with its own settings."""
    _execute(read_config(config_of(options.folder)), options.folder, options, command, fresh=False)


def make_again(options: argparse.Namespace, command: str) -> None:
    """A paper's table or figure, ours beside theirs."""
    reproduce.reproduce(options, command, device_of(options.device))


# --- parts ------------------------------------------------------------------------------------------------------------


def _shown_command(given: Sequence[str], options: argparse.Namespace) -> str:
    """The command for a report, which may be passed on: without the folder of photographs and without full paths."""
    photos = getattr(options, "data", None)
    shown = []
    for argument in given:
        name, equals, value = argument.rpartition("=")
        # However the folder is written: ./photos and photos/ are one.
        hidden = (name == "data.source" and value != "synthetic") or (
            photos is not None and Path(value) == Path(photos)
        )
        short = "PHOTOS" if hidden else Path(value).name if Path(value).is_absolute() else value
        shown.append(name + equals + short)
    return shlex.join(["coalface", *shown])


def _execute(
    run_: Run | DetectionRun, out: Path, options: argparse.Namespace, command: str, fresh: bool
) -> dict[str, Any]:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file: --out is a folder for the run, choose another")
    if fresh and out.exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise ConfigError(f"{out} is not empty: continue it with `coalface resume {out}`, or choose another --out")
    if (out / ".lock").exists():
        with alone(out):
            pass  # who is not alone hears so now, and not after all photographs were read
    with Progress(quiet=options.quiet) as progress:
        device = device_of(options.device)
        if missing := [f"{what} ({name})" for name, what in OPTIONAL.items() if not _importable(name)]:
            progress.say(
                f"not installed here, so left out: {', '.join(missing)}; pip install 'coalface[app]' adds them"
            )
        # Faces and network are made before anything is written: a bad request leaves no trace.
        if options.engine == "flower-sim":
            result: dict[str, Any] = flower_sim.simulate(run_, out, device, progress, command)
        else:
            kind = Detection if isinstance(run_, DetectionRun) else Experiment
            experiment = described(lambda: kind(run_, out, device, progress, command, options.engine))  # type: ignore[arg-type]
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
        folder = folder_of(options.data)
        drawn = str(folder) == "synthetic"  # a folder of this name is one all the same
        settings.insert(0, f"data.source={folder.absolute() if drawn else folder}")
    if options.weights is not None:
        settings.insert(0, f"weights={options.weights}")
    return config.override(_named_run(options.what), settings)


def _named_run(what: str) -> Run | DetectionRun:
    if what in RECIPES:
        return RECIPES[what]()
    if what.endswith(".json"):
        return read_config(Path(what))
    try:
        method = config.method_named(what)()
        return (
            replace(detection(), method=method) if method.world == "recordings" else replace(demo_run(), method=method)
        )
    except ConfigError as error:
        raise ConfigError(f"{error}; recipes: {', '.join(RECIPES)}; or a config.json") from None


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
