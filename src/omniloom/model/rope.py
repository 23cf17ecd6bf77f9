"""Rotary positions: pairs of features turn with the position, so that scores depend on distances only.

Feature `i` is paired with feature `i + head_dim / 2` (the half-split order of Hugging Face and Megatron; Meta's own
files pair neighbours, which is a permutation of rows of the query and key maps). Nothing is stored: the tables are
made from the positions at each forward, so a model on the meta device has no buffers to fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from omniloom.model.config import RopeConfig

RopeTable = tuple[Float[Tensor, "tokens head_dim"], Float[Tensor, "tokens head_dim"]]


def rope_table(rope: RopeConfig, positions: Int[Tensor, " tokens"], *, head_dim: int, dtype: torch.dtype) -> RopeTable:
    """Cosine and sine of the angle of each feature at each position; angles in float32, result in `dtype`."""
    speeds = frequencies(rope, head_dim=head_dim, device=positions.device)
    angles = positions[:, None].float() * speeds
    angles = torch.cat([angles, angles], dim=-1)
    scale = attention_factor(rope)
    return (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)


def rotate(
    inputs: Float[Tensor, "tokens heads head_dim"],
    table: RopeTable,
) -> Float[Tensor, "tokens heads head_dim"]:
    """The features, turned by the angles of their tokens."""
    cosine, sine = table
    first, second = inputs.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return inputs * cosine[:, None] + turned * sine[:, None]


def frequencies(rope: RopeConfig, *, head_dim: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """Radians per position of each pair of features, float32.

    Sources: Su et al., RoFormer, section 3.2.2 (``default``); Chen et al., Positional Interpolation (``linear``);
    Meta's reference code of Llama 3.1 (``llama3``); Peng et al., YaRN, section 3.2 (``yarn``).
    """
    exponents = torch.arange(0, head_dim, 2, device=device).float() / head_dim
    return _SCALINGS[rope.kind](rope, 1.0 / rope.theta**exponents)


def attention_factor(rope: RopeConfig) -> float:
    """What cosine and sine are multiplied by; 1 but for ``yarn`` (YaRN, equation 22)."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    return 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0


def _default(_: RopeConfig, speeds: Tensor) -> Tensor:
    return speeds


def _linear(rope: RopeConfig, speeds: Tensor) -> Tensor:
    return speeds / rope.factor


def _llama3(rope: RopeConfig, speeds: Tensor) -> Tensor:
    turns = (rope.original_positions or 0) * speeds / (2 * math.pi)  # within the original context
    band = rope.high_frequency_factor - rope.low_frequency_factor
    keep = ((turns - rope.low_frequency_factor) / band).clamp(0, 1)
    return (1 - keep) * speeds / rope.factor + keep * speeds


def _yarn(rope: RopeConfig, speeds: Tensor) -> Tensor:
    pairs = speeds.numel()

    def pair_that_turns(times: float) -> float:
        wave = (rope.original_positions or 0) / (times * 2 * math.pi)
        return pairs * math.log(wave) / math.log(rope.theta)

    low = max(math.floor(pair_that_turns(rope.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(rope.beta_slow)), 2 * pairs - 1)
    width = high - low or 0.001  # both borders on one pair would divide by zero
    slow = ((torch.arange(pairs, device=speeds.device) - low) / width).clamp(0, 1)
    return slow * speeds / rope.factor + (1 - slow) * speeds


_SCALINGS: dict[str, Callable[[RopeConfig, Tensor], Tensor]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
