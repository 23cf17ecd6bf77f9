"""What is done to a model so that the ranks of a job train it together, in the order in which it has to be done."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from omniloom.model.decoder import Decoder
from omniloom.model.loss import LossSum, sum_of_losses
from omniloom.parallel.checkpointing import compile_layers, recompute_layers
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.data import shard
from omniloom.parallel.layout import Ranks, lay_out
from omniloom.parallel.sequence import Score, TokenShares, share_tokens
from omniloom.parallel.tensor import cut_tensors, llava_of, score_words

__all__ = ["ParallelConfig", "Ranks", "lay_out", "parallelize", "shares_of"]


def parallelize(model: nn.Module, config: ParallelConfig, ranks: Ranks) -> nn.Module:
    """Apply a config to a model, with values or on ``meta``; what is trained has been chosen. All ranks call it.

    Raises:
        ConfigError: the config does not fit the model.
    """
    shares = shares_of(config, ranks)
    if shares.multiple > 1 or ranks.tensor_mesh is not None:
        _share_work(model, config, ranks, shares)
    if config.compile:
        compile_layers(model)
    recompute_layers(model, config.recompute)
    return model if ranks.data_mesh is None else shard(model, ranks.data_mesh, config)


def _share_work(model: nn.Module, config: ParallelConfig, ranks: Ranks, shares: TokenShares) -> None:
    """Cut matrices and tokens of a LLaVA."""
    llava, decoder = llava_of(model)
    score: Score = partial(_score_all_words, decoder)
    if ranks.tensor_mesh is not None:
        cut_tensors(llava, ranks.tensor_mesh, sequence=config.sequence)
        score = score_words(decoder, ranks.tensor_mesh.get_group())
    share_tokens(llava, shares, score)


def shares_of(config: ParallelConfig, ranks: Ranks) -> TokenShares:
    """How the tokens of a batch are dealt over ranks."""
    return TokenShares(
        context=ranks.context,
        form=config.context_form,
        rows=ranks.tensor if config.sequence else None,
        multiple=config.token_multiple,
    )


def _score_all_words(decoder: Decoder, stream: Tensor, labels: Tensor, **settings: Any) -> LossSum:
    return sum_of_losses(stream, decoder.head_weight, labels, **settings)
