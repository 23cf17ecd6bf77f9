"""Attention of a rank that holds some of the tokens only, exact at the borders of packed documents.

``ulysses`` gives each rank all tokens of some heads, and any attention does; ``gather`` gives it the keys and values of
all tokens. Sources: Jacobs et al., DeepSpeed Ulysses, section 3.1; Llama 3, section 3.3.2 (gathered keys and values,
of tokens dealt in pairs of parts so that the ranks' causal work is equal).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, distributed
from torch.nn.functional import scaled_dot_product_attention

from omniloom.model.attention import Attend, AttendPacked, kernel_on
from omniloom.model.documents import Documents
from omniloom.parallel.collectives import Group, exchange, gather_rows

_HALF = {torch.float16, torch.bfloat16}
Span = tuple[int, int]


def spans_in_order(tokens: int, part: int, parts: int) -> list[Span]:
    """The tokens of a part: one run of equally many."""
    each = tokens // parts
    return [(part * each, (part + 1) * each)]


def spans_in_pairs(tokens: int, part: int, parts: int) -> list[Span]:
    """The tokens of a part: the n-th run from the front and the n-th from the back, so that causal work is equal."""
    each = tokens // (2 * parts)
    return [(run * each, (run + 1) * each) for run in (part, 2 * parts - 1 - part)]


def rows_of(spans: Sequence[Span], device: torch.device | str = "cpu") -> Int[Tensor, " rows"]:
    """The tokens of spans, int64."""
    return torch.cat([torch.arange(start, stop, device=device) for start, stop in spans])


class AttendByHeads:
    """Each rank attends for some of the heads, over all tokens (Ulysses).

    Heads of keys and values that the ranks do not divide are repeated until they do.
    """

    def __init__(
        self, documents: Documents, every: Sequence[Sequence[Span]], group: Group, device: torch.device
    ) -> None:
        self._whole = AttendPacked(documents, device)
        self._group, self._ranks = group, len(every)
        self.positions = self._whole.positions[rows_of(every[distributed.get_rank(group)], device)]

    def __call__(
        self,
        query: Float[Tensor, "own heads head_dim"],
        key: Float[Tensor, "own kv_heads head_dim"],
        value: Float[Tensor, "own kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "own heads head_dim"]:
        """What each of this rank's tokens gathers from its document."""
        own, heads, features = query.shape
        times = math.lcm(key.shape[1], self._ranks) // key.shape[1]
        if times > 1:
            key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        dealt = [each.view(own, self._ranks, -1, each.shape[2]) for each in (query, key, value)]
        received = exchange(torch.cat(dealt, dim=2).transpose(0, 1), self._group).flatten(0, 1)
        parts = torch.split(received, [each.shape[2] for each in dealt], dim=1)
        gathered = self._whole(*parts, window=window)
        back = exchange(gathered.reshape(self._ranks, own, -1, features), self._group)
        return back.transpose(0, 1).reshape(own, heads, features)

    def at(self, layer: int) -> Attend:
        """The same in every layer."""
        return self


class AttendGathered:
    """Each rank attends for its tokens, to the gathered keys and values of all."""

    def __init__(
        self, documents: Documents, every: Sequence[Sequence[Span]], group: Group, device: torch.device
    ) -> None:
        own = every[distributed.get_rank(group)]
        self.positions = documents.positions(device)[rows_of(own, device)]
        self._group = group
        self._order = torch.cat([rows_of(spans) for spans in every]).argsort().to(device)
        self._spans = [pieces_of(documents, span) for span in own]
        self._kernel = kernel_on(device)

    def __call__(
        self,
        query: Float[Tensor, "own heads head_dim"],
        key: Float[Tensor, "own kv_heads head_dim"],
        value: Float[Tensor, "own kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "own heads head_dim"]:
        """What each of this rank's tokens gathers from its document."""
        keys, values = gather_rows(torch.stack([key, value], dim=1), self._group)[self._order].unbind(1)
        queries = torch.split(query, [pieces[-1].stop - pieces[0].start for pieces in self._spans])
        kernel = self._kernel if query.dtype in _HALF else None
        gathered = [
            attend_each_piece(one, keys, values, pieces, window=window)
            if kernel is None
            else attend_by_kernel(kernel, one, keys, values, pieces, window=window)
            for one, pieces in zip(queries, self._spans, strict=True)
        ]
        return torch.cat(gathered)

    def at(self, layer: int) -> Attend:
        """The same in every layer."""
        return self


class Piece(NamedTuple):
    """Tokens of one document that a rank holds in one run.

    Attributes:
        start, stop: the tokens that look.
        first: the document's first token; they see what is from there up to themselves.
    """

    start: int
    stop: int
    first: int


def pieces_of(documents: Documents, span: Span) -> list[Piece]:
    """A span of tokens by the documents that they are of."""
    bounds = documents.bounds
    start, stop = span
    return [
        Piece(max(start, bounds[number]), min(stop, bounds[number + 1]), bounds[number])
        for number in range(bisect_right(bounds, start) - 1, bisect_left(bounds, stop))
    ]


def attend_each_piece(
    query: Float[Tensor, "own heads head_dim"],
    keys: Float[Tensor, "tokens kv_heads head_dim"],
    values: Float[Tensor, "tokens kv_heads head_dim"],
    pieces: Sequence[Piece],
    *,
    window: int | None,
) -> Float[Tensor, "own heads head_dim"]:
    """Causal attention of pieces that follow each other, one call a piece."""
    queries = torch.split(query, [piece.stop - piece.start for piece in pieces])
    gathered = []
    for one, piece in zip(queries, pieces, strict=True):
        seen = slice(piece.first, piece.stop)
        gathered.append(_attend_to_the_last(one, keys[seen], values[seen], window=window))
    return torch.cat(gathered)


def _attend_to_the_last(query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
    """Causal attention of queries that belong to the last of the keys."""
    looking, seen = len(query), len(key)
    whole = looking == seen and (window is None or window >= seen)
    mask = None if whole else _mask(looking, seen, window, query.device)
    gathered = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=whole,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return gathered[0].transpose(0, 1)


def _mask(looking: int, seen: int, window: int | None, device: torch.device) -> Bool[Tensor, "looking seen"]:
    before = seen - looking
    mask = torch.ones(looking, seen, dtype=torch.bool, device=device).tril(before)
    return mask if window is None else mask.triu(before + 1 - window)


def attend_by_kernel(
    kernel: Callable[..., Any],
    query: Float[Tensor, "own heads head_dim"],
    keys: Float[Tensor, "tokens kv_heads head_dim"],
    values: Float[Tensor, "tokens kv_heads head_dim"],
    pieces: Sequence[Piece],
    *,
    window: int | None,
) -> Float[Tensor, "own heads head_dim"]:
    """The same by one call of a variable-length kernel, whose queries are the last of their keys.

    The pieces' keys lie one after another: only the first document can have begun before the span, and only its keys
    from before are seen beside those of the span.
    """
    looking = [piece.stop - piece.start for piece in pieces]
    seen = [piece.stop - piece.first for piece in pieces]
    borders = [torch.tensor([0, *accumulate(each)], dtype=torch.int32, device=query.device) for each in (looking, seen)]
    within = slice(pieces[0].first, pieces[-1].stop)
    gathered: Tensor = kernel(
        query,
        keys[within],
        values[within],
        *borders,
        max(looking),
        max(seen),
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return gathered
