"""Memory that a run is told to need, beside what torch keeps when it is done; and the plan as a person reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from omniloom.conversion.config_json import config_from_json
from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.documents import Documents
from omniloom.parallel.config import ParallelConfig
from omniloom.train.dry_run import describe
from omniloom.train.flops import Work
from omniloom.train.memory import RankMemory, rank_memory
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import PartConfig, counts, freeze
from omniloom.train.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[2]
TINY = config_from_json(ROOT / "recipes/models/tiny.json")
WORK = Work(documents=(90, 60), learned_tokens=40, tiles=4)
FROZEN = {"vision_tower": PartConfig(train=False)}
MISTRAL = config_from_json(ROOT / "recipes/models/mistral-7b-clip-l-336.json")


def kept_by_torch(parts: dict[str, PartConfig]) -> int:
    """Bytes that a real forward pass keeps, weights left out."""
    model = build(TINY)
    freeze(model, parts)
    ids = torch.randint(0, 200, (sum(WORK.documents),))
    ids[:64] = TINY.image_token_id  # type: ignore[union-attr]
    labels = torch.full_like(ids, -100)
    labels[100:140] = 7
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        documents = Documents.of_lengths(WORK.documents)
        loss = model.loss(ids, labels=labels, documents=documents, images=torch.randn(4, 3, 56, 56))  # type: ignore[operator]
    del loss
    return sum(kept.values())


def memory_of(parts: dict[str, PartConfig], **settings: object) -> RankMemory:
    model = build(TINY, device="meta")
    freeze(model, parts)
    given = {"ranks": 1, "micro_batches": 1, "parallel": ParallelConfig()} | settings
    return rank_memory(TINY, counts(model), work=WORK, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [{}, FROZEN, FROZEN | {"language_model": PartConfig(train=False)}])
def test_activations_are_those_that_torch_keeps(parts: dict[str, PartConfig]) -> None:
    told = sum(part.activations for part in memory_of(parts).parts.values())
    if parts.get("language_model", PartConfig()).train:
        told += 272 * 48 * 4  # the gradient of the head, which the loss makes in its forward pass
    assert told == pytest.approx(kept_by_torch(parts), rel=0.15)


def test_weights_gradients_and_states_are_those_of_the_optimizer() -> None:
    model = build(TINY)
    freeze(model, FROZEN)
    optimizer = make_optimizer(model, FROZEN, OptimizerConfig())
    states = sum(state[name].nbytes for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq"))
    memory = memory_of(FROZEN)
    assert sum(part.optimizer for part in memory.parts.values()) == states
    assert sum(part.weights for part in memory.parts.values()) == sum(value.nbytes for value in model.parameters())
    assert memory.parts["vision_tower"].gradients == 0


def test_what_each_way_of_sharing_saves() -> None:
    one = memory_of(FROZEN, ranks=2).parts["language_model"]
    four = memory_of(FROZEN, ranks=8).parts["language_model"]
    assert (four.weights, four.optimizer, four.gradients) == (one.weights // 4, one.optimizer // 4, one.gradients // 4)
    summed = memory_of(FROZEN, ranks=8, micro_batches=2).parts["language_model"]
    assert summed.gradients == 8 * four.gradients, "until the last micro-batch gradients are whole"
    cut = memory_of(FROZEN, ranks=8, parallel=ParallelConfig(tensor=2)).parts["language_model"]
    assert cut.weights == four.weights
    assert cut.activations < 0.75 * four.activations
    again = memory_of(FROZEN, ranks=8, parallel=ParallelConfig(recompute={"language_model": 1})).parts["language_model"]
    assert again.activations < 0.6 * four.activations
    replicas = memory_of(FROZEN, ranks=8, parallel=ParallelConfig(replicas=2)).parts["language_model"]
    assert replicas.weights == 2 * four.weights
    stages = memory_of(FROZEN, ranks=8, micro_batches=4, parallel=ParallelConfig(pipeline=2)).parts
    assert stages["language_model"].weights == four.weights


def test_a_frozen_language_model_keeps_less_but_not_nothing() -> None:
    model = build(MISTRAL, device="meta")
    work = Work(documents=(700,) * 8, learned_tokens=300, tiles=8)
    made = []
    for parts in ({}, {"language_model": PartConfig(train=False)}):
        freeze(model, FROZEN | parts)
        memory = rank_memory(
            MISTRAL, counts(model), parallel=ParallelConfig(precision="bfloat16"), ranks=8, work=work, micro_batches=1  # type: ignore[arg-type]
        )  # fmt: skip
        made.append(memory.parts["language_model"])
    assert made[1].gradients == made[1].optimizer == 0
    assert 0 < made[1].activations < made[0].activations
    # Seven billion weights in float32 over eight ranks, and twice that for Adam.
    assert made[0].weights == pytest.approx(7.248e9 * 4 / 8, rel=1e-3)
    assert made[0].optimizer == pytest.approx(7.248e9 * 8 / 8, rel=1e-3)


def test_the_plan_of_a_model_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    recipe = read_recipe(Path("recipes/mistral-7b-clip/sft.yaml"))
    told = describe(recipe, ranks=8, device_bytes=80 * 10**9)
    for part in (
        "20,000 steps on 8 ranks",
        "language_model  7,248,023,552",
        "data cannot be read yet: models/mistral-7b-clip-l-336",
        "16,384 tokens",
        "2 micro-batches of 8 ranks, 262,144 tokens",
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
