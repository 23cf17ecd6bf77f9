"""What is done to a model so that the ranks of a job train it together, in the order in which it has to be done."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.decoder import Decoder
from omniloom.model.llava import Llava
from omniloom.model.loss import LossSum, sum_of_losses
from omniloom.model.vision import VisionTower
from omniloom.parallel.alone import lower_precision
from omniloom.parallel.checkpointing import compile_layers, recompute_layers
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.data import gather_once, shard, sum_gradients_after
from omniloom.parallel.layout import Ranks, lay_out
from omniloom.parallel.memory import Load, RankMemory, rank_memory
from omniloom.parallel.pipeline import Pipeline
from omniloom.parallel.sequence import Score, TokenShares, replace_method, share_tokens
from omniloom.parallel.stages import Stage, keep_spans, spans_of_layers
from omniloom.parallel.tensor import cut_tensors, llava_of, score_words
from omniloom.parallel.tower import deal_tiles, share_gradients

__all__ = [
    "Load",
    "ParallelConfig",
    "RankMemory",
    "Ranks",
    "gather_each_once",
    "lay_out",
    "parallelize",
    "pipeline_of",
    "rank_memory",
    "sum_gradients_after",
]


def parallelize(model: nn.Module, config: ParallelConfig, ranks: Ranks) -> nn.Module:
    """Apply a config to a model, with values or on ``meta``; what is trained has been chosen. All ranks call it.

    Raises:
        ConfigError: the config does not fit the model.
    """
    if config.compile:
        compile_layers(model)
    recompute_layers(model, config.recompute)
    shares = shares_of(config, ranks)
    if ranks.pipeline is not None:
        return _in_stages(model, config, ranks, shares)
    if shares.multiple > 1 or ranks.tensor_mesh is not None:
        llava, decoder = llava_of(model)
        share_tokens(llava, shares, _cut(llava, decoder, config, ranks))
    return lower_precision(model, config) if ranks.data_mesh is None else _shard(model, config, ranks)


def pipeline_of(model: nn.Module) -> Pipeline | None:
    """What trains a model that `parallelize` has cut into stages; ``None`` for another."""
    found = getattr(model, "pipeline", None)
    return found if isinstance(found, Pipeline) else None


def gather_each_once(model: nn.Module) -> None:
    """See `omniloom.parallel.data.gather_once`; for a model that was made on ``meta``, once it has values."""
    pipeline = pipeline_of(model)
    for root in [model] if pipeline is None else pipeline.stages:
        gather_once(root)


def shares_of(config: ParallelConfig, ranks: Ranks) -> TokenShares:
    """How the tokens of a batch are dealt over ranks."""
    return TokenShares(
        context=ranks.context,
        form=config.context_form,
        rows=ranks.tensor if config.sequence else None,
        multiple=config.token_multiple,
    )


def _in_stages(model: nn.Module, config: ParallelConfig, ranks: Ranks, shares: TokenShares) -> nn.Module:
    """Keep this rank's spans of a model, cut and shard them, and give the model what trains it."""
    llava, decoder = llava_of(model)
    if ranks.pipeline is None:
        raise ConfigError("parallel.pipeline: no group of stages; lay_out gives one.")
    spans = spans_of_layers(len(decoder.layers), config)
    own = list(range(ranks.stage, len(spans), config.pipeline))
    tied = decoder.head is None
    keep_spans(llava, decoder, spans, own)
    score = _cut(llava, decoder, config, ranks)
    stages = {
        span: Stage(
            llava,
            decoder,
            spans[span],
            first=span == 0,
            last=span == len(spans) - 1,
            shares=shares,
            score=score,
        )
        for span in own
    }
    for stage in stages.values():
        # Gathered once a step: a stage's parameters are wanted again with the next micro-batch.
        _shard(stage, replace(config, reshard=False, gradients="whole"), ranks)
    pipeline = Pipeline(
        stages,
        spans=len(spans),
        group=ranks.pipeline,
        shares=shares,
        dim=decoder.config.dim,
        dtype=torch.bfloat16 if config.precision == "bfloat16" else torch.float32,
        tied=(lambda: decoder.embed_tokens.weight, ranks.ends) if tied and ranks.ends is not None else None,
    )
    replace_method(llava, "loss", pipeline.loss)
    llava.pipeline = pipeline  # type: ignore[assignment]
    return llava


def _shard(root: nn.Module, config: ParallelConfig, ranks: Ranks) -> nn.Module:
    """Cut a model, or what a stage has of it, over the ranks of a stage; a tower over ranks of its own before."""
    if ranks.data_mesh is None:
        raise ConfigError("parallel: no mesh of ranks; lay_out gives one.")
    tower = next((module for module in root.modules() if isinstance(module, VisionTower)), None)
    if tower is not None and ranks.tower_mesh is not None:
        if config.tower == "whole":
            share_gradients(tower, ranks=config.tensor)
        shard(tower, ranks.tower_mesh, config)
    return shard(root, ranks.data_mesh, config)


def _cut(model: Llava, decoder: Decoder, config: ParallelConfig, ranks: Ranks) -> Score:
    """Cut the matrices, where they are cut, and deal the tiles; what takes the loss of rows."""
    dealt = config.tower == "dealt"
    if dealt:
        deal_tiles(model, tensor=ranks.tensor, context=ranks.context)
    if ranks.tensor_mesh is None:
        return partial(_score_all_words, decoder)
    cut_tensors(
        model, ranks.tensor_mesh, sequence=config.sequence, dealt_tower=dealt, own_tower=ranks.tower_mesh is not None
    )
    return score_words(decoder, ranks.tensor_mesh.get_group())


def _score_all_words(decoder: Decoder, stream: Tensor, labels: Tensor, **settings: Any) -> LossSum:
    return sum_of_losses(stream, decoder.head_weight, labels, **settings)
