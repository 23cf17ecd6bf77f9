"""Saving in one process is what was meant: torch's warning that there is only one is not passed on."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from omniloom.train.checkpoint import CheckpointConfig, Checkpoints


@pytest.mark.parametrize("asynchronous", [False, True])
def test_saving_alone_warns_of_nothing(asynchronous: bool, tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=asynchronous))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        checkpoints.save(1, model, optimizer, trainer={}, loader={})
        checkpoints.finish()
    assert [str(each.message) for each in told if "distributed" in str(each.message)] == []
    assert checkpoints.latest() is not None
