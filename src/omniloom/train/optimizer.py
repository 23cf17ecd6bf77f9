"""The optimizer and the gradients' norm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.train.parts import PartConfig, parameter_groups


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW.

    Attributes:
        beta1, beta2: decay of the averages of gradients and of their squares.
        epsilon: added to the root.
        weight_decay: of matrices.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.epsilon > 0):
            raise ConfigError(
                f"optimizer: beta1 {self.beta1:g}, beta2 {self.beta2:g}, epsilon {self.epsilon:g} found; "
                "betas from 0 to below 1 and an epsilon above 0 expected."
            )
        if self.weight_decay < 0:
            raise ConfigError(f"optimizer: weight_decay {self.weight_decay:g} found; it cannot be below 0.")


def make_optimizer(model: nn.Module, parts: Mapping[str, PartConfig], config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over what is trained; fused on an accelerator, else many tensors at a time."""
    # A stage of a pipeline may have nothing to learn; torch wants a group at least.
    nothing = {"name": "nothing", "params": [], "weight_decay": 0.0, "rate": 1.0}
    groups = parameter_groups(model, parts, weight_decay=config.weight_decay) or [nothing]
    on_accelerator = all(parameter.is_cuda for group in groups for parameter in group["params"])
    optimizer = torch.optim.AdamW(
        groups,
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=on_accelerator,
        foreach=None if on_accelerator else True,
    )
    _make_states(optimizer)
    return optimizer


def _make_states(optimizer: torch.optim.AdamW) -> None:
    """Give each parameter the state that its first step would give it.

    A parameter that no gradient reaches (a tower's last norm, where features leave before it) would never get one, and
    a checkpoint would lack it.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            device = parameter.device if group["fused"] else "cpu"
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give each group the rate times its part's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm of all gradients as one vector, over every rank that holds a piece of them; float32."""
    norms = [_whole(torch.nn.utils.get_total_norm(gradients)) for gradients in _by_mesh(parameters)]
    if not norms:
        return torch.zeros(())
    return norms[0] if len(norms) == 1 else torch.stack(norms).norm()


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float | Tensor) -> None:
    """Multiply all gradients."""
    for gradients in _by_mesh(parameters):
        torch._foreach_mul_(gradients, factor)


def _by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[Tensor]]:
    """Gradients, apart by the ranks that their pieces lie on: torch does nothing with some of each at a time."""
    found: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            found.setdefault(getattr(parameter.grad, "device_mesh", None), []).append(parameter.grad)
    return list(found.values())


def _whole(norm: Tensor) -> Tensor:
    """A norm, of a distributed tensor put together from its pieces."""
    full = getattr(norm, "full_tensor", None)
    total: Tensor = full() if full is not None else norm
    return total.float()
