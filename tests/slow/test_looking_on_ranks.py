"""What looks on while two ranks train: held-out losses are those of one process, and none waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.story.test_tiny_recipes import ROOT, data  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


def train(folder: Path, data: Path, *more: str, ranks: int) -> list[dict[str, Any]]:  # noqa: F811
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    flags = (
        f"folder={folder}", f"data.train={data}", f"data.validation={data}", "data.validation_split_part=train",
        "data.lanes=12", "data.pack_tokens=null", "data.batch_size=5", "data.global_batch_size=10", "loop.steps=2",
        "model.start=null", "schedule={peak: 0.0}",
        "model.fresh=[vision_tower, projector, language_model]", "evaluation.every_steps=1", "evaluation.batches=100",
        "hang.after_seconds=90", "hang.end=true", *more,
    )  # fmt: skip
    arguments = [part for flag in flags for part in ("--set", flag)]
    done = subprocess.run(
        [sys.executable, *command, "-m", "omniloom", "train", "recipes/tiny/sft.yaml", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_two_ranks_measure_and_answer_as_one(data: Path, tmp_path: Path) -> None:  # noqa: F811
    # 24 samples in batches of 5: one rank has three of them, the other two and one that only evens out the steps.
    alone = train(tmp_path / "one", data, ranks=1)
    both = train(tmp_path / "two", data, ranks=2)
    for ours, expected in zip(both, alone, strict=True):
        assert ours["validation_loss"] == pytest.approx(expected["validation_loss"], rel=1e-5)
        assert ours["validation_tokens"] == expected["validation_tokens"] > 24
    rows = [(tmp_path / run / "samples/step-00000002.jsonl").read_text().splitlines() for run in ("one", "two")]
    answers = [[json.loads(row)["answer"] for row in each] for each in rows]
    assert len(answers[1]) == 2
    assert answers[1] == answers[0]


def test_ranks_that_share_a_model_answer_as_one(data: Path, tmp_path: Path) -> None:  # noqa: F811
    few = ("evaluation.sample_tokens=6", "evaluation.every_steps=2")
    train(tmp_path / "one", data, *few, ranks=1)
    meshes = {
        "sequence": ("parallel={tensor: 2, sequence: true}",),
        "context": ("parallel={context: 2, context_form: gather}",),
        "stages": ("parallel={pipeline: 2}", "data.batch_size=1", "data.global_batch_size=10", "evaluation.batches=1"),
    }
    for name, settings in meshes.items():
        train(tmp_path / name, data, *few, *settings, ranks=2)
    alone, *found = (
        [json.loads(row)["answer"] for row in (tmp_path / run / "samples/step-00000002.jsonl").read_text().splitlines()]
        for run in ("one", *meshes)
    )
    assert len(alone) == 2
    assert any(alone)
    assert all(answers == alone for answers in found), (alone, found)
