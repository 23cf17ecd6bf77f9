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


def train(folder: Path, data: Path, *, ranks: int) -> list[dict[str, Any]]:  # noqa: F811
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    flags = (
        f"folder={folder}", f"data.train={data}", f"data.validation={data}", "data.validation_split_part=train",
        "data.lanes=12", "data.pack_tokens=null", "data.batch_size=5", "data.global_batch_size=10", "loop.steps=2",
        "model.start=null", "schedule={peak: 0.0}",
        "model.fresh=[vision_tower, projector, language_model]", "evaluation.every_steps=1", "evaluation.batches=100",
        "hang.after_seconds=90", "hang.end=true",
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
