"""How far a command is: nothing on standard output, lines in a log, a bar on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from omniloom.tools import progress_bar as module
from omniloom.tools.progress_bar import progress_bar, time_left


@pytest.mark.parametrize(
    ("fraction", "seconds", "text"),
    [(0.5, 10, "10 s left"), (0.25, 60, "3 min 00 s left"), (0.1, 1000, "2 h 30 min left"), (0, 5, ""), (1, 5, "")],
)
def test_time_left(fraction: float, seconds: float, text: str) -> None:
    assert time_left(fraction, seconds) == text


def test_lines_in_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_SECONDS", 0.0)
    with progress_bar("Converting", shown=True) as display:
        display.show(0.5, "7 samples")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Converting: 50%, 7 samples, ")
    assert err.endswith(" left\n")


def test_nothing_when_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_SECONDS", 0.0)
    with progress_bar("Converting", shown=False) as display:
        display.show(0.5, "7 samples")
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal() -> None:
    program = (
        "import time; from omniloom.tools.progress_bar import progress_bar\n"
        "with progress_bar('Converting', shown=True) as display:\n"
        "    time.sleep(0.6); display.show(0.25, '7 samples')"
    )
    master, slave = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", program], check=True, stderr=slave, timeout=60, env={**os.environ, "TERM": "xterm"}
    )
    os.close(slave)
    text = os.read(master, 65_536).decode()
    os.close(master)
    assert "Converting" in text
    assert "25%" in text
    assert "7 samples" in text
