"""Cross entropy of words whose scores lie on several ranks: each scores its own rows of the head, in chunks."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed
from torch.autograd.function import Function, once_differentiable

from omniloom.errors import InputError
from omniloom.model.loss import DEFAULT_CHUNK_TOKENS, IGNORED, LossSum
from omniloom.parallel.collectives import sum_gradients


def sum_of_losses(
    stream: Float[Tensor, "tokens dim"],
    own_head_weight: Float[Tensor, "own_vocab dim"],
    labels: Int[Tensor, " tokens"],
    *,
    group: distributed.ProcessGroup,
    token_weights: Float[Tensor, " tokens"] | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
) -> LossSum:
    """The summed cross entropy of what follows each token, as `omniloom.model.loss.sum_of_losses`; equal on all ranks.

    Two small sums over ranks a chunk: the greatest score, then the sum of exponentials with the label's score. No rank
    ever holds scores of another's words.

    Args:
        stream: output of the decoder, the same on all ranks.
        own_head_weight: this rank's rows; rank ``r`` of the group has the ``r``-th part of equal parts.
        labels: the word that each token is to predict, -100 for none.
        group: the ranks among which the words are dealt.
        token_weights: factor of each token's loss; 1 where not given.
        chunk_tokens: rows scored at a time.

    Raises:
        InputError: labels and tokens differ in number.
    """
    if labels.shape != stream.shape[:1]:
        raise InputError(
            f"{labels.numel()} labels for {stream.shape[0]} tokens. Give one label a token, -100 for none."
        )
    labelled = (labels != IGNORED).nonzero()[:, 0]
    weights = None if token_weights is None else token_weights[labelled].float()
    total: Tensor = _CrossEntropyOfParts.apply(  # type: ignore[no-untyped-call]
        sum_gradients(stream[labelled], group), own_head_weight, labels[labelled], weights, chunk_tokens, group
    )
    return LossSum(total, labelled.numel())


class _CrossEntropyOfParts(Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd gives them by position
        context: Any,
        stream: Tensor,
        head_weight: Tensor,
        labels: Tensor,
        token_weights: Tensor | None,
        chunk_tokens: int,
        group: distributed.ProcessGroup,
    ) -> Tensor:
        needs_stream, needs_weight = context.needs_input_grad[:2]
        total = stream.new_zeros((), dtype=torch.float32)
        stream_gradient = torch.empty_like(stream) if needs_stream else None
        # Thousands of small terms are added to each entry: half precision would lose them.
        weight_gradient = torch.zeros_like(head_weight, dtype=torch.float32) if needs_weight else None
        for start in range(0, len(labels), chunk_tokens):
            rows = slice(start, start + chunk_tokens)
            losses, gradient = _score(stream[rows], head_weight, labels[rows], group)
            if token_weights is not None:
                losses, gradient = losses * token_weights[rows], gradient * token_weights[rows, None]
            total += losses.sum()
            gradient = gradient.to(stream.dtype)
            if stream_gradient is not None:
                stream_gradient[rows] = gradient @ head_weight
            if weight_gradient is not None:
                weight_gradient += gradient.T @ stream[rows]
        context.save_for_backward(stream_gradient, weight_gradient)
        context.weight_type = head_weight.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        stream_gradient, weight_gradient = context.saved_tensors
        of_stream = None if stream_gradient is None else stream_gradient * upstream.to(stream_gradient.dtype)
        of_weight = None if weight_gradient is None else (weight_gradient * upstream).to(context.weight_type)
        return of_stream, of_weight, None, None, None, None


def _score(
    stream: Tensor, head_weight: Tensor, labels: Tensor, group: distributed.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """The rows' losses, and their gradient by this rank's scores; float32."""
    logits = (stream @ head_weight.T).float()
    peak = logits.amax(dim=-1)
    distributed.all_reduce(peak, op=distributed.ReduceOp.MAX, group=group)
    logits -= peak[:, None]
    column, own = own_rows(labels, len(head_weight), group)
    of_label = logits.gather(1, column[:, None])[:, 0] * own
    exponentials = logits.exp_()
    sums = torch.stack([exponentials.sum(dim=-1), of_label])
    distributed.all_reduce(sums, group=group)
    gradient = exponentials.div_(sums[0, :, None])
    gradient[torch.arange(len(labels), device=labels.device), column] -= own.float()
    return sums[0].log() - sums[1], gradient


def own_rows(ids: Tensor, own_words: int, group: distributed.ProcessGroup) -> tuple[Tensor, Tensor]:
    """The rows of words in this rank's part of a vocabulary, 0 for words of others, and which words are its own."""
    rows = ids - own_words * distributed.get_rank(group)
    own = (rows >= 0) & (rows < own_words)
    return rows * own, own
