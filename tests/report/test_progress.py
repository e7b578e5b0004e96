from __future__ import annotations

import io
import sys

import pytest

from coalface.report.progress import Bars, Plain, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_every_few_seconds_only() -> None:
    out, clock = io.StringIO(), Clock()
    plain = Plain(out, between=5.0, clock=clock)
    plain.begin("federating", 1000, 0)
    for done in range(1, 1001):
        clock.now += 1 / 64  # 15.6 seconds in all
        plain.update(done, f"loss {1 / done:.2f}")
    plain.end(finished=True)
    lines = out.getvalue().splitlines()
    assert lines[0] == "federating …"
    assert lines[-1] == "federating 1000/1000  loss 0.00  done in 0:15"
    assert lines[1:-1] == [
        "federating 320/1000  loss 0.00  0:05  about 0:10 left",
        "federating 640/1000  loss 0.00  0:10  about 0:05 left",
        "federating 960/1000  loss 0.00  0:15  about 0:00 left",
    ]


def test_remaining_time_after_a_resume_counts_new_steps_only() -> None:
    out, clock = io.StringIO(), Clock()
    plain = Plain(out, between=5.0, clock=clock)
    plain.begin("federating", 100, 80)
    clock.now += 10
    plain.update(90, "")
    assert out.getvalue().splitlines()[-1] == "federating 90/100  0:10  about 0:10 left"


def test_stages_and_words_on_a_pipe() -> None:
    out = io.StringIO()
    with Progress(stream=out) as progress:
        progress.say("500 faces drawn")
        with progress.stage("pre-training", total=2) as stage:
            stage.advance(1)
            stage.advance(1, note="loss 0.41")
        with progress.stage("evaluating") as stage:
            stage.advance(3)
    assert out.getvalue().splitlines() == [
        "500 faces drawn",
        "pre-training …",
        "pre-training 2/2  loss 0.41  done in 0:00",
        "evaluating …",
        "evaluating 3  done in 0:00",
    ]


def test_a_stage_that_fails_says_where() -> None:
    out = io.StringIO()
    with Progress(stream=out) as progress:
        with pytest.raises(KeyboardInterrupt), progress.stage("federating", total=30, done=10) as stage:
            stage.advance(2)
            raise KeyboardInterrupt
        with progress.stage("evaluating", total=1):  # the next one may begin
            pass
    assert "federating 12/30  STOPPED after 0:00" in out.getvalue()


def test_one_stage_at_a_time() -> None:
    with (
        Progress(quiet=True) as progress,
        progress.stage("federating"),
        pytest.raises(RuntimeError, match="'federating' is still running"),
        progress.stage("evaluating"),
    ):
        pass


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=True) as progress, progress.stage("federating", total=2) as stage:
        stage.advance(1, note="loss 0.41")
        progress.say("hello")
        assert stage.done == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(stream=out) as progress:
        assert isinstance(progress._sink, Bars)
        with progress.stage("[federating]", total=4) as stage:
            stage.advance(4, note="TAR [0.52]")
            progress.say("a [line]")
    assert all(text in out.getvalue() for text in ("[federating]", "4/4", "TAR [0.52]", "a [line]"))


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, module, None)
    assert isinstance(Progress(stream=Terminal())._sink, Plain)
