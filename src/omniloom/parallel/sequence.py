"""The tokens of a batch dealt over ranks: parts of the sequence (context), and of these the rows between cut matrices.

A rank computes the embeddings of all tokens and goes on with its own: images may lie anywhere among them. The loss is
that of all ranks' tokens, its gradient that of this rank's, which sharding sums over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed
from torch.nn import functional

from omniloom.errors import ConfigError
from omniloom.model.attention import Attend, AttendPacked
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from omniloom.model.loss import IGNORED, LossSum, TokenGroups
from omniloom.parallel.collectives import Group, join_rows, sum_values, take_own_rows
from omniloom.parallel.config import ContextForm
from omniloom.parallel.context import AttendByHeads, AttendGathered, Span, rows_of, spans_in_order, spans_in_pairs

_FORMS: dict[str, tuple[Callable[[int, int, int], list[Span]], Callable[..., Attend]]] = {
    "ulysses": (spans_in_order, AttendByHeads),
    "gather": (spans_in_pairs, AttendGathered),
}


@dataclass(frozen=True)
class TokenShares:
    """How tokens are dealt.

    Attributes:
        context: ranks that share the tokens, or ``None``.
        form: how their attention finds tokens of others.
        rows: ranks that share the rows of these between cut matrices, or ``None``.
        multiple: what the number of tokens has to be a multiple of.
    """

    context: Group | None = None
    form: ContextForm = "ulysses"
    rows: Group | None = None
    multiple: int = 1

    def rounded(self, tokens: int) -> int:
        """So many tokens, filled up."""
        return -(-tokens // self.multiple) * self.multiple

    @property
    def parts(self) -> int:
        """Ranks among which the rows of the stream are dealt between cut matrices."""
        groups = [group for group in (self.context, self.rows) if group is not None]
        return math.prod(distributed.get_world_size(group) for group in groups)

    def own(self, tokens: Tensor) -> Tensor:
        """The rows of this rank's tokens; their gradients stay with it."""
        if self.context is None:
            return tokens
        return tokens[rows_of(self._spans(len(tokens))[distributed.get_rank(self.context)], tokens.device)]

    def enter(self, embeddings: Float[Tensor, "tokens dim"]) -> Float[Tensor, "own dim"]:
        """What goes into the first layer; the number of tokens is a multiple of `multiple`."""
        own = self.own(embeddings)
        return own if self.rows is None else take_own_rows(own, self.rows)

    def leave(self, stream: Float[Tensor, "own dim"]) -> Float[Tensor, "tokens dim"]:
        """What is scored: the tokens of this part of the sequence."""
        return stream if self.rows is None else join_rows(stream, self.rows)

    def attend(self, documents: Documents, device: torch.device) -> Attend:
        """Attention of this rank's tokens."""
        if self.context is None:
            return AttendPacked(documents, device)
        attention = _FORMS[self.form][1]
        return attention(documents, self._spans(documents.tokens), self.context, device)

    def whole(self, stream: Float[Tensor, "own dim"]) -> Float[Tensor, "tokens dim"]:
        """The rows of all tokens in their order, from all ranks' parts; no gradient goes through."""
        if self.context is None:
            return stream
        spans = self._spans(len(stream) * distributed.get_world_size(self.context))
        order = torch.cat([rows_of(each, stream.device) for each in spans]).argsort()
        return join_rows(stream.detach(), self.context)[order]

    def _spans(self, tokens: int) -> list[list[Span]]:
        ranks = distributed.get_world_size(self.context)
        return [_FORMS[self.form][0](tokens, rank, ranks) for rank in range(ranks)]


class Score(Protocol):
    """Takes the loss of rows of the stream; `omniloom.model.loss.sum_of_losses` or what stands for it."""

    def __call__(
        self,
        stream: Tensor,
        labels: Tensor,
        *,
        token_weights: Tensor | None = None,
        token_groups: TokenGroups | None = None,
        **settings: Any,
    ) -> LossSum:
        """The summed loss of the rows that have a label."""


def share_tokens(model: Llava, shares: TokenShares, score: Score) -> None:
    """Let a model compute its loss, and its scores, on its share of the tokens."""

    def loss(
        input_ids: Int[Tensor, " tokens"],
        *,
        labels: Int[Tensor, " tokens"],
        documents: Documents,
        images: Any = None,
        image_positions: Tensor | None = None,
        token_weights: Tensor | None = None,
        token_groups: TokenGroups | None = None,
        **settings: Any,
    ) -> LossSum:
        to = shares.rounded(documents.tokens)
        stream = own_stream(
            filled_up(input_ids, to), with_filling(documents, to), images=images, image_positions=image_positions
        )
        labels = filled_up(labels, to, value=IGNORED)
        weights = None if token_weights is None else filled_up(token_weights, to)
        groups = filled_up_groups(token_groups, to)
        return score_own(shares, score, stream, labels, token_weights=weights, token_groups=groups, **settings)

    def decode(
        input_ids: Int[Tensor, " tokens"],
        *,
        documents: Documents,
        images: Any = None,
        image_positions: Tensor | None = None,
        attend: Attend | None = None,
    ) -> Float[Tensor, "tokens dim"]:
        if attend is not None and (shares.context is not None or shares.rows is not None):
            raise ConfigError("a model whose tokens are dealt over ranks generates nothing. Open it in one process.")
        to = shares.rounded(documents.tokens)
        stream = own_stream(
            filled_up(input_ids, to),
            with_filling(documents, to),
            images=images,
            image_positions=image_positions,
            attend=attend,
        )
        return shares.whole(stream)[: documents.tokens]

    def own_stream(
        input_ids: Tensor, documents: Documents, *, attend: Attend | None = None, **seen: Any
    ) -> Float[Tensor, "own dim"]:
        embeddings = model.embed(input_ids, **seen)
        attend = shares.attend(documents, embeddings.device) if attend is None else attend
        stream: Tensor = model.language_model(shares.enter(embeddings), attend)
        return shares.leave(stream)

    replace_method(model, "loss", loss)
    replace_method(model, "decode", decode)


def filled_up(row: Tensor, tokens: int, *, value: int = 0) -> Tensor:
    """A row of ids, labels or weights with so many entries; what is added is `value`."""
    return functional.pad(row, (0, tokens - len(row)), value=value)


def filled_up_groups(groups: TokenGroups | None, tokens: int) -> TokenGroups | None:
    """Groups of so many tokens; what is added belongs to the first, and has no label."""
    return None if groups is None else TokenGroups(filled_up(groups.numbers, tokens), groups.groups)


def with_filling(documents: Documents, tokens: int) -> Documents:
    """The documents, and one more that makes them so many tokens in all."""
    return documents if documents.tokens == tokens else Documents((*documents.bounds, tokens))


def score_own(
    shares: TokenShares,
    score: Score,
    stream: Float[Tensor, "own dim"],
    labels: Int[Tensor, " tokens"],
    *,
    token_weights: Float[Tensor, " tokens"] | None = None,
    token_groups: TokenGroups | None = None,
    **settings: Any,
) -> LossSum:
    """The loss of all ranks' tokens, from the stream of this rank's."""
    weights = None if token_weights is None else shares.own(token_weights)
    groups = None if token_groups is None else TokenGroups(shares.own(token_groups.numbers), token_groups.groups)
    found = score(stream, shares.own(labels), token_weights=weights, token_groups=groups, **settings)
    if shares.context is None:
        return found
    by_group = None if found.by_group is None else sum_values(found.by_group, shares.context)
    return LossSum(sum_values(found.total, shares.context), int((labels != IGNORED).sum()), by_group)


def replace_method(module: Any, method: str, function: Callable[..., Any]) -> None:
    """Let a module do something in another way, under the same name."""
    setattr(module, method, function)
