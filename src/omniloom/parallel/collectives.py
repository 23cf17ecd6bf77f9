"""Collectives with gradients: each says what is done on the way forth, and what its adjoint does on the way back.

Sources: Shoeybi et al., Megatron-LM, section 3 (its operators f and g); Korthikanti et al., Reducing Activation
Recomputation, section 4.2.2 (gathers and scatters of tokens); Jacobs et al., DeepSpeed Ulysses, section 3.1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import Function, once_differentiable

Group = distributed.ProcessGroup

# Newer torch has them under other names, and warns of these.
_gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
_reduce = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


def sum_gradients(inputs: Tensor, group: Group) -> Tensor:
    """The same values, whose gradient is the sum of all ranks' gradients: what enters a computation that is cut."""
    output: Tensor = _SumGradients.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


def sum_values(inputs: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' values, whose gradient is taken as it is: what leaves a computation that is cut."""
    output: Tensor = _SumValues.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


def gather_rows(own: Tensor, group: Group) -> Tensor:
    """All ranks' rows, one rank's after another's; gradients are summed over ranks, and each takes its rows'."""
    output: Tensor = _GatherRows.apply(own, group)  # type: ignore[no-untyped-call]
    return output


def sum_to_own_rows(inputs: Tensor, group: Group) -> Tensor:
    """The own rows of the sum of all ranks' values; the gradient is that of all ranks' rows."""
    output: Tensor = _SumToOwnRows.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


def take_own_rows(inputs: Tensor, group: Group) -> Tensor:
    """The own rows of what all ranks have alike; the gradient is that of all ranks' rows."""
    output: Tensor = _TakeOwnRows.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


def join_rows(own: Tensor, group: Group) -> Tensor:
    """All ranks' rows, for a computation that all ranks do alike; of its gradient each takes its rows'."""
    output: Tensor = _JoinRows.apply(own, group)  # type: ignore[no-untyped-call]
    return output


def exchange(blocks: Tensor, group: Group) -> Tensor:
    """Block ``i`` goes to rank ``i``, and block ``i`` came from rank ``i``; gradients go the same ways back."""
    output: Tensor = _Exchange.apply(blocks, group)  # type: ignore[no-untyped-call]
    return output


class _SumGradients(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: Group) -> Tensor:
        context.group = group
        return inputs.view_as(inputs)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        # A copy: the tensor may be another gradient's as well.
        summed = upstream.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed, group=context.group)
        return summed, None


class _SumValues(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: Group) -> Tensor:
        summed = inputs.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed, group=group)
        return summed

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream, None


class _GatherRows(Function):
    @staticmethod
    def forward(context: Any, own: Tensor, group: Group) -> Tensor:
        context.group = group
        return _gathered(own, group)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _own_of_sum(upstream, context.group), None


class _SumToOwnRows(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: Group) -> Tensor:
        context.group = group
        return _own_of_sum(inputs, group)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _gathered(upstream, context.group), None


class _TakeOwnRows(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: Group) -> Tensor:
        context.group = group
        return _own(inputs, group).clone()

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _gathered(upstream, context.group), None


class _JoinRows(Function):
    @staticmethod
    def forward(context: Any, own: Tensor, group: Group) -> Tensor:
        context.group = group
        return _gathered(own, group)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _own(upstream, context.group).contiguous(), None


class _Exchange(Function):
    @staticmethod
    def forward(context: Any, blocks: Tensor, group: Group) -> Tensor:
        context.group = group
        return _exchanged(blocks, group)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _exchanged(upstream, context.group), None


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
    return whole.narrow(0, rows * distributed.get_rank(group), rows)


def _exchanged(blocks: Tensor, group: Group) -> Tensor:
    received = torch.empty_like(blocks, memory_format=torch.contiguous_format)
    distributed.all_to_all_single(received, blocks.contiguous(), group=group)
    return received
