"""``omniloom generate`` killed at random instants: the answers in the end are those of a run that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.story.test_generate_command import DRAWN, ITEMS, make_benchmark

# Imports are made once, and each run is a fork. Every batch takes a while, and a batch's lines are written in two
# pieces, so that kills hit the middle of a line.
SLOWLY = """
import json, os, sys, time
from pathlib import Path
from omniloom.evaluate import answering
from omniloom.tools.main import run
from omniloom.train import trained

answer, opened = answering.agreed_answers, Path.open

def slowly(*words, **more):
    time.sleep(0.05)
    return answer(*words, **more)

def in_pieces(self, mode="r", **more):
    file = opened(self, mode, **more)
    if mode == "a":
        write = file.write
        def halves(text):
            write(text[: len(text) // 2]); file.flush(); time.sleep(0.05)
            return write(text[len(text) // 2 :])
        file.write = halves
    return file

answering.agreed_answers, Path.open = slowly, in_pieces
for line in sys.stdin:
    child = os.fork()
    if not child:
        os._exit(run(json.loads(line)))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
KILLS = 20


class Runner:
    """Runs commands in forks of one process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, words: list[str]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self.told()

    def told(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def runner() -> Iterator[Runner]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SLOWLY], text=True, **pipes) as process:  # type: ignore[call-overload]
        yield Runner(process)
        process.stdin.close()


@pytest.mark.slow
def test_killed_at_random_instants(tmp_path: Path) -> None:
    command = [*make_benchmark(tmp_path), *DRAWN, "--batch-size", "1", "--output-path"]
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    draw = random.Random(11)
    cut, hit = 0, 0
    with runner() as runs:
        runs.start([*command, str(whole)])
        assert runs.told() == 0
        for _ in range(KILLS):
            before = killed.stat().st_size if killed.exists() else 0
            child = runs.start([*command, str(killed)])
            # A half line of the last run is taken away first; then the file grows.
            while (killed.stat().st_size if killed.exists() else 0) == before and Path(f"/proc/{child}").exists():
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.15))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            hit += runs.told() == -signal.SIGKILL
            data = killed.read_bytes()
            cut += not data.endswith(b"\n")
            for line in data[: data.rfind(b"\n") + 1].splitlines():
                json.loads(line)
            if hit >= ITEMS - 2 and len(data.splitlines()) >= ITEMS - 1:
                killed.write_bytes(b"".join(data.splitlines(keepends=True)[:1]))  # or nothing is left to kill
        runs.start([*command, str(killed)])
        assert runs.told() == 0
    assert hit >= KILLS - 4
    assert cut, "no kill hit the middle of a line; make the pauses longer"
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in (whole, killed)]
    assert len(rows[1]) == ITEMS
    assert rows[1] == rows[0]
