"""A recipe with dropout: it is trained otherwise than one without, and a run that was stopped goes on exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from omniloom.tools.main import run

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["--set", "loop.steps=4", "--set", "checkpoint.every_steps=2", "--set", "log.every_steps=1"]
LEARN = ["--set", "parts.language_model.train=true", "--set", "data.validation=null"]
DROPOUT = ["--set", "parts.language_model.dropout={stream: 0.2, words: 0.1}"]


def losses(folder: Path) -> dict[int, tuple[float, float]]:
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return {line["step"]: (line["loss"], line["gradient_norm"]) for line in lines}


def test_a_run_with_dropout_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    talks = []
    for number in range(24):
        Image.new("RGB", (32, 32), (number * 10, 90, 40)).save(tmp_path / f"{number}.png")
        talk = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": f"Colour {number} of 24."}]
        talks.append({"id": str(number), "image": f"{number}.png", "conversations": talk})
    (tmp_path / "talks.json").write_text(json.dumps(talks))
    data = ["--images", str(tmp_path), "--out", str(tmp_path / "set"), "--split-ratio", "1,0,0", "--no-progress"]
    assert run(["convert", "llava", str(tmp_path / "talks.json"), *data]) == 0
    recipe = ["train", "recipes/tiny/pretrain.yaml", *STEPS, *LEARN, "--set", f"data.train={tmp_path / 'set'}"]
    whole, other, without = tmp_path / "whole", tmp_path / "other", tmp_path / "without"
    assert run([*recipe, *DROPOUT, "--set", f"folder={whole}"]) == 0
    shutil.copytree(whole / "step-00000002", other / "step-00000002")
    assert run([*recipe, *DROPOUT, "--set", f"folder={other}"]) == 0
    assert set(losses(other)) == {3, 4}
    assert losses(other).items() <= losses(whole).items()
    assert run([*recipe, "--set", f"folder={without}"]) == 0
    assert losses(without)[1] != losses(whole)[1]
