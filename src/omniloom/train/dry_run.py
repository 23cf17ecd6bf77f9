"""What a recipe would do, without doing it."""

from __future__ import annotations

from itertools import islice
from statistics import mean

import torch

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader
from omniloom.model.build import build as build_module
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.data import task_encoder, training_data
from omniloom.train.model_files import model_config
from omniloom.train.parts import counts, freeze
from omniloom.train.recipe import Recipe

_SAMPLED_BATCHES = 16
_BYTES_FLOAT32 = 4
_ADAM_STATES = 2


def describe(recipe: Recipe, *, ranks: int = 1, device_bytes: int | None = None) -> str:
    """The plan of a run as text: parameters, memory by kind, tokens of a step, fill of packs, size of a checkpoint."""
    config = model_config(recipe.model)
    model = build_module(config, device="meta")
    freeze(model, recipe.parts)
    parts = counts(model)
    trained = sum(each[0] for each in parts.values())
    frozen = sum(each[1] for each in parts.values())
    lines = [f"{recipe.folder}: {recipe.loop.steps:,} steps", "", "parameters          trained         frozen"]
    lines += [f"  {name:<14} {each[0]:>14,} {each[1]:>14,}" for name, each in parts.items()]
    weights, states = (trained + frozen) * _BYTES_FLOAT32, trained * _BYTES_FLOAT32 * _ADAM_STATES
    lines += [
        "",
        "memory over all ranks of a replica, without activations",
        f"  weights {_size(weights)}, gradients {_size(trained * _BYTES_FLOAT32)}, optimizer {_size(states)}",
        f"checkpoint: {_size(weights + states)}",
        "",
        *_data(recipe),
    ]
    return "\n".join(lines)


def _data(recipe: Recipe) -> list[str]:
    encoder = task_encoder(recipe.data, recipe.model, model_config(recipe.model))
    workers = WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=recipe.data.lanes, seed_offset=recipe.seed)
    with get_savable_loader(training_data(recipe.data, encoder, workers)) as loader:
        batches = [PackedMicroBatch.of(batch, torch.device("cpu")) for batch in islice(iter(loader), _SAMPLED_BATCHES)]
    if not batches:
        return ["data: no batch came"]
    tokens, learned = mean(each.tokens for each in batches), mean(each.learned_tokens for each in batches)
    documents = mean(len(each.documents) for each in batches)
    told = [
        f"a micro-batch ({len(batches)} looked at): {tokens:,.0f} tokens, {learned:,.0f} learned, "
        f"{documents:,.1f} samples, {mean(each.num_images for each in batches):,.1f} tiles",
        f"a step of one rank: {tokens * recipe.loop.micro_batches:,.0f} tokens",
    ]
    if recipe.data.pack_tokens is not None:
        fill = tokens / (recipe.data.pack_tokens * recipe.data.batch_size)
        told.append(f"packs are {100 * fill:.1f}% full")
    return told


def _size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
