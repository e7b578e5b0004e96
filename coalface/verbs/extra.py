"""What the verbs for real machines need beyond the core."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path

QUIET = {  # Flower reads these when it is imported
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def needs_deploy() -> None:
    """Refuse with the remedy where Flower or cryptography is missing; Flower must not phone home where it is there."""
    os.environ.update(QUIET)
    for name in ("flwr", "cryptography"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(f"{name} is not installed; pip install 'coalface[deploy]' adds it") from error


def log_to(name: str, file: Path | None, quiet: bool) -> None:
    """Our log to the terminal and to a file; of Flower's, warnings and errors go along, where it speaks at all.

    What NAME.terminal says stays out of the file: it may name people.
    """
    terminal: logging.Handler = logging.NullHandler() if quiet else logging.StreamHandler(sys.stderr)
    handlers = [terminal]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for logger, level in ((logging.getLogger(name), logging.INFO), (logging.getLogger("flwr"), logging.WARNING)):
        logger.handlers = list(handlers)
        logger.setLevel(level)
        logger.propagate = False
    spoken = logging.getLogger(f"{name}.terminal")
    spoken.handlers, spoken.propagate = [terminal], False
