"""A recipe with tensor parallelism by the command line: the same data and losses, and one process goes on with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.story.test_train_to_score import work  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


def train(recipe: Path, folder: Path, *settings: str, ranks: int) -> list[tuple[float, float, int]]:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    flags = [f"folder={folder}", "loop.micro_batches=1", "data.lanes=12", *settings]
    arguments = [part for flag in flags for part in ("--set", flag)]
    done = subprocess.run(
        [sys.executable, *command, "-m", "omniloom", "train", str(recipe), *arguments],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return [(line["loss"], line["gradient_norm"], line["learned_tokens"]) for line in lines]


def test_two_ranks_share_matrices_and_one_goes_on(work: Path, tmp_path: Path) -> None:  # noqa: F811
    recipe = work / "sft.yaml"
    expected = train(recipe, tmp_path / "alone", "loop.steps=6", ranks=1)
    cut = ["parallel.tensor=2", "parallel.recompute={language_model: 1}", "data.num_workers=1"]
    found = train(recipe, tmp_path / "cut", "loop.steps=3", *cut, ranks=2)
    gone_on = train(recipe, tmp_path / "cut", "loop.steps=6", ranks=1)
    assert gone_on[:3] == found
    for ours, theirs in zip(gone_on, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
