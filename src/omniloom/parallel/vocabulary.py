"""Cross entropy of words whose scores lie on several ranks: each scores its own rows of the head, in chunks."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed

from omniloom.model.loss import (
    DEFAULT_CHUNK_TOKENS,
    LossSum,
    TokenGroups,
    chunked_cross_entropy,
    labelled_rows,
    sums_by_group,
)
from omniloom.parallel.collectives import sum_gradients


def sum_of_losses(
    stream: Float[Tensor, "tokens dim"],
    own_head_weight: Float[Tensor, "own_vocab dim"],
    labels: Int[Tensor, " tokens"],
    *,
    group: distributed.ProcessGroup,
    words: int | None = None,
    token_weights: Float[Tensor, " tokens"] | None = None,
    token_groups: TokenGroups | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
) -> LossSum:
    """The summed cross entropy of what follows each token, as `omniloom.model.loss.sum_of_losses`; equal on all ranks.

    Two small sums over ranks a chunk: the greatest score, then the sum of exponentials with the label's score. No rank
    ever holds scores of another's words.

    Args:
        stream: output of the decoder, the same on all ranks.
        own_head_weight: this rank's rows; rank ``r`` of the group has the ``r``-th part, as `torch.chunk` cuts.
        labels: the word that each token is to predict, -100 for none.
        group: the ranks among which the words are dealt.
        words: how many there are in all; ``None``: as many on each rank.
        token_weights: factor of each token's loss; 1 where not given.
        token_groups: groups whose losses are summed apart as well.
        chunk_tokens: rows scored at a time.

    Raises:
        InputError: labels and tokens differ in number.
    """
    ranks = distributed.get_world_size(group)
    first = first_word(len(own_head_weight) * ranks if words is None else words, group)

    def score(
        rows: Tensor, head_weight: Tensor, labels: Tensor, factors: Tensor | None, differentiate: bool
    ) -> tuple[Tensor, Tensor | None]:
        losses, gradient = _score(rows, head_weight, labels, first, group)
        if factors is not None:
            losses, gradient = losses * factors, gradient * factors[:, None]
        return losses, gradient.to(rows.dtype) if differentiate else None

    labelled = labelled_rows(stream, labels)
    total, losses = chunked_cross_entropy(
        sum_gradients(stream[labelled], group),
        own_head_weight,
        labels[labelled],
        token_weights=None if token_weights is None else token_weights[labelled].float(),
        chunk_tokens=chunk_tokens,
        score=score,
    )
    return LossSum(total, labelled.numel(), sums_by_group(losses, labelled, token_groups))


def _score(
    stream: Tensor, head_weight: Tensor, labels: Tensor, first: int, group: distributed.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """The rows' losses, and their gradient by this rank's scores; float32."""
    logits = (stream @ head_weight.T).float()
    peak = logits.amax(dim=-1)
    distributed.all_reduce(peak, op=distributed.ReduceOp.MAX, group=group)
    logits -= peak[:, None]
    column, own = own_rows(labels, len(head_weight), first)
    of_label = logits.gather(1, column[:, None])[:, 0] * own
    exponentials = logits.exp_()
    sums = torch.stack([exponentials.sum(dim=-1), of_label])
    distributed.all_reduce(sums, group=group)
    gradient = exponentials.div_(sums[0, :, None])
    gradient[torch.arange(len(labels), device=labels.device), column] -= own.float()
    return sums[0].log() - sums[1], gradient


def own_rows(ids: Tensor, own_words: int, first: int) -> tuple[Tensor, Tensor]:
    """The rows of words in this rank's part of a vocabulary, 0 for words of others, and which words are its own."""
    rows = ids - first
    own = (rows >= 0) & (rows < own_words)
    return rows * own, own


def words_of_a_rank(words: int, group: distributed.ProcessGroup) -> int:
    """How many words each rank has; the last may have fewer."""
    return -(-words // distributed.get_world_size(group))


def first_word(words: int, group: distributed.ProcessGroup) -> int:
    """The first word of this rank."""
    return words_of_a_rank(words, group) * distributed.get_rank(group)
