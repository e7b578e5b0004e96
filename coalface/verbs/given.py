"""What a command line names: folders, devices and settings, or one clear line on what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from coalface import config
from coalface.config import ConfigError, DetectionRun, Run


def config_of(folder: Path) -> Path:
    """The settings of a run's folder."""
    file = folder / "config.json"
    if not file.exists():
        raise ConfigError(f"{folder} holds no run: there is no config.json in it")
    return file


def read_config(file: Path) -> Run | DetectionRun:
    """The settings in a file."""
    try:
        values = json.loads(file.read_text())
    except ValueError as error:  # of JSON, or of UTF-8
        raise ConfigError(f"{file} is not JSON: {error}") from error
    return config.run_from_json(values)


def described(make: Any) -> Any:
    """ValueErrors from reading the request are the user's to mend; those from training would be ours."""
    try:
        return make()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def folder_of(path: Path | None) -> Path:
    """The folder of photographs."""
    if path is None:
        raise ConfigError("which photographs? Add --data FOLDER, with one sub-folder per identity")
    if not path.is_dir():
        raise ConfigError(f"{path} is not a folder; --data takes one with a sub-folder per identity")
    return path


def device_of(name: str) -> torch.device:
    """By its name; "auto" is a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no GPU here; use --device cpu or auto")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
