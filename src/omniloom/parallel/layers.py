"""The layers of a model, which are cut, recomputed and compiled one by one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

LAYER_LISTS = ("layers", "h", "blocks")
"""Ours, and those of models that transformers runs (`omniloom.model.hugging_face`)."""


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of all towers and decoders in a model, in order: what lies in lists of such names."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in LAYER_LISTS:
            yield from module
