"""Collectives with gradients: each says what is done on the way forth, and what its adjoint does on the way back.

Sources: Shoeybi et al., Megatron-LM, section 3 (its operators f and g); Korthikanti et al., Reducing Activation
Recomputation, section 4.2.2 (gathers and scatters of tokens); Jacobs et al., DeepSpeed Ulysses, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import Function, once_differentiable

Group = distributed.ProcessGroup

Way = Callable[[Tensor, Group], Tensor]
"""What is done with values on all ranks of a group."""

# Newer torch has them under other names, and warns of these.
_gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
_reduce = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


def sum_gradients(inputs: Tensor, group: Group) -> Tensor:
    """The same values, whose gradient is the sum of all ranks' gradients: what enters a computation that is cut."""
    return _there_and_back(inputs, group, _same, _sum)


def sum_values(inputs: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' values, whose gradient is taken as it is: what leaves a computation that is cut."""
    return _there_and_back(inputs, group, _sum, _same)


def gather_rows(own: Tensor, group: Group) -> Tensor:
    """All ranks' rows, one rank's after another's; gradients are summed over ranks, and each takes its rows'."""
    return _there_and_back(own, group, _gathered, _own_of_sum)


def sum_to_own_rows(inputs: Tensor, group: Group) -> Tensor:
    """The own rows of the sum of all ranks' values; the gradient is that of all ranks' rows."""
    return _there_and_back(inputs, group, _own_of_sum, _gathered)


def take_own_rows(inputs: Tensor, group: Group) -> Tensor:
    """The own rows of what all ranks have alike; the gradient is that of all ranks' rows."""
    return _there_and_back(inputs, group, _own, _gathered)


def join_rows(own: Tensor, group: Group) -> Tensor:
    """All ranks' rows, for a computation that all ranks do alike; of its gradient each takes its rows'."""
    return _there_and_back(own, group, _gathered, _own)


def exchange(blocks: Tensor, group: Group) -> Tensor:
    """Block ``i`` goes to rank ``i``, and block ``i`` came from rank ``i``; gradients go the same ways back."""
    return _there_and_back(blocks, group, _exchanged, _exchanged)


class _ThereAndBack(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: Group, there: Way, back: Way) -> Tensor:
        context.group, context.back = group, back
        return there(inputs, group)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        return context.back(upstream, context.group), None, None, None


def _there_and_back(inputs: Tensor, group: Group, there: Way, back: Way) -> Tensor:
    output: Tensor = _ThereAndBack.apply(inputs, group, there, back)  # type: ignore[no-untyped-call]
    return output


def _same(values: Tensor, _: Group) -> Tensor:
    return values.view_as(values)


def _sum(values: Tensor, group: Group) -> Tensor:
    # A copy: a gradient may be another tensor's as well.
    summed = values.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(summed, group=group)
    return summed


def _gathered(own: Tensor, group: Group) -> Tensor:
    whole = own.new_empty(own.shape[0] * distributed.get_world_size(group), *own.shape[1:])
    _gather(whole, own.contiguous(), group=group)
    return whole


def _own_of_sum(whole: Tensor, group: Group) -> Tensor:
    own = whole.new_empty(whole.shape[0] // distributed.get_world_size(group), *whole.shape[1:])
    _reduce(own, whole.contiguous(), group=group)
    return own


def _own(whole: Tensor, group: Group) -> Tensor:
    rows = whole.shape[0] // distributed.get_world_size(group)
    return whole.narrow(0, rows * distributed.get_rank(group), rows).clone(memory_format=torch.contiguous_format)


def _exchanged(blocks: Tensor, group: Group) -> Tensor:
    received = torch.empty_like(blocks, memory_format=torch.contiguous_format)
    distributed.all_to_all_single(received, blocks.contiguous(), group=group)
    return received
