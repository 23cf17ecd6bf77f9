"""The layers of a model, which are cut, recomputed and compiled one by one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of all towers and decoders in a model, in order: what lies in lists named ``layers``."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] == "layers":
            yield from module
