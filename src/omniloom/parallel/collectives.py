"""Sums over the ranks of a tensor-parallel group, on the way forth or on the way back.

Source: Shoeybi et al., Megatron-LM, section 3 (its operators f and g).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import Function, once_differentiable


def sum_gradients(inputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """The same values, whose gradient is the sum of all ranks' gradients: what enters a computation that is cut."""
    output: Tensor = _SumGradients.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


def sum_values(inputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """The sum of all ranks' values, whose gradient is taken as it is: what leaves a computation that is cut."""
    output: Tensor = _SumValues.apply(inputs, group)  # type: ignore[no-untyped-call]
    return output


class _SumGradients(Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
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
    def forward(context: Any, inputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
        summed = inputs.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed, group=group)
        return summed

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream, None
