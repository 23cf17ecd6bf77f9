"""One step: the loss of a global batch, whatever way it was cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, distributed, nn

from omniloom.model.loss import LossSum
from omniloom.parallel.plan import sum_gradients_after
from omniloom.train.optimizer import gradient_norm, scale_gradients


class MicroBatch(Protocol):
    """What a step is given: a thing of which the loss can be taken."""

    def loss(self, model: nn.Module) -> LossSum:
        """The summed loss of its labelled tokens."""

    @property
    def learned_tokens(self) -> int:
        """Labelled tokens, known before the loss is."""

    @property
    def learned_of_groups(self) -> Sequence[int]:
        """Labelled tokens of each group of tokens whose losses are told apart; of all micro-batches alike, or none."""


class Pipeline(Protocol):
    """What takes gradients where the layers of a model are those of several ranks, one after another."""

    def accumulate(self, micro_batches: Sequence[Any], *, learned: int) -> Tensor:
        """Add the gradients of the summed loss divided by `learned`; returns the sum, and those of groups."""

    def gradient_norm(self, parameters: Sequence[nn.Parameter], norm: Callable[[list[nn.Parameter]], Tensor]) -> Tensor:
        """The norm of the gradients of all stages as one vector; `norm` gives that of some of one stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step gave; equal on all ranks.

    Attributes:
        loss: mean loss of the learned tokens of the global batch, in nats.
        learned_tokens: how many there are.
        gradient_norm: before clipping.
        applied: whether the weights were changed; not so when loss or norm is no finite number.
        group_losses: summed loss of each group of tokens, where they have groups.
        group_tokens: learned tokens of each.
    """

    loss: float
    learned_tokens: int
    gradient_norm: float
    applied: bool
    group_losses: tuple[float, ...] = ()
    group_tokens: tuple[int, ...] = ()


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[MicroBatch],
    *,
    clip_norm: float,
    group: distributed.ProcessGroup | None = None,
    most_norm: float = float("inf"),
    pipeline: Pipeline | None = None,
) -> StepResult:
    """Take the gradients of the micro-batches of this rank, and step.

    The gradient is that of the summed loss of all ranks' micro-batches, divided by all their learned tokens: so neither
    the number of ranks nor the size of micro-batches changes it.

    Args:
        model: sums gradients over ranks (`parallel.data`), where there are several.
        optimizer: of its trained parameters, with the rate set.
        micro_batches: of this rank.
        clip_norm: gradients are scaled down to this norm; 0: not.
        group: data-parallel ranks; ``None``: this process alone.
        most_norm: a greater norm leaves the weights as they are (guard against spikes).
        pipeline: takes the gradients where the model is cut into stages.
    """
    device = next(model.parameters()).device
    counts = [[each.learned_tokens, *each.learned_of_groups] for each in micro_batches]
    tokens = torch.tensor(counts, dtype=torch.int64).sum(dim=0).to(device)
    if group is not None:
        distributed.all_reduce(tokens, group=group)
    of_all, *of_groups = tokens.tolist()
    learned = max(1, of_all)
    if pipeline is None:
        totals = _accumulate(model, micro_batches, learned=learned)
    else:
        totals = pipeline.accumulate(micro_batches, learned=learned)
    if group is not None:
        distributed.all_reduce(totals, group=group)
    total, *losses_of_groups = totals.tolist()
    loss = total / learned
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norm = float(gradient_norm(parameters) if pipeline is None else pipeline.gradient_norm(parameters, gradient_norm))
    applied = math.isfinite(loss) and math.isfinite(norm) and norm <= most_norm
    if applied:
        if clip_norm and norm > clip_norm:
            scale_gradients(parameters, clip_norm / (norm + 1e-6))
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(
        loss=loss,
        learned_tokens=of_all,
        gradient_norm=norm,
        applied=applied,
        group_losses=tuple(losses_of_groups),
        group_tokens=tuple(of_groups),
    )


def _accumulate(model: nn.Module, micro_batches: Sequence[MicroBatch], *, learned: int) -> Tensor:
    totals = torch.zeros(1 + len(micro_batches[0].learned_of_groups), device=next(model.parameters()).device)
    for index, micro_batch in enumerate(micro_batches):
        sum_gradients_after(model, last=index == len(micro_batches) - 1)
        found = micro_batch.loss(model)
        (found.total / learned).backward()  # type: ignore[no-untyped-call]
        totals[0] += found.total.detach()
        if found.by_group is not None:
            totals[1:] += found.by_group
    return totals


@torch.no_grad()
def mean_loss(
    model: nn.Module, micro_batches: Iterable[MicroBatch], *, group: distributed.ProcessGroup | None = None
) -> tuple[float, int]:
    """The mean loss of some micro-batches over all ranks, and their learned tokens; nothing is learned."""
    device = next(model.parameters()).device
    sums = torch.zeros(2, device=device, dtype=torch.float64)
    for micro_batch in micro_batches:
        summed = micro_batch.loss(model)
        sums += torch.stack(
            [summed.total.double(), torch.tensor(float(summed.tokens), dtype=torch.float64, device=device)]
        )
    if group is not None:
        distributed.all_reduce(sums, group=group)
    return float(sums[0]) / max(1.0, float(sums[1])), int(sums[1])
