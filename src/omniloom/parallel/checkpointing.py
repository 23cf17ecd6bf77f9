"""Memory for time, layer by layer: activations that are computed again, and layers that are compiled.

Both take the place of a layer's ``forward``, so that names of parameters and what wraps the layer stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from omniloom.errors import ConfigError
from omniloom.model.attention import Attend
from omniloom.model.dropout import draws
from omniloom.model.hugging_face import HuggingFaceDecoder
from omniloom.parallel.layers import layers_of


def recompute_layers(model: nn.Module, every: Mapping[str, int]) -> None:
    """Let layers keep their inputs alone, and compute what is in them again for their gradients.

    The values are those that were there before, so losses and gradients are the same to the last bit where the
    kernels are deterministic. Apply it before a model is sharded.

    Args:
        model: its children are the parts, such as ``vision_tower`` and ``language_model``.
        every: by name of a part: 1 for each of its layers, ``n`` for the first and each ``n``-th after it, 0 for none.

    Raises:
        ConfigError: a name is not a child's, a child has no layers, or a number is below 0.
    """
    parts = {name: list(layers_of(part)) for name, part in model.named_children()}
    layered = [name for name, layers in parts.items() if layers]
    for name, number in every.items():
        if name not in layered:
            raise ConfigError(f"parallel.recompute: {name!r} found; one of {', '.join(layered)} expected.")
        if number < 0:
            raise ConfigError(f"parallel.recompute: {name}: {number} found; at least 0 expected.")
        # Where no layer draws random numbers, their state need not be kept.
        drawing = draws(model) or isinstance(model.get_submodule(name), HuggingFaceDecoder)
        for layer in parts[name][::number] if number else ():
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=drawing)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer, what is outside of attention; layers of one shape share what was compiled.

    Attention over packed documents stays as it is: its program is the lengths of the documents, which no two batches
    share. Apply it before `recompute_layers`, and before a model is sharded.
    """
    for layer in layers_of(model):
        layer.forward = partial(_call_compiled, torch.compile(layer.forward, dynamic=True))


def _call_compiled(forward: Callable[..., Tensor], *inputs: Any) -> Tensor:
    return forward(*(_Uncompiled(each) if isinstance(each, Attend) else each for each in inputs))


class _Uncompiled:
    """Attention that a compiled layer calls, but does not look into."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
        """What each token gathers."""
        return self._attend(query, key, value, window=window)
