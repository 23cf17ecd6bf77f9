"""A run with LoRA as an adapter: PEFT puts it onto transformers' model, which then says what ours says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner

from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.documents import Documents
from omniloom.model.lora import add_lora
from omniloom.tools.weights import command
from omniloom.train.adapter import adapter_of
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.filling import fill_model
from omniloom.train.model_files import ModelConfig, model_config
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import freeze, lora_of
from omniloom.train.recipe import read_recipe

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

TEXT = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
TOWER = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
LORA = {"rank": 3, "alpha": 7.0, "matrices": ["q_proj", "v_proj", "down_proj"]}
TOWER_LORA = {"rank": 2, "alpha": 5.0, "matrices": ["fc1", "o_proj"]}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**TOWER),
        image_token_index=63,
    )
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def trained(base: Path, folder: Path, parts: dict[str, Any]) -> Any:
    """A run's folder with a checkpoint, and the model that is in it, with something in all that is trained."""
    settings = {
        "folder": str(folder),
        "model": {"folder": str(base), "tokenizer": "bytes"},
        "data": {"train": "none"},
        "loop": {"steps": 7},
        "parts": parts,
    }
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(settings))
    recipe = read_recipe(folder / "recipe.yaml")
    config = model_config(recipe.model)
    model = build(config)
    add_lora(model, lora_of(recipe.parts))
    freeze(model, recipe.parts)
    fill_model(model, recipe.model, config, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    optimizer = make_optimizer(model, recipe.parts, OptimizerConfig())
    checkpoints = Checkpoints(folder, CheckpointConfig(asynchronous=False))
    checkpoints.save(7, model, optimizer, trainer={"recipe": settings}, loader={})
    return model


def scores(ours: Any, theirs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    ids, images = torch.tensor([1, 63, 63, 63, 63, 5, 9, 2]), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        found = ours(ids, documents=Documents((0, len(ids))), images=images)
        said = theirs(input_ids=ids[None], pixel_values=images, attention_mask=torch.ones(1, len(ids)))
    return found, said.logits[0]


@pytest.mark.parametrize(
    "parts",
    [
        {"vision_tower": {"train": False}, "language_model": {"lora": LORA}},
        {"vision_tower": {"lora": TOWER_LORA}, "projector": {"train": False}, "language_model": {"lora": LORA}},
        {"language_model": {"lora": LORA}},
    ],
    ids=["projector-whole", "tower-of-another-rank", "tower-and-projector-whole"],
)
def test_peft_gives_the_scores_of_the_run(base: Path, tmp_path: Path, parts: dict[str, Any]) -> None:
    ours = trained(base, tmp_path / "run", parts)
    told = CliRunner().invoke(command, ["adapter", str(tmp_path / "run"), str(tmp_path / "adapter")])
    assert told.exit_code == 0, told.output
    plain = transformers.LlavaForConditionalGeneration.from_pretrained(base)
    before = scores(ours, plain)
    assert not torch.allclose(*before, atol=1e-2)
    theirs = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter")
    found, expected = scores(ours, theirs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(base)
    assert (settings["r"], settings["lora_alpha"]) in ((3, 7.0), (2, 5.0))


def test_a_run_without_lora_is_told(base: Path, tmp_path: Path) -> None:
    trained(base, tmp_path / "run", {"vision_tower": {"train": False}})
    with pytest.raises(ConfigError, match="a run without LoRA"):
        adapter_of(tmp_path / "run")
    with pytest.raises(ConfigError, match="no run with a complete checkpoint"):
        adapter_of(tmp_path)


def test_checkpoints_that_lie_elsewhere_are_found(base: Path, tmp_path: Path) -> None:
    trained(base, tmp_path / "run", {"language_model": {"lora": LORA}})
    before = adapter_of(tmp_path / "run").tensors
    (tmp_path / "run/step-00000007").rename(tmp_path / "step-00000007")
    recipe = (tmp_path / "run/recipe.yaml").read_text()
    (tmp_path / "run/recipe.yaml").write_text(f"{recipe}checkpoint: {{place: {tmp_path}}}\n")
    after = adapter_of(tmp_path / "run").tensors
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert ModelConfig(folder=str(base), start=str(tmp_path / "run")).start_checkpoint() == tmp_path / "step-00000007"


def test_another_run_starts_from_what_was_learned(base: Path, tmp_path: Path) -> None:
    """Products are added to the matrices, and new factors begin beside them."""
    ours = trained(base, tmp_path / "run", {"vision_tower": {"train": False}, "language_model": {"lora": LORA}})
    settings = replace(read_recipe(tmp_path / "run" / "recipe.yaml").model, start=str(tmp_path / "run"))
    model = build(model_config(settings))
    fill_model(model, settings, model_config(settings), seed=0)
    found, expected = scores(model, _Theirs(ours))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


class _Theirs:
    """A model of ours, asked as transformers' is."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *, input_ids: torch.Tensor, pixel_values: torch.Tensor, **_: Any) -> Any:
        documents = Documents((0, input_ids.shape[1]))
        self.logits = self._model(input_ids[0], documents=documents, images=pixel_values)[None]
        return self
