"""LoRA: a small product beside each chosen matrix is learned, the matrix stays; the product can be merged into it.

Source: Hu et al., LoRA, section 4.1. Both factors are parameters of the linear map itself (``lora_down``, ``lora_up``),
so that what cuts, shards and saves the map does so with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from omniloom.errors import ConfigError

DOWN, UP = "lora_down", "lora_up"


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Which matrices are given a product, and of what rank.

    Attributes:
        rank: features between the two factors.
        alpha: the product is scaled by ``alpha / rank``.
        matrices: ends of the names of linear maps.
    """

    rank: int = 16
    alpha: float = 32.0
    matrices: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha <= 0 or not self.matrices:
            raise ConfigError(
                f"lora: rank {self.rank}, alpha {self.alpha:g}, matrices {list(self.matrices)} found; a rank of at "
                "least 1, an alpha above 0 and the name of a matrix expected."
            )

    @property
    def scale(self) -> float:
        """Factor of the product."""
        return self.alpha / self.rank


def add_lora(model: nn.Module, parts: Mapping[str, LoraConfig]) -> None:
    """Give linear maps of some parts the two factors, without values on ``meta``, else with those of `fresh_factor`.

    Args:
        model: its children are the parts.
        parts: settings by name of a child.

    Raises:
        ConfigError: a name is not a child's, or a child has no such matrix.
    """
    children = dict(model.named_children())
    for part, config in parts.items():
        if part not in children:
            raise ConfigError(f"parts: {part!r} found; one of {', '.join(children)} expected.")
        found = list(_chosen(children[part], config))
        if not found:
            names = sorted({name.rpartition(".")[2] for name, _ in _linear_maps(children[part])})
            raise ConfigError(
                f"parts.{part}.lora.matrices: {', '.join(config.matrices)} found; some of {', '.join(names)} expected."
            )
        for name, linear in found:
            _add(linear, config, name=f"{part}.{name}")


def lora_forward(linear: nn.Linear, scale: float, inputs: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
    """The linear map with its product, by the factors that are found under their names."""
    down, up = getattr(linear, DOWN), getattr(linear, UP)
    own = functional.linear(inputs, linear.weight, linear.bias)
    return own + functional.linear(functional.linear(inputs, down), up) * scale


def scale_of(linear: nn.Module) -> float | None:
    """Factor of the product of a linear map; ``None`` where it has none."""
    scale = getattr(linear, "lora_scale", None)
    return float(scale) if isinstance(scale, float) else None


def is_lora(name: str) -> bool:
    """Whether a parameter is a factor of a product."""
    return name.rpartition(".")[2] in (DOWN, UP)


@torch.no_grad()
def merge_lora(model: nn.Module) -> None:
    """Add the products to their matrices, and take the factors away: the model gives what it gave, and is a plain one.

    The model is whole on this process.
    """
    for module in model.modules():
        scale = scale_of(module)
        if scale is None or not isinstance(module, nn.Linear):
            continue
        product = (getattr(module, UP).float() @ getattr(module, DOWN).float()) * scale
        module.weight += product.to(module.weight.dtype)
        for name in (DOWN, UP):
            delattr(module, name)
        del module.lora_scale, module.forward


def fresh_factor(name: str, shape: tuple[int, ...], *, seed: int) -> Tensor:
    """The value that a factor begins with, by its name in the whole model: so it is the same on any mesh.

    The first factor is uniform as torch begins linear maps, the second zero: the model begins as it was.

    Args:
        name: of the parameter.
        shape: of the whole parameter.
        seed: of the run.
    """
    if name.endswith(UP):
        return torch.zeros(shape)
    number = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest(), "big")
    bound = shape[1] ** -0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=torch.Generator().manual_seed(number))


def _add(linear: nn.Linear, config: LoraConfig, *, name: str) -> None:
    weight = linear.weight
    for factor, shape in ((DOWN, (config.rank, linear.in_features)), (UP, (linear.out_features, config.rank))):
        value = torch.empty(shape, dtype=weight.dtype, device=weight.device)
        if not weight.is_meta:
            value.copy_(fresh_factor(f"{name}.{factor}", shape, seed=0))
        linear.register_parameter(factor, nn.Parameter(value))
    linear.lora_scale = config.scale  # type: ignore[assignment]
    linear.forward = partial(lora_forward, linear, config.scale)  # type: ignore[method-assign]


def _chosen(part: nn.Module, config: LoraConfig) -> Iterator[tuple[str, nn.Linear]]:
    for name, linear in _linear_maps(part):
        if name.endswith(config.matrices):
            yield name, linear


def _linear_maps(part: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    for name, module in part.named_modules():
        if isinstance(module, nn.Linear) and name != "head":
            yield name, module
