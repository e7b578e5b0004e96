"""Live progress: bars on a terminal (with rich), now and then a plain line anywhere else, nothing when quiet.

    with Progress() as progress, progress.stage("federating", total=30) as stage:
        stage.advance(1, note="loss 0.41  TAR 0.52")

Everything goes to standard error, so that standard output holds results only.
"""

# ruff: noqa: PLC0415  (rich is optional, so it is imported where it is used)

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, TextIO

from coalface.report.words import clock_text

SECONDS_BETWEEN_LINES = 5.0


class Sink(Protocol):
    """Where progress is shown."""

    def open(self) -> None: ...
    def begin(self, name: str, total: int | None, done: int) -> None: ...
    def update(self, done: int, note: str) -> None: ...
    def end(self, finished: bool) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Stage:
    """A running stage; ``done`` counts its steps."""

    def __init__(self, sink: Sink, done: int = 0) -> None:
        self._sink = sink
        self.done = done

    def advance(self, steps: int = 1, note: str = "") -> None:
        """So many more steps are done; ``note`` is shown beside the bar until the next one."""
        self.done += steps
        self._sink.update(self.done, note)


class Progress:
    """What a run is doing, stage by stage. One stage at a time."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._sink = _sink(quiet, stream or sys.stderr)
        self._running = ""

    def __enter__(self) -> Progress:
        self._sink.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sink.close()

    @contextmanager
    def stage(self, name: str, total: int | None = None, done: int = 0) -> Iterator[Stage]:
        """One stage of ``total`` steps (None: nobody knows), ``done`` of them before a resume."""
        if self._running:
            raise RuntimeError(f"stage {self._running!r} is still running; end it before {name!r} begins")
        self._running = name
        self._sink.begin(name, total, done)
        finished = False
        try:
            yield Stage(self._sink, done)
            finished = True
        finally:
            self._sink.end(finished)
            self._running = ""

    def say(self, text: str) -> None:
        """One line, above the bars."""
        self._sink.say(text)


class Silent:
    """Shows nothing."""

    def open(self) -> None: ...
    def begin(self, name: str, total: int | None, done: int) -> None: ...
    def update(self, done: int, note: str) -> None: ...
    def end(self, finished: bool) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Plain:
    """Lines for a log: one when a stage begins, one when it ends, and between them at most one every few seconds."""

    def __init__(
        self, stream: TextIO, between: float = SECONDS_BETWEEN_LINES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._between, self._clock = stream, between, clock
        self._name, self._note = "", ""
        self._total: int | None = None
        self._done = self._resumed_at = 0
        self._began = self._last = 0.0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def begin(self, name: str, total: int | None, done: int) -> None:
        self._name, self._note, self._total = name, "", total
        self._done = self._resumed_at = done
        self._began = self._last = self._clock()
        self.say(f"{name} …")

    def update(self, done: int, note: str) -> None:
        self._done, self._note = done, note
        now = self._clock()
        if now - self._last >= self._between:
            self._last = now
            self.say(self._line(now - self._began))

    def end(self, finished: bool) -> None:
        took = clock_text(self._clock() - self._began)
        note = f"  {self._note}" if self._note else ""
        self.say(f"{self._name} {self._count()}{note}  {'done in' if finished else 'STOPPED after'} {took}")

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _count(self) -> str:
        return f"{self._done}" if self._total is None else f"{self._done}/{self._total}"

    def _line(self, elapsed: float) -> str:
        parts = [f"{self._name} {self._count()}", self._note, clock_text(elapsed)]
        here = self._done - self._resumed_at  # steps of this sitting: a resumed run must not seem faster than it is
        if self._total is not None and here > 0 and self._done < self._total:
            parts.append(f"about {clock_text(elapsed / here * (self._total - self._done))} left")
        return "  ".join(part for part in parts if part)


class Bars:
    """rich's live bars; finished stages stay on the screen."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=Console(file=stream),
        )
        self._task: Any = None

    def open(self) -> None:
        self._bars.start()

    def close(self) -> None:
        self._bars.stop()

    def begin(self, name: str, total: int | None, done: int) -> None:
        self._task = self._bars.add_task(name.ljust(16), total=total, completed=done, note="")

    def update(self, done: int, note: str) -> None:
        self._bars.update(self._task, completed=done, note=note)

    def end(self, finished: bool) -> None:
        self._bars.stop_task(self._task)
        self._bars.refresh()

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)


def _sink(quiet: bool, stream: TextIO) -> Sink:
    if quiet:
        return Silent()
    if not stream.isatty():
        return Plain(stream)
    try:
        return Bars(stream)
    except ImportError:
        return Plain(stream)
