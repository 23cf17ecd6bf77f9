"""Keys and values of what was said already, for generating token by token.

A cache has a fixed number of rows and a fixed capacity; each row knows how far it is filled, so rows of different
lengths need no padding. `AttendPrompts` fills it from packed prompts, `AttendNext` adds one token a row.
"""

from __future__ import annotations

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


class KeyValueCache:
    """Room for the keys and values of `rows` documents of up to `capacity_tokens`.

    Attributes:
        keys, values: ``[layers, rows, capacity, kv_heads, head_dim]``.
        lengths: tokens in each row, int64.
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
        shape = (config.num_layers, rows, capacity_tokens, heads, config.head_dim)
        self.keys: Float[Tensor, "layers rows capacity kv_heads head_dim"]
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values: Float[Tensor, "layers rows capacity kv_heads head_dim"] = torch.zeros_like(self.keys)
        self.lengths: Int[Tensor, " rows"] = torch.zeros(rows, dtype=torch.int64, device=device)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.shape[1]

    @property
    def capacity_tokens(self) -> int:
        """Tokens that a row can hold."""
        return self.keys.shape[2]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Drop all rows but these, in this order: what is finished need not be computed on."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.lengths = self.lengths[rows]

    def write(
        self,
        layer: int,
        rows: Int[Tensor, " tokens"],
        positions: Int[Tensor, " tokens"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
    ) -> None:
        """Put the keys and values of tokens at their rows and positions."""
        self.keys[layer, rows, positions] = key.to(self.keys.dtype)
        self.values[layer, rows, positions] = value.to(self.values.dtype)


class AttendPrompts(AttendPacked):
    """Packed prompts, one a row of the cache, whose keys and values are kept."""

    def __init__(self, documents: Documents, cache: KeyValueCache) -> None:
        if len(documents) != cache.rows or documents.longest > cache.capacity_tokens:
            raise InputError(
                f"{len(documents)} prompts of up to {documents.longest} tokens for a cache of {cache.rows} rows and "
                f"{cache.capacity_tokens} tokens. Make the cache for these prompts."
            )
        super().__init__(documents, cache.keys.device)
        self._cache = cache
        self._layer = 0
        self._rows = documents.numbers(cache.keys.device)
        cache.lengths = torch.tensor(documents.lengths, dtype=torch.int64, device=cache.keys.device)

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


class AttendNext:
    """One more token in every row: it sees its row of the cache, and itself.

    `longest` is the length of the longest row with this token, known to the caller without asking the device.
    """

    def __init__(self, cache: KeyValueCache, *, longest: int) -> None:
        if longest > cache.capacity_tokens:
            raise InputError(
                f"a row of {longest} tokens in a cache of {cache.capacity_tokens}. Make the cache for the prompt and "
                "all tokens that may follow."
            )
        self._cache = cache
        self._layer = 0
        self._longest = longest
        self._rows = torch.arange(cache.rows, device=cache.keys.device)
        self.positions = cache.lengths.clone()
        cache.lengths += 1

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
        gathered = scaled_dot_product_attention(
            query[:, :, None],
            self._cache.keys[self._layer, :, : self._longest].transpose(1, 2).to(query.dtype),
            self._cache.values[self._layer, :, : self._longest].transpose(1, 2).to(query.dtype),
            attn_mask=self._seen(window)[:, None, None],
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return gathered[:, :, 0]

    def at(self, layer: int) -> Attend:
        """The same, with the keys and values of another layer."""
        return _of_layer(self, layer)

    def _seen(self, window: int | None) -> Bool[Tensor, "rows longest"]:
        places = torch.arange(self._longest, device=self.positions.device)
        seen = places <= self.positions[:, None]
        return seen if window is None else seen & (places > self.positions[:, None] - window)


Cached = TypeVar("Cached", AttendPrompts, AttendNext)


def _of_layer(attend: Cached, layer: int) -> Cached:
    other = copy(attend)
    other._layer = layer
    return other
