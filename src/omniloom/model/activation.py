"""Activations under Hugging Face's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from omniloom.errors import ConfigError


def quick_gelu(inputs: Tensor) -> Tensor:
    """The input times the logistic function of 1.702 times it: OpenAI CLIP's."""
    return inputs * torch.sigmoid(1.702 * inputs)


def squared_relu(inputs: Tensor) -> Tensor:
    """The square of what is positive: the Nemotron models'."""
    return functional.relu(inputs).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu2": squared_relu,
    "silu": functional.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation {name!r} is not known. Use one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]
