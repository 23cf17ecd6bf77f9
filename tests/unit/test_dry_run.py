"""The plan of a run as a person reads it, before weights and data are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.memory import Load, rank_memory
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.dry_run import checkpoint_bytes, describe
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import counts, freeze
from omniloom.train.recipe import read_recipe
from tests.contract.live_memory import CONFIG, FROZEN
from tests.contract.tiny_llava import tiny_llava

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kept", ["whole", "sharded"])
def test_what_is_kept_of_gradients_between_micro_batches(kept: Literal["whole", "sharded"]) -> None:
    model = tiny_llava()
    numbers = sum(parameter.numel() for parameter in model.parameters())
    config = ParallelConfig(gradients=kept)
    one, two = (rank_memory(model, config, Load(tokens=64, tiles=2, micro_batches=count), ranks=4) for count in (1, 2))
    assert one.of("optimizer") == two.of("optimizer")
    assert one.of("gradients") > numbers  # a quarter, and layers on their way
    if kept == "sharded":
        assert two.of("gradients") == one.of("gradients")
        return
    assert 4 * numbers < two.of("gradients") < 8 * numbers


def test_a_checkpoint_is_as_large_as_told(tmp_path: Path) -> None:
    model = build(CONFIG)
    freeze(model, {"vision_tower": FROZEN})
    optimizer = make_optimizer(model, {}, OptimizerConfig())
    Checkpoints(tmp_path, CheckpointConfig(asynchronous=False)).save(1, model, optimizer, trainer={}, loader={})
    written = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    # A file has a head for each tensor, which weighs in a model this small.
    assert written == pytest.approx(checkpoint_bytes(counts(model)), rel=0.05)


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
        "\n  vision_tower     152 MB        0 B        0 B",  # a frozen part: 303.5 M numbers of 4 bytes, over 8 ranks
        "checkpoint: 89.1 GB",  # 4 bytes of 7.625 billion weights, 8 of 7.321 billion trained ones
        "(an estimate)",
    ):
        assert part in told
    small = describe(recipe, ranks=8, device_bytes=24 * 10**9)
    assert "DOES NOT FIT into 24 GB" in small
    assert "Most is of the language_model: 36.3 GB of 37.7 GB" in small
    assert "the greatest piece: activations of the language_model, 17.1 GB" in small
    assert "- parallel.tensor cuts matrices" in small
    apart = replace(recipe, parallel=replace(recipe.parallel, tensor=3))
    with pytest.raises(ConfigError, match="3 ranks share a batch; they do not divide 8 ranks"):
        describe(apart, ranks=8)
