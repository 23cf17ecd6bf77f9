"""Attention over packed documents: block-diagonal by construction, behind one function.

On the CPU (and for float32 on CUDA) each document is a call of scaled_dot_product_attention of its own; in half
precision on CUDA one variable-length kernel does all of them. Neither ever computes a score between two documents,
so there is no mask that could be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from omniloom.model.documents import Documents

_HALF = {torch.float16, torch.bfloat16}
_KERNEL_DEVICES = {"cuda", "meta"}  # on the meta device its shapes are checked without a GPU


@runtime_checkable
class Attend(Protocol):
    """What the tokens of a forward may see; given to the layers, which know nothing of packing or caches.

    Attributes:
        positions: position of each token within its document.
    """

    positions: Int[Tensor, " tokens"]

    def __call__(
        self,
        query: Float[Tensor, "tokens heads head_dim"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "tokens heads head_dim"]:
        """What each token gathers; a window counts tokens, the token itself included."""

    def at(self, layer: int) -> Attend:
        """What attends in layer `layer`. Layers do not know their number: one compiled layer serves for all."""


class AttendPacked:
    """Each token sees its own document up to itself."""

    def __init__(self, documents: Documents, device: torch.device) -> None:
        self.documents = documents
        self.positions = documents.positions(device)
        self._cumulative = documents.cumulative(device)
        self._longest = documents.longest
        self._kernel = kernel_on(device)

    def __call__(
        self,
        query: Float[Tensor, "tokens heads head_dim"],
        key: Float[Tensor, "tokens kv_heads head_dim"],
        value: Float[Tensor, "tokens kv_heads head_dim"],
        *,
        window: int | None,
    ) -> Float[Tensor, "tokens heads head_dim"]:
        """What each token gathers from its document."""
        if self._kernel is None or query.dtype not in _HALF:
            return attend_each_document(query, key, value, self.documents, window=window)
        gathered: Tensor = self._kernel(
            query,
            key,
            value,
            self._cumulative,
            self._cumulative,
            self._longest,
            self._longest,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return gathered

    def at(self, layer: int) -> Attend:
        """The same in every layer."""
        return self


def attend_each_document(
    query: Float[Tensor, "tokens heads head_dim"],
    key: Float[Tensor, "tokens kv_heads head_dim"],
    value: Float[Tensor, "tokens kv_heads head_dim"],
    documents: Documents,
    *,
    window: int | None,
) -> Float[Tensor, "tokens heads head_dim"]:
    """Causal attention, one call a document."""
    gathered = [
        _attend_one(query[start:stop], key[start:stop], value[start:stop], window=window)
        for start, stop in documents.spans()
    ]
    return torch.cat(gathered)


def _attend_one(query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
    tokens = query.shape[0]
    mask = None if window is None or window >= tokens else _window_mask(tokens, window, query.device)
    gathered = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return gathered[0].transpose(0, 1)


def _window_mask(tokens: int, window: int, device: torch.device) -> Bool[Tensor, "tokens tokens"]:
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril().triu(1 - window)


def attend_all(
    query: Float[Tensor, "images tokens heads head_dim"],
    key: Float[Tensor, "images tokens heads head_dim"],
    value: Float[Tensor, "images tokens heads head_dim"],
) -> Float[Tensor, "images tokens heads head_dim"]:
    """Each token of an image sees all of that image."""
    gathered = scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
    return gathered.transpose(1, 2)


def kernel_on(device: torch.device) -> Callable[..., Any] | None:
    """The variable-length attention of a device for half precision, or ``None``."""
    return _variable_length_kernel() if device.type in _KERNEL_DEVICES else None


@cache
def _variable_length_kernel() -> Callable[..., Any] | None:
    """The variable-length attention of torch; None where torch is too old to have it, or windows and groups in it."""
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - only newer torch has it
    except ImportError:
        return None
    known = signature(varlen_attn).parameters
    return varlen_attn if {"window_size", "enable_gqa"} <= known.keys() else None
