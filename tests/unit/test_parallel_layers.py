"""Activations that are computed again change nothing but what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.parallel.checkpointing import recompute_layers
from omniloom.parallel.config import ParallelConfig
from omniloom.train.batches import PackedMicroBatch
from tests.contract.tiny_llava import packed_batch, tiny_llava


def gradients(model: nn.Module) -> tuple[Tensor, dict[str, Tensor | None], int]:
    """The loss of a batch, all gradients, and the numbers kept for the backward pass."""
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = PackedMicroBatch.of(packed_batch(1), torch.device("cpu")).loss(model).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}, kept


@pytest.mark.parametrize(
    "every",
    [{"language_model": 1}, {"vision_tower": 1}, {"language_model": 2, "vision_tower": 1}],
    ids=["language", "vision", "both"],
)
def test_losses_and_gradients_stay_to_the_last_bit(every: dict[str, int]) -> None:
    plain, again = tiny_llava(), tiny_llava()
    recompute_layers(again, every)
    expected_loss, expected, expected_kept = gradients(plain)
    loss, found, kept = gradients(again)
    assert torch.equal(loss, expected_loss)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        ours = found[name]
        assert ours is gradient is None or (ours is not None and gradient is not None and torch.equal(ours, gradient))
    assert kept < expected_kept


def test_only_each_nth_layer_is_computed_again() -> None:
    calls: list[int] = []
    model = tiny_llava()
    layers = model.language_model.get_submodule("layers")
    for number, layer in enumerate(layers.children()):
        layer.register_forward_hook(lambda *_, number=number: calls.append(number))
        layer.get_submodule("attention").register_forward_hook(lambda *_, number=number: calls.append(10 + number))
    recompute_layers(model, {"language_model": 2})
    gradients(model)
    assert calls == [10, 0, 11, 1, 10]


def test_nothing_is_done_at_none() -> None:
    model = tiny_llava()
    recompute_layers(model, {"language_model": 0})
    assert gradients(model)[2] == gradients(tiny_llava())[2]


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ({"projector": 1}, "'projector' found; one of vision_tower, language_model expected"),
        ({"language_model": -1}, "language_model: -1 found; at least 0 expected"),
    ],
)
def test_what_does_not_fit_is_told(every: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recompute_layers(tiny_llava(), every)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compile": True, "tensor": 2}, "compile together with tensor 2 found. .*share no compiled program"),
        ({"gradients": "sharded", "pipeline": 2}, "Stages sum gradients once a step"),
        ({"sequence": True}, "sequence without tensor found"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ParallelConfig(**settings)
