"""Compiled layers, alone and with activations computed again: the losses of plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omniloom.parallel.checkpointing import compile_layers, recompute_layers
from omniloom.train.batches import PackedMicroBatch
from tests.contract.tiny_llava import packed_batch, tiny_llava

pytestmark = pytest.mark.slow


def losses(model: nn.Module) -> list[float]:
    """Of steps on batches of several lengths, with and without images."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for number in range(4):
        loss = PackedMicroBatch.of(packed_batch(number, documents=1 + number), torch.device("cpu")).loss(model).total
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("recomputed", [False, True])
def test_compiled_layers_give_the_losses_of_plain_ones(recomputed: bool) -> None:
    model = tiny_llava()
    compile_layers(model)
    recompute_layers(model, {"language_model": 1, "vision_tower": 1} if recomputed else {})
    torch._dynamo.utils.counters.clear()
    assert losses(model) == pytest.approx(losses(tiny_llava()), rel=1e-4)
    # One program for the towers' layers, and one on either side of the decoder's attention, though lengths differ.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 8
