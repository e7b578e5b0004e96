"""Where and with what a result was made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from coalface import __version__


def describe(device: torch.device) -> dict[str, Any]:
    """Device, hardware, date, commit and versions; no host name, no path, no user."""
    return {
        "device": device.type,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "versions": {
            "coalface": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "safetensors": safetensors.__version__,
        },
    }


def hardware(device: torch.device) -> str:
    """The GPU's name, or the number of CPU cores and their make."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    makes = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} × {makes[0] if makes else platform.machine()}"


def commit() -> str | None:
    """The commit of a source checkout, with "+" if it has uncommitted changes; None for an installed package.

    A bare machine that runs a copy without its history may be told: COALFACE_COMMIT.
    """
    if os.environ.get("COALFACE_COMMIT"):
        return os.environ["COALFACE_COMMIT"]
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None  # no git on this machine, or a repository without commits
    return head + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
