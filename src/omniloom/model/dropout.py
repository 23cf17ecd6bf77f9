"""Dropout: while a part of the model learns, some of what goes through it is left out, drawn anew for each batch.

Little data is learned by heart before it is understood; what is left out cannot be leaned on. Sources: Srivastava et
al. 2014; on what a layer adds to its stream and on what enters the first layer, Vaswani et al. 2017, section 5.4; whole
words, so that a caption's next word has to be told from the image, Bowman et al. 2016, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from omniloom.errors import ConfigError

_DRAWS = "draws"


@dataclass(frozen=True, kw_only=True)
class DropoutConfig:
    """How much of a part is left out.

    Attributes:
        stream: share of the features that enter the first layer, and of those that each half of a layer adds.
        words: share of the words whose embedding is zero; of a language model.
    """

    stream: float = 0.0
    words: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.stream < 1 and 0 <= self.words < 1):
            raise ConfigError(
                f"dropout: stream {self.stream:g} and words {self.words:g} found; shares from 0 to below 1 expected."
            )


def add_dropout(model: nn.Module, parts: Mapping[str, DropoutConfig]) -> None:
    """Let parts of a model leave something out in training mode; in evaluation mode they are as they were.

    What is drawn comes from torch's own generator: seed it before each batch (`draws` tells whether to).

    Args:
        model: its children are the parts.
        parts: settings by name of a child.

    Raises:
        ConfigError: a child has no layers of ours, or no words where some are to be left out.
    """
    for name, config in parts.items():
        part = model.get_submodule(name)
        layers = getattr(part, "layers", None)
        if not isinstance(layers, nn.ModuleList) or not all(hasattr(one, "attention") for one in layers):
            raise ConfigError(f"parts.{name}.dropout: found, but this part has no layers of ours. Leave it out.")
        if config.words and not hasattr(part, "embed_tokens"):
            raise ConfigError(f"parts.{name}.dropout.words: {config.words:g} found, but this part has no words.")
        if config.stream:
            layers[0].register_forward_pre_hook(_Entering(config.stream))
            for layer in layers:
                for half in ("attention", "mlp"):
                    layer.get_submodule(half).register_forward_hook(_Added(config.stream))
        if config.words:
            part.get_submodule("embed_tokens").register_forward_hook(_Words(config.words))
        setattr(model, _DRAWS, draws(model) or config != DropoutConfig())


def draws(model: nn.Module) -> bool:
    """Whether what a model gives in training hangs on draws."""
    return bool(getattr(model, _DRAWS, False))


@dataclass(frozen=True)
class _Entering:
    """Leaves out features of what a layer is given."""

    share: float

    def __call__(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (functional.dropout(given[0], self.share, module.training), *given[1:])


@dataclass(frozen=True)
class _Added:
    """Leaves out features of what a module gives."""

    share: float

    def __call__(self, module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
        return functional.dropout(output, self.share, module.training)


@dataclass(frozen=True)
class _Words:
    """Leaves out whole embeddings. Those that stay are not made larger: a word is there, or it is not."""

    share: float

    def __call__(self, module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
        if not module.training:
            return output
        stay = torch.rand(output.shape[:-1], device=output.device) >= self.share
        return output * stay[..., None].to(output.dtype)
