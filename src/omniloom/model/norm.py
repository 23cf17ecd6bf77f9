"""Norms of the residual stream."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from omniloom.model.config import Norm


class RMSNorm(nn.Module):
    """Divides by the root of the mean square over the last dimension, then scales; computed in float32.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, equation 4.
    """

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, inputs: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
        """The normed rows, in the type of the inputs."""
        return functional.rms_norm(inputs, self.weight.shape, self.weight, self.eps)


def make_norm(kind: Norm, dim: int, *, eps: float) -> nn.Module:
    """A norm of this kind over `dim` features."""
    return RMSNorm(dim, eps=eps) if kind == "rms" else nn.LayerNorm(dim, eps=eps)
