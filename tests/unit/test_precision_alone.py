"""A process alone in bfloat16: the loss is taken in it, parameters and gradients stay in float32."""

from __future__ import annotations

import pytest
import torch

from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.layout import Ranks
from omniloom.parallel.plan import parallelize
from omniloom.train.batches import PackedMicroBatch
from tests.contract.tiny_llava import packed_batch, tiny_llava

CPU = torch.device("cpu")


def loss_and_gradients(precision: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model = parallelize(tiny_llava(), ParallelConfig(precision=precision), Ranks())  # type: ignore[arg-type]
    loss = PackedMicroBatch.of(packed_batch(1), CPU).loss(model).total
    loss.backward()
    return loss.detach(), {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def test_bfloat16_is_near_float32_and_is_not_it() -> None:
    (exact, gradients), (rounded, others) = loss_and_gradients("float32"), loss_and_gradients("bfloat16")
    assert rounded.item() == pytest.approx(exact.item(), rel=2e-2)
    assert rounded.item() != exact.item()
    assert rounded.dtype == torch.float32
    assert gradients.keys() == others.keys()
    for name, gradient in others.items():
        assert gradient.dtype == torch.float32, name
        assert torch.allclose(gradient, gradients[name], atol=0.05 * float(gradients[name].abs().max()) + 1e-3), name
