"""The plan of a run as a person reads it, before weights and data are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omniloom.errors import ConfigError
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.memory import Load, rank_memory
from omniloom.train.dry_run import describe
from omniloom.train.recipe import read_recipe
from tests.contract.tiny_llava import tiny_llava

ROOT = Path(__file__).resolve().parents[2]


def test_gradients_are_whole_until_the_last_micro_batch() -> None:
    model = tiny_llava()
    numbers = sum(parameter.numel() for parameter in model.parameters())
    one, two = (
        rank_memory(model, ParallelConfig(), Load(tokens=64, tiles=2, micro_batches=count), ranks=4) for count in (1, 2)
    )
    assert one.gradients == pytest.approx(numbers, abs=4)
    assert two.gradients == 4 * numbers
    assert one.optimizer == two.optimizer


def test_the_plan_of_a_model_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    recipe = read_recipe(Path("recipes/mistral-7b-clip/sft.yaml"))
    told = describe(recipe, ranks=8, device_bytes=80 * 10**9)
    for part in (
        "20,000 steps on 8 ranks",
        "language_model  7,248,023,552",
        "data cannot be read yet: models/mistral-7b-clip-l-336",
        "32,768 tokens",
        "1 micro-batch of 8 ranks, 262,144 tokens",
        "fits into 80 GB",
        "checkpoint: 89.1 GB",  # 4 bytes of 7.625 billion weights, 8 of 7.321 billion trained ones
        "(an estimate)",
    ):
        assert part in told
    small = describe(recipe, ranks=8, device_bytes=24 * 10**9)
    assert "DOES NOT FIT into 24 GB" in small
    assert "- parallel.tensor cuts matrices" in small
    apart = replace(recipe, parallel=replace(recipe.parallel, tensor=3))
    with pytest.raises(ConfigError, match="3 ranks share a batch; they do not divide 8 ranks"):
        describe(apart, ranks=8)
