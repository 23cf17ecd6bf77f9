"""Benchmarks that ranks score together while they train have the answers of one process, and none waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.story.test_train_to_score import work  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow
MESHES = {
    "data": (),
    "tensor": ("parallel={tensor: 2, sequence: true}",),
    "stages": ("parallel={pipeline: 2}",),
}


def answers_of(folder: Path, work: Path, *settings: str, ranks: int) -> list[str]:  # noqa: F811
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    benchmark = f"{{truth: {work}/test.json, images: {work}/images, items: 7, new_tokens: 3}}"
    flags = (
        f"folder={folder}", "loop.steps=2", "data.lanes=12", "schedule={peak: 0.0}", "data.batch_size=1",
        "data.global_batch_size=2", f"evaluation={{benchmarks: {{ai2d: {benchmark}}}}}", "hang.after_seconds=90",
        "hang.end=true", *settings,
    )  # fmt: skip
    arguments = [part for flag in flags for part in ("--set", flag)]
    done = subprocess.run(
        [sys.executable, *command, "-m", "omniloom", "train", str(work / "sft.yaml"), *arguments],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert "score/ai2d" in rows[-1]
    result = json.loads((folder / "benchmarks/ai2d/step-00000002.json").read_text())
    return [row["text"] for row in result["answered_items"]]


@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_answer_as_one(mesh: str, work: Path, tmp_path: Path) -> None:  # noqa: F811
    alone = answers_of(tmp_path / "one", work, ranks=1)
    assert len(alone) == 7
    assert any(alone)
    assert answers_of(tmp_path / "two", work, *MESHES[mesh], ranks=2) == alone
