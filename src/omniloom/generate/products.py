"""Products of float32 matrices on a CPU through oneDNN, for as long as answers are made.

Torch gives such products to its BLAS, which packs a matrix anew at each call and, on some processors, does not use
their widest instructions: for 16 rows, as many as are answered together, oneDNN takes half the time or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from omniloom.model.decoder import Decoder

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
_LARGEST_DIFFERENCE = 1e-4


@contextmanager
def quick_products(model: nn.Module) -> Iterator[None]:
    """Within it, the linear maps of a model on a CPU, in float32, are computed by oneDNN; gradients are not.

    A map that something else computes already (of several ranks, say) stays as it is.

    Args:
        model: as it was, afterwards.
    """
    product = _product()
    changed: list[tuple[nn.Module, str]] = []
    if product is not None:
        for module in model.modules():
            if type(module) is nn.Linear and "forward" not in module.__dict__ and _fits(module.weight):
                _replace(module, "forward", _map_of(module, product), changed)
            if type(module) is Decoder and "logits" not in module.__dict__ and _fits(module.head_weight):
                _replace(module, "logits", _scores_of(module, product), changed)
    try:
        yield
    finally:
        for module, name in changed:
            del module.__dict__[name]


def _replace(
    module: nn.Module, name: str, method: Callable[[Tensor], Tensor], changed: list[tuple[nn.Module, str]]
) -> None:
    module.__dict__[name] = method
    changed.append((module, name))


def _fits(weight: Tensor) -> bool:
    return type(weight) in (Tensor, nn.Parameter) and weight.device.type == "cpu" and weight.dtype == torch.float32


def _map_of(linear: nn.Linear, product: Product) -> Callable[[Tensor], Tensor]:
    def forward(inputs: Tensor) -> Tensor:
        return product(inputs, linear.weight, linear.bias)

    return forward


def _scores_of(decoder: Decoder, product: Product) -> Callable[[Tensor], Tensor]:
    def logits(stream: Tensor) -> Tensor:
        return product(stream, decoder.head_weight, None)

    return logits


@cache
def _product() -> Product | None:
    """The product of this torch's oneDNN, or ``None`` where it has none or another one than torch itself."""
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if found is None:
        return None

    def product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if inputs.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return functional.linear(inputs, weight, bias)
        result: Tensor = found(inputs, weight, bias, "none", [], "")
        return result

    generator = torch.Generator().manual_seed(0)
    inputs, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((3, 32), (16, 32), (16,)))
    try:
        difference = product(inputs, weight, bias) - functional.linear(inputs, weight, bias)
    except (RuntimeError, TypeError):  # torch built without oneDNN, or with another one's arguments
        return None
    return product if difference.abs().max().item() < _LARGEST_DIFFERENCE else None
