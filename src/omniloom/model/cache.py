"""Keys and values of what was said already, for generating token by token.

A cache has a fixed number of rows and a fixed capacity; each row knows how far it is filled, so rows of different
lengths need no padding. `AttendPrompts` fills it from packed prompts, `AttendSuffixes` goes on from what rows hold
already, `AttendNext` adds one token a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from omniloom.errors import InputError
from omniloom.model.attention import Attend, AttendPacked
from omniloom.model.config import DecoderConfig
from omniloom.model.documents import Documents

_WASTE_PER_CALL = 16_384
"""Numbers that the CPU reads in the time of one more call of attention, about: 64 KiB of float32."""


class KeyValueCache:
    """Room for the keys and values of `rows` documents of up to `capacity_tokens`.

    The tokens of a head lie side by side, so that a step reads memory from one end to the other.

    Attributes:
        keys, values: ``[layers, rows, kv_heads, capacity, head_dim]``.
        lengths: tokens in each row; known without asking the device.
    """

    def __init__(
        self,
        config: DecoderConfig,
        *,
        rows: int,
        capacity_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        kv_heads: int | None = None,
    ) -> None:
        heads = config.num_kv_heads if kv_heads is None else kv_heads
        shape = (config.num_layers, rows, heads, capacity_tokens, config.head_dim)
        self.keys: Float[Tensor, "layers rows kv_heads capacity head_dim"]
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values: Float[Tensor, "layers rows kv_heads capacity head_dim"] = torch.zeros_like(self.keys)
        self.lengths = [0] * rows

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.shape[1]

    @property
    def capacity_tokens(self) -> int:
        """Tokens that a row can hold."""
        return self.keys.shape[3]

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these, in this order: what is finished need not be computed on.

        Rows that keep their number are not touched; in the order of `omniloom.generate.decoding`, where last rows
        fill the gaps, a row that ends costs the copy of one other.
        """
        kept = len(rows)
        if all(row in (place, *range(kept, self.rows)) for place, row in enumerate(rows)):
            for place, row in enumerate(rows):
                self.copy_row(row, [place], tokens=self.lengths[row])
            self.keys, self.values = self.keys[:, :kept], self.values[:, :kept]
        else:
            chosen = torch.tensor(rows, device=self.keys.device)
            self.keys, self.values = self.keys[:, chosen], self.values[:, chosen]
        self.lengths = [self.lengths[row] for row in rows]

    def copy_row(self, row: int, others: Sequence[int], *, tokens: int) -> None:
        """Give other rows the first tokens of a row; all of them then hold these alone."""
        for other in others:
            if other != row:
                for stored in (self.keys, self.values):
                    stored[:, other, :, :tokens] = stored[:, row, :, :tokens]
            self.lengths[other] = tokens

    def write(
        self,
        layer: int,
        rows: Int[Tensor, " tokens"],
        positions: Int[Tensor, " tokens"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
    ) -> None:
        """Put the keys and values of tokens at their rows and positions."""
        self.keys[layer][rows, :, positions] = key.to(self.keys.dtype)
        self.values[layer][rows, :, positions] = value.to(self.values.dtype)


class AttendPrompts(AttendPacked):
    """Packed prompts, one a row of the cache, whose keys and values are kept.

    Args:
        documents: the prompts.
        cache: with room for them.
        rows: the row of each; by default the first prompt goes to the first row, and so on through all.
    """

    def __init__(self, documents: Documents, cache: KeyValueCache, *, rows: Sequence[int] | None = None) -> None:
        fits = len(documents) == (cache.rows if rows is None else len(rows))
        if not fits or documents.longest > cache.capacity_tokens:
            raise InputError(
                f"{len(documents)} prompts of up to {documents.longest} tokens for a cache of {cache.rows} rows and "
                f"{cache.capacity_tokens} tokens. Make the cache for these prompts."
            )
        device = cache.keys.device
        super().__init__(documents, device)
        self._cache = cache
        self._layer = 0
        places = range(cache.rows) if rows is None else rows
        self._rows = torch.tensor(places, device=device)[documents.numbers(device)]
        for row, length in zip(places, documents.lengths, strict=True):
            cache.lengths[row] = length

    def __call__(
        self,
        query: Float[Tensor, "tokens heads head_dim"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "tokens heads head_dim"]:
        """As for packed documents; the keys and values go to the cache."""
        self._cache.write(self._layer, self._rows, self.positions, key, value)
        return super().__call__(query, key, value, window=window)

    def at(self, layer: int) -> Attend:
        """The same, with the keys and values of another layer."""
        return _of_layer(self, layer)


class AttendSuffixes:
    """Packed documents that go on from what some rows of the cache hold: each token sees its row up to itself.

    Args:
        documents: the suffixes.
        cache: with room for them.
        rows: the row that each goes on from.
    """

    def __init__(self, documents: Documents, cache: KeyValueCache, *, rows: Sequence[int]) -> None:
        device = cache.keys.device
        self._cache = cache
        self._layer = 0
        self._spans = [
            (row, start, stop, cache.lengths[row]) for row, (start, stop) in zip(rows, documents.spans(), strict=True)
        ]
        before = torch.tensor([held for *_, held in self._spans], device=device)
        numbers = documents.numbers(device)
        self._rows = torch.tensor(rows, device=device)[numbers]
        self.positions = documents.positions(device) + before[numbers]
        for row, length in zip(rows, documents.lengths, strict=True):
            cache.lengths[row] += length
        if max(cache.lengths) > cache.capacity_tokens:
            raise InputError(
                f"a row of {max(cache.lengths)} tokens in a cache of {cache.capacity_tokens}. Make the cache for the "
                "whole prompts and all tokens that may follow."
            )

    def __call__(
        self,
        query: Float[Tensor, "tokens heads head_dim"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "tokens heads head_dim"]:
        """What each token gathers from its row."""
        self._cache.write(self._layer, self._rows, self.positions, key, value)
        keys, values = self._cache.keys[self._layer], self._cache.values[self._layer]
        gathered = []
        for row, start, stop, held in self._spans:
            length = held + stop - start
            one = scaled_dot_product_attention(
                query[start:stop].transpose(0, 1)[None],
                keys[row : row + 1, :, :length].to(query.dtype),
                values[row : row + 1, :, :length].to(query.dtype),
                attn_mask=_later_rows(stop - start, length, window, query.device),
                enable_gqa=query.shape[1] != key.shape[1],
            )
            gathered.append(one[0].transpose(0, 1))
        return torch.cat(gathered)

    def at(self, layer: int) -> Attend:
        """The same, with the keys and values of another layer."""
        return _of_layer(self, layer)


class AttendNext:
    """One more token in every row: it sees its row of the cache, and itself."""

    def __init__(self, cache: KeyValueCache) -> None:
        if max(cache.lengths) >= cache.capacity_tokens:
            raise InputError(
                f"a row of {max(cache.lengths) + 1} tokens in a cache of {cache.capacity_tokens}. Make the cache for "
                "the prompt and all tokens that may follow."
            )
        self._cache = cache
        self._layer = 0
        self._rows = torch.arange(cache.rows, device=cache.keys.device)
        self.positions = torch.tensor(cache.lengths, device=cache.keys.device)
        cache.lengths = [length + 1 for length in cache.lengths]

    def __call__(
        self,
        query: Float[Tensor, "rows heads head_dim"],
        key: Float[Tensor, "rows kv_heads head_dim"],
        value: Float[Tensor, "rows kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "rows heads head_dim"]:
        """What each row's new token gathers from its row."""
        self._cache.write(self._layer, self._rows, self.positions, key, value)
        # Heads that share keys are further queries of these keys: then none is copied.
        grouped = query.reshape(len(query), key.shape[1], -1, query.shape[2])
        each = self._each_alone(key[0].numel(), query.device)
        gathered = self._row_by_row(grouped, window) if each else self._together(grouped, window)
        return gathered.flatten(1, 2)

    def at(self, layer: int) -> Attend:
        """The same, with the keys and values of another layer."""
        return _of_layer(self, layer)

    def _each_alone(self, numbers_per_token: int, device: torch.device) -> bool:
        """Whether a call for each row costs less than reading each row as far as the longest goes."""
        lengths = self._cache.lengths
        unused_tokens = len(lengths) * max(lengths) - sum(lengths)
        return device.type == "cpu" and unused_tokens * numbers_per_token > len(lengths) * _WASTE_PER_CALL

    def _row_by_row(self, query: Tensor, window: int | None) -> Tensor:
        keys, values = self._cache.keys[self._layer], self._cache.values[self._layer]
        gathered = []
        for row, length in enumerate(self._cache.lengths):
            seen = slice(0 if window is None else max(0, length - window), length)
            mine = slice(row, row + 1)
            key, value = keys[mine, :, seen].to(query.dtype), values[mine, :, seen].to(query.dtype)
            gathered.append(scaled_dot_product_attention(query[mine], key, value))
        return torch.cat(gathered)

    def _together(self, query: Tensor, window: int | None) -> Tensor:
        longest = max(self._cache.lengths)
        return scaled_dot_product_attention(
            query,
            self._cache.keys[self._layer, :, :, :longest].to(query.dtype),
            self._cache.values[self._layer, :, :, :longest].to(query.dtype),
            attn_mask=self._seen(longest, window)[:, None, None],
        )

    def _seen(self, longest: int, window: int | None) -> Bool[Tensor, "rows longest"]:
        places = torch.arange(longest, device=self.positions.device)
        seen = places <= self.positions[:, None]
        return seen if window is None else seen & (places > self.positions[:, None] - window)


Cached = TypeVar("Cached", AttendPrompts, AttendSuffixes, AttendNext)


def _of_layer(attend: Cached, layer: int) -> Cached:
    other = copy(attend)
    other._layer = layer
    return other


def _later_rows(queries: int, keys: int, window: int | None, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """What the last so many of all tokens see."""
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return seen if window is None else seen.triu(keys - queries + 1 - window)
