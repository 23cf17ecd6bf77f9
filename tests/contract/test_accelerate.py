"""A loader under a real Accelerator: saved and loaded by it; gradients accumulate as with a prepared DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.errors import ConfigError, StateError
from tests.contract.numbers_leaf import FINITE, numbers, told

pytest.importorskip("accelerate", reason="accelerate is not installed")
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

from omniloom.integrations.accelerate import AcceleratedLoader, prepare_loader


@pytest.fixture(autouse=True)
def _new_accelerator() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


def batches(loader: Any, count: int | None = None) -> list[Any]:
    return [told(batch) for batch in islice(loader, count)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_save_state_and_load_state_keep_the_place(packed: bool, workers: int, tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    loader = prepare_loader(accelerator, numbers(packed=packed, num_workers=workers))
    batches(loader, 7)
    accelerator.save_state(str(tmp_path))
    expected = batches(loader, 9)
    accelerator.load_state(str(tmp_path))
    assert batches(loader, 9) == expected
    loader.loader.close()
    assert batches(AcceleratedLoader(loader.loader, accelerator), 0) == []


def test_what_comes_is_what_the_loader_gives() -> None:
    job = batches(numbers(), 12)
    loader = prepare_loader(Accelerator(cpu=True), numbers())
    assert batches(loader, 5) + batches(loader, 1) + batches(loader, 6) == job  # a break loses nothing


@pytest.mark.parametrize("length", [5, 0])
def test_gradients_accumulate_as_with_a_prepared_dataloader(length: int) -> None:
    """The last batch of a pass makes a step, full or not: the same steps as torch's DataLoader of as many batches."""
    dataset = numbers(virtual_epoch_length=length) if length else numbers(plan=FINITE)
    count = length or len(dataset)

    def synced(loader: Any) -> list[bool]:
        found = []
        for _ in range(2 if length else 1):  # later passes over finite data may have another number of batches
            for _ in loader:
                with accelerator.accumulate(model):
                    found.append(accelerator.sync_gradients)
        return found

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    theirs = accelerator.prepare(torch.utils.data.DataLoader(list(range(count)), batch_size=1))
    assert synced(prepare_loader(accelerator, dataset)) == synced(theirs)


def test_a_place_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    whole = [batches(numbers(virtual_epoch_length=4), 4)]
    loader = prepare_loader(accelerator, numbers(virtual_epoch_length=4))
    for number, batch in enumerate(loader):
        assert told(batch) == whole[0][number]
        if number == 2:
            accelerator.save_state(str(tmp_path))
    following = batches(loader)
    accelerator.load_state(str(tmp_path))
    assert batches(loader) == whole[0][3:]
    assert batches(loader) == following


def test_refused() -> None:
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ConfigError, match="for 2 ranks, and Accelerate runs 1 processes"):
        prepare_loader(accelerator, numbers(rank=0, world_size=2))
    with pytest.raises(StateError, match=r"no 'omniloom_states' among \['weights'\]"):
        prepare_loader(accelerator, numbers()).load_state_dict({"weights": 1})
