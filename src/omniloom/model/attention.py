"""Attention over packed documents: block-diagonal by construction, behind one function.

On the CPU (and for float32 on CUDA) documents of equal length are one call of scaled_dot_product_attention; in half
precision on CUDA one variable-length kernel does all of them. Neither ever computes a score between two documents,
so there is no mask that could be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
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
    """Causal attention, one call for all documents of a length."""
    alike = documents.alike
    moved = alike.moves(query.device)
    if moved is not None:
        query, key, value = (_Reordered.apply(each, *moved) for each in (query, key, value))  # type: ignore[no-untyped-call]
    # Split and not sliced: the gradient of a slice is as large as the whole row, so many slices would be quadratic.
    cut = [torch.split(each, [number * length for number, length in alike.groups]) for each in (query, key, value)]
    gathered = torch.cat(
        [
            _attend_alike(*(each.unflatten(0, (number, length)) for each in parts), window=window)
            for (number, length), *parts in zip(alike.groups, *cut, strict=True)
        ]
    )
    if moved is None:
        return gathered
    order, places = moved
    back: Tensor = _Reordered.apply(gathered, places, order)  # type: ignore[no-untyped-call]
    return back


def _attend_alike(query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
    """Documents of one length: (documents, tokens, heads, head_dim) to (documents x tokens, heads, head_dim)."""
    tokens = query.shape[1]
    mask = None if window is None or window >= tokens else _window_mask(tokens, window, query.device)
    return _attend(query, key, value, mask=mask, causal=mask is None).flatten(0, 1)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention over (rows, tokens, heads, head_dim); on the CPU in float32, five times as fast as half precision."""
    kind, grouped, on_cpu = value.dtype, query.shape[2] != key.shape[2], query.device.type == "cpu"
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    if on_cpu:
        query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False) if on_cpu else nullcontext():
        gathered = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    return gathered.transpose(1, 2).to(kind)


class _Reordered(torch.autograd.Function):
    """Rows in another order. That it is one makes its gradient a copy, where that of indexing adds up row by row."""

    @staticmethod
    def forward(context: Any, rows: Tensor, order: Tensor, places: Tensor) -> Tensor:
        context.save_for_backward(order, places)
        return rows.index_select(0, order)

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        order, places = context.saved_tensors
        back: Tensor = _Reordered.apply(upstream, places, order)  # type: ignore[no-untyped-call]
        return back, None, None


def _window_mask(tokens: int, window: int, device: torch.device) -> Bool[Tensor, "tokens tokens"]:
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril().triu(1 - window)


def attend_all(
    query: Float[Tensor, "images tokens heads head_dim"],
    key: Float[Tensor, "images tokens heads head_dim"],
    value: Float[Tensor, "images tokens heads head_dim"],
) -> Float[Tensor, "images tokens heads head_dim"]:
    """Each token of an image sees all of that image."""
    return _attend(query, key, value)


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
