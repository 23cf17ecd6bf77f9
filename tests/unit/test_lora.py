"""Products beside matrices: what they add, what is learned, and that merged they are gone and still there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.lora import DOWN, UP, LoraConfig, add_lora, fresh_factor, is_lora, merge_lora
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.filling import load_model
from omniloom.train.model_files import ModelConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer, set_learning_rate
from omniloom.train.parts import PartConfig, freeze, parameter_groups
from omniloom.train.step import train_step
from tests.contract.tiny_llava import CONFIG, packed_batch, tiny_llava

CPU = torch.device("cpu")
LORA = LoraConfig(rank=4, alpha=8.0)


def scores(model: nn.Module) -> Tensor:
    batch = PackedMicroBatch.of(packed_batch(1), CPU)
    with torch.no_grad():
        found: Tensor = model(batch.input_ids, documents=batch.documents, images=batch.images)
    return found


def learned(steps: int = 2) -> nn.Module:
    """A tiny model after steps in which the language model's products and the projector were learned."""
    model = tiny_llava()
    add_lora(model, {"language_model": LORA})
    parts = {"vision_tower": PartConfig(train=False), "language_model": PartConfig(lora=LORA)}
    freeze(model, parts)
    optimizer = make_optimizer(model, parts, OptimizerConfig())
    set_learning_rate(optimizer, 1e-2)
    for number in range(steps):
        train_step(model, optimizer, [PackedMicroBatch.of(packed_batch(number), CPU)], clip_norm=1.0)
    return model


def test_a_model_begins_as_it_was() -> None:
    model = tiny_llava()
    before = scores(model)
    add_lora(model, {"language_model": LORA, "vision_tower": LoraConfig(matrices=("q_proj", "fc1"))})
    assert torch.equal(scores(model), before)


def test_a_product_is_added_by_hand() -> None:
    linear = nn.Linear(3, 2)
    holder = nn.ModuleDict({"part": nn.ModuleDict({"q_proj": linear})})
    add_lora(holder, {"part": LoraConfig(rank=1, alpha=3.0)})
    with torch.no_grad():
        getattr(linear, DOWN).copy_(torch.tensor([[1.0, 0.0, 2.0]]))
        getattr(linear, UP).copy_(torch.tensor([[1.0], [-1.0]]))
    inputs = torch.tensor([[1.0, 5.0, 0.5]])
    expected = inputs @ linear.weight.T + linear.bias + 3.0 * torch.tensor([[2.0, -2.0]])
    torch.testing.assert_close(linear(inputs), expected)
    merge_lora(holder)
    torch.testing.assert_close(linear(inputs), expected)
    assert [name for name, _ in linear.named_parameters()] == ["weight", "bias"]


def test_only_products_are_learned_and_merged_they_stay() -> None:
    plain, model = dict(tiny_llava().named_parameters()), learned()
    for name, value in model.named_parameters():
        if name.startswith("language_model"):
            assert value.requires_grad == is_lora(name)
            assert is_lora(name) or torch.equal(value, plain[name])
    groups = {group["name"] for group in parameter_groups(model, {}, weight_decay=0.0)}
    assert groups == {"projector.decay", "projector.no_decay", "language_model.decay"}
    before = scores(model)
    assert not torch.allclose(before, scores(tiny_llava()), atol=1e-4)
    merge_lora(model)
    torch.testing.assert_close(scores(model), before, rtol=1e-4, atol=1e-5)
    assert {name for name, _ in model.named_parameters()} == plain.keys()


def test_a_checkpoint_is_opened_merged(tmp_path: Path) -> None:
    model = learned()
    parts = {"vision_tower": {"train": False}, "language_model": {"lora": vars_of(LORA)}}
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False))
    optimizer = make_optimizer(model, {}, OptimizerConfig())
    checkpoints.save(7, model, optimizer, trainer={"recipe": {"parts": parts}}, loader={})
    opened = load_model(ModelConfig(folder="nowhere", start=str(tmp_path)), CONFIG, seed=0)
    torch.testing.assert_close(scores(opened), scores(model), rtol=1e-4, atol=1e-5)
    assert not any(is_lora(name) for name, _ in opened.named_parameters())


def vars_of(config: LoraConfig) -> dict[str, object]:
    return {"rank": config.rank, "alpha": config.alpha, "matrices": list(config.matrices)}


def test_factors_begin_alike_on_any_mesh() -> None:
    name = f"language_model.layers.0.mlp.up_proj.{DOWN}"
    first = fresh_factor(name, (4, 9), seed=1)
    assert torch.equal(first, fresh_factor(name, (4, 9), seed=1))
    assert not torch.equal(first, fresh_factor(name, (4, 9), seed=2))
    assert not torch.equal(first, fresh_factor(name.replace("up_proj", "gate_proj"), (4, 9), seed=1))
    assert first.abs().max() <= 1 / 3  # one over the root of nine inputs
    assert not fresh_factor(name.replace(DOWN, UP), (9, 4), seed=1).any()


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(ConfigError, match="'tower' found; one of vision_tower, projector, language_model expected"):
        add_lora(tiny_llava(), {"tower": LORA})
    with pytest.raises(ConfigError, match=r"parts.projector.lora.matrices: .* found; some of fc1, fc2 expected"):
        add_lora(tiny_llava(), {"projector": LORA})
    with pytest.raises(ConfigError, match="rank 0, alpha 32"):
        LoraConfig(rank=0)
