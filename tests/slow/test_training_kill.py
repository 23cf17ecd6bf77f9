"""Runs that are killed outright, by the command line: the losses of a run that was left alone, to the last bit."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from omniloom.train.checkpoint import complete_checkpoints
from tests.story.test_train_to_score import work  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

STEPS, KILLS = 24, 3


def command(recipe: Path, folder: Path, *, ranks: int) -> list[str]:
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    flags = (
        f"folder={folder}", f"loop.steps={STEPS}", "data.lanes=12", "data.num_workers=1", "checkpoint.every_steps=2",
        "checkpoint.asynchronous=true",
    )  # fmt: skip
    settings = [part for flag in flags for part in ("--set", flag)]
    return [sys.executable, *several, "-m", "omniloom", "train", str(recipe), *settings]


def lines(folder: Path) -> list[str]:
    path = folder / "steps.jsonl"
    return path.read_text().splitlines() if path.is_file() else []


def losses(folder: Path) -> list[tuple[int, float, float]]:
    told = map(json.loads, lines(folder))
    return [(line["step"], line["loss"], line["gradient_norm"]) for line in told]


def kill_after(recipe: Path, folder: Path, steps: int, *, ranks: int, draw: random.Random) -> None:
    """Start a run, and kill all of its processes at some instant after it has told of so many steps."""
    with subprocess.Popen(command(recipe, folder, ranks=ranks), stderr=subprocess.PIPE, text=True) as job:
        deadline = time.monotonic() + 120
        while len(lines(folder)) < steps and job.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.1))
        for process in (job, *psutil.Process(job.pid).children(recursive=True)):  # ranks have sessions of their own
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                process.kill()
        job.communicate()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_goes_on_as_if_it_had_not_been(work: Path, tmp_path: Path, ranks: int) -> None:  # noqa: F811
    recipe, draw = work / "sft.yaml", random.Random(ranks)
    folders = {name: tmp_path / name for name in ("whole", "killed")}
    subprocess.run(command(recipe, folders["whole"], ranks=ranks), check=True, capture_output=True, timeout=120)
    for kill in range(KILLS):
        kill_after(recipe, folders["killed"], 4 + 5 * kill, ranks=ranks, draw=draw)
    assert complete_checkpoints(folders["killed"])
    assert len(lines(folders["killed"])) < STEPS
    subprocess.run(command(recipe, folders["killed"], ranks=ranks), check=True, capture_output=True, timeout=120)
    assert losses(folders["killed"]) == losses(folders["whole"])
    assert max(complete_checkpoints(folders["killed"])) == STEPS
    assert not list(folders["killed"].glob("*.partial"))
