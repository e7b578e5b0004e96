"""``coalface audit RUN_OR_METHOD``: attacks on what is really sent, plain, summed, and summed with noise."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coalface import config, provenance, wire
from coalface.config import ConfigError, DetectionRun, Run
from coalface.privacy.audits import audit as audits
from coalface.privacy.audits.result import AuditResult
from coalface.privacy.audits.view import MIN_COHORT
from coalface.recipes.audit import audit as audit_size
from coalface.report.audit_page import write_audit_page
from coalface.report.progress import Progress
from coalface.store import write_atomically
from coalface.verbs.given import read_config

SETTINGS = "of the method's own run, as `coalface run` takes them; a finished run has its own"


def audit(options: argparse.Namespace, command: str) -> None:
    """Attack what a method, or a finished run, really sends; writes audit.json and audit.html."""
    folder = Path(options.what) if (Path(options.what) / "config.json").exists() else None
    run = _run(options, folder)
    effort = audits.Effort(inversions=options.inversions, iterations=options.iterations)
    with Progress(quiet=options.quiet) as progress:
        attacker = audits.Attacker.prepared(run.data.size, run.data.difficulty, effort, run.seed, progress)
        try:
            if folder is not None:
                case = audits.of_run(run, folder, options.rounds, attacker, progress)
            else:
                case = audits.of_method(audits.Setting.prepared(run, progress), run.method, attacker, progress)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        results = audits.audited(case, attacker, audits.standard_views(options.noise), progress)
    report: dict[str, Any] = {
        "method": case.name,
        "command": command,
        "seed": run.seed,
        "clients": len(case.clients),
        "cohort": len(case.last.uploads),
        "rounds": len(case.rounds),
        "noise": options.noise,
        "config_sha256": run.sha256(),
        **provenance.describe(torch.device("cpu")),
        "results": [result.as_dict() for result in results],
    }
    out = options.out or folder or Path("out") / f"audit_{case.name.replace('/', '_')}"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "audit.json", (json.dumps(report, indent=2) + "\n").encode())
    # Real faces never enter a report.
    shown = results if run.data.source == "synthetic" else [_without_pictures(result) for result in results]
    write_audit_page(out / "audit.html", report, shown)
    for result in results:
        mark = " " if result.at_chance else "!"
        share = f"{100 * result.success:5.1f} % [{100 * result.interval.low:.1f}, {100 * result.interval.high:.1f}]"
        print(f"{mark} {result.attack:<28}{result.view:<17}{share}  luck {100 * result.chance:.1f} %")
    print(f"audit: {out / 'audit.html'}")


def arguments(sub: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    sub.add_argument("what", metavar="RUN_OR_METHOD", help="a finished run's folder, or a method (`coalface list`)")
    sub.add_argument("--set", action="append", default=[], metavar="A.B=C", help=SETTINGS)
    sub.add_argument("--out", type=Path, metavar="DIR", help="default: the run's folder, or out/audit_METHOD")
    sub.add_argument("--rounds", type=int, default=20, help="rounds that are listened to (default: 20)")
    sub.add_argument("--noise", type=float, default=1.0, help="noise multiplier of the DP view (default: 1)")
    sub.add_argument("--inversions", type=int, default=4, help="clients whose gradients are inverted (default: 4)")
    sub.add_argument("--iterations", type=int, default=150, help="of each inversion (default: 150)")
    sub.add_argument("--seed", type=int, default=0, help="of a method's own run (default: 0)")
    sub.add_argument("--quiet", action="store_true", help="no progress, results only")


def _run(options: argparse.Namespace, folder: Path | None) -> Run:
    """The run whose rounds are played; what cannot be audited is refused before anything is done."""
    if options.rounds < 1 or options.noise <= 0 or options.inversions < 0 or options.iterations < 4:
        raise ConfigError(
            "--rounds must be at least 1, --noise above 0, --inversions at least 0, --iterations at least 4, not "
            f"{options.rounds}, {options.noise:g}, {options.inversions} and {options.iterations}"
        )
    detects = f"{options.what} detects attacks: audits are of methods that recognise faces"
    run: Run | DetectionRun
    if folder is None:
        method = config.method_named(options.what)()
        if method.world != "faces":
            raise ConfigError(detects)
        own = audit_size(method, options.seed, options.rounds)
        run = config.override(own, options.set)
    elif options.set:
        raise ConfigError("--set is for a method; a finished run has its own settings")
    else:
        run = read_config(folder / "config.json")
    if isinstance(run, DetectionRun):
        raise ConfigError(detects)
    if run.data.identities_each > 1:
        raise ConfigError(f"audits are for one person per client: data.identities_each is {run.data.identities_each}")
    if "backbone" not in {row.field for row in wire.disclosure(run.method.types.upload)}:
        raise ConfigError(f"{config.method_name(run.method)} sends no update of a backbone: there is nothing to attack")
    if run.data.clients < MIN_COHORT:
        raise ConfigError(f"a sum to hide in needs {MIN_COHORT} clients or more: data.clients is {run.data.clients}")
    return run


def _without_pictures(result: AuditResult) -> AuditResult:
    return replace(result, pictures=None)
