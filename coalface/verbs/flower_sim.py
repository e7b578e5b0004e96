"""--engine flower-sim: a run whose clients are in Flower's own simulation engine."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import torch

from coalface.config import DetectionRun, Run
from coalface.report.progress import Progress
from coalface.verbs.extra import needs_deploy

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}  # Ray must not phone home either


def simulate(run: Run | DetectionRun, out: Path, device: torch.device, progress: Progress, command: str) -> Any:
    """The run's result; an ImportError with the remedy where Flower or Ray is missing."""
    needs_deploy()
    os.environ.update(QUIET)
    try:
        importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("ray is not installed; pip install 'coalface[flower-sim]' adds it") from error
    from coalface.engines import flower_sim  # noqa: PLC0415  (Flower is optional, so it is imported where it is used)

    return flower_sim.simulate(run, out.resolve(), device, progress, command)
