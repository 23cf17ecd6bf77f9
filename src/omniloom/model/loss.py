"""Cross entropy without the logits of a whole batch.

Only rows that have a label are scored. They are scored in chunks, and the gradients of a chunk are computed while
its logits are at hand, so that no more than one chunk of logits ever exists; measured on 4,096 tokens of 32,768
words with 60 % without label, this takes less than an eighth of the memory of full logits, and less time (tests/slow).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from omniloom.errors import InputError

IGNORED = -100
ScoreRows = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], tuple[Tensor, Tensor | None]]
"""As `score_rows`: stream, head weight, labels, factors of the losses, whether to differentiate."""

DEFAULT_CHUNK_TOKENS = 512


class TokenGroups(NamedTuple):
    """Groups of tokens whose losses are told apart, such as those of data sets.

    Attributes:
        numbers: the group of each token, int64.
        groups: how many there are.
    """

    numbers: Int[Tensor, " tokens"]
    groups: int


@dataclass(frozen=True)
class LossSum:
    """A loss that is not yet a mean: what it is divided by is the caller's to know, over all ranks and steps.

    Attributes:
        total: sum of the (weighted) cross entropies in nats, float32.
        tokens: number of labelled tokens.
        by_group: the share of each group of tokens in the sum, without gradients; ``None`` where groups were not given.
    """

    total: Float[Tensor, ""]
    tokens: int
    by_group: Float[Tensor, " groups"] | None = None


def sum_of_losses(
    stream: Float[Tensor, "tokens dim"],
    head_weight: Float[Tensor, "vocab dim"],
    labels: Int[Tensor, " tokens"],
    *,
    token_weights: Float[Tensor, " tokens"] | None = None,
    token_groups: TokenGroups | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
) -> LossSum:
    """The summed cross entropy of what follows each token.

    Args:
        stream: output of the decoder.
        head_weight: rows that score the words.
        labels: the word that each token is to predict (already moved by one), -100 for none.
        token_weights: factor of each token's loss; 1 where not given.
        token_groups: groups whose losses are summed apart as well.
        chunk_tokens: rows scored at a time.

    Raises:
        InputError: labels and tokens differ in number.
    """
    labelled = labelled_rows(stream, labels)
    weights = None if token_weights is None else token_weights[labelled].float()
    total, losses = chunked_cross_entropy(
        stream[labelled], head_weight, labels[labelled], token_weights=weights, chunk_tokens=chunk_tokens
    )
    return LossSum(total, labelled.numel(), sums_by_group(losses, labelled, token_groups))


def sums_by_group(
    losses: Float[Tensor, " labelled"], labelled: Int[Tensor, " labelled"], groups: TokenGroups | None
) -> Float[Tensor, " groups"] | None:
    """The sum of the losses of each group, of rows by the numbers of their tokens."""
    if groups is None:
        return None
    return losses.new_zeros(groups.groups).index_add_(0, groups.numbers[labelled], losses)


def labelled_rows(stream: Float[Tensor, "tokens dim"], labels: Int[Tensor, " tokens"]) -> Int[Tensor, " labelled"]:
    """The rows that have a label. Raises InputError where labels and tokens differ in number."""
    if labels.shape != stream.shape[:1]:
        raise InputError(
            f"{labels.numel()} labels for {stream.shape[0]} tokens. Give one label a token, -100 for none."
        )
    return (labels != IGNORED).nonzero()[:, 0]


def chunked_cross_entropy(
    stream: Float[Tensor, "tokens dim"],
    head_weight: Float[Tensor, "vocab dim"],
    labels: Int[Tensor, " tokens"],
    *,
    token_weights: Float[Tensor, " tokens"] | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
    score: ScoreRows | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " tokens"]]:
    """The summed cross entropy of rows that all have a label, float32, and that of each row, which has no gradient.

    Gradients are made in the forward.

    ``score`` takes the place of `score_rows` where words are dealt to several ranks.
    """
    total, losses = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        stream, head_weight, labels, token_weights, chunk_tokens, score or score_rows
    )
    return total, losses


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd gives them by position
        context: Any,
        stream: Tensor,
        head_weight: Tensor,
        labels: Tensor,
        token_weights: Tensor | None,
        chunk_tokens: int,
        score: ScoreRows,
    ) -> tuple[Tensor, Tensor]:
        needs_stream, needs_weight = context.needs_input_grad[:2]
        total = stream.new_zeros((), dtype=torch.float32)
        losses = stream.new_empty(len(labels), dtype=torch.float32)
        stream_gradient = torch.empty_like(stream) if needs_stream else None
        # Thousands of small terms are added to each entry: half precision would lose them.
        weight_gradient = torch.zeros_like(head_weight, dtype=torch.float32) if needs_weight else None
        for start in range(0, len(labels), chunk_tokens):
            rows = slice(start, start + chunk_tokens)
            factors = None if token_weights is None else token_weights[rows]
            differentiate = needs_stream or needs_weight
            losses[rows], gradient = score(stream[rows], head_weight, labels[rows], factors, differentiate)
            total += losses[rows].sum()
            if gradient is None:
                continue
            if stream_gradient is not None:
                stream_gradient[rows] = gradient @ head_weight
            if weight_gradient is not None:
                weight_gradient += gradient.T @ stream[rows]
        context.save_for_backward(stream_gradient, weight_gradient)
        context.weight_type = head_weight.dtype
        context.mark_non_differentiable(losses)
        return total, losses

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        stream_gradient, weight_gradient = context.saved_tensors
        of_stream = None if stream_gradient is None else stream_gradient * upstream.to(stream_gradient.dtype)
        of_weight = None if weight_gradient is None else (weight_gradient * upstream).to(context.weight_type)
        return of_stream, of_weight, None, None, None, None


def score_rows(
    stream: Tensor, head_weight: Tensor, labels: Tensor, factors: Tensor | None, differentiate: bool
) -> tuple[Tensor, Tensor | None]:
    """The losses of some rows and, where it is wanted, their gradient by the logits in the type of the stream."""
    logits = (stream @ head_weight.T).float()
    log_probabilities = logits.log_softmax(dim=-1)
    losses = -log_probabilities.gather(1, labels[:, None])[:, 0]
    if factors is not None:
        losses *= factors
    if not differentiate:
        return losses, None
    gradient = log_probabilities.exp_()
    gradient[torch.arange(len(labels), device=labels.device), labels] -= 1
    if factors is not None:
        gradient *= factors[:, None]
    return losses, gradient.to(stream.dtype)
