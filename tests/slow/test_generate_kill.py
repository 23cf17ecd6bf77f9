"""``omniloom generate`` killed at random instants: the answers in the end are those of a run that was not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.story.test_generate_command import DRAWN, ITEMS, make_benchmark

# Every batch takes a while, and a batch's lines are written in two pieces, so that kills hit the middle of a line.
SLOWLY = """
import sys, time
from pathlib import Path
from omniloom.evaluate import answering
from omniloom.tools.main import run

answer, batches = answering.answer_prompts, answering.batches_by_tokens

def slowly(*words, **more):
    time.sleep(0.05)
    return answer(*words, **more)

opened = Path.open

def in_pieces(self, mode="r", **more):
    file = opened(self, mode, **more)
    if mode == "a":
        write = file.write
        def halves(text):
            write(text[: len(text) // 2]); file.flush(); time.sleep(0.05)
            return write(text[len(text) // 2 :])
        file.write = halves
    return file

answering.answer_prompts, Path.open = slowly, in_pieces
sys.exit(run(sys.argv[1:]))
"""
KILLS = 20


@pytest.mark.slow
def test_killed_at_random_instants(tmp_path: Path) -> None:
    command = [*make_benchmark(tmp_path), *DRAWN, "--batch-size", "1", "--output-path"]
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    subprocess.run([sys.executable, "-c", SLOWLY, *command, str(whole)], check=True, timeout=120)
    draw = random.Random(11)
    cut, hit = 0, 0
    for _ in range(KILLS):
        before = killed.stat().st_size if killed.exists() else 0
        running = subprocess.Popen([sys.executable, "-c", SLOWLY, *command, str(killed)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        # A half line of the last run is taken away first; then the file grows.
        while time.monotonic() < deadline and running.poll() is None:
            if killed.exists() and killed.stat().st_size != before:
                break
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.15))
        hit += running.poll() is None
        running.kill()
        running.wait()
        data = killed.read_bytes()
        cut += not data.endswith(b"\n")
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            json.loads(line)
    assert hit >= KILLS - 2
    assert cut, "no kill hit the middle of a line; make the pauses longer"
    subprocess.run([sys.executable, "-c", SLOWLY, *command, str(killed)], check=True, timeout=120)
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in (whole, killed)]
    assert len(rows[1]) == ITEMS
    assert rows[1] == rows[0]
