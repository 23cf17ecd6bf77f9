"""Tells two models apart tensor by tensor, and sees whether one is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from omniloom.weights.source import Source

Tell = Callable[[int, int, str], None]


class Difference(NamedTuple):
    """One tensor in which two models differ.

    Attributes:
        name: our name.
        kind: ``missing`` on the left, ``extra`` there, or other ``shape``, ``dtype`` or ``numbers``.
        detail: what is on both sides.
        largest: largest absolute difference of two numbers; 0 where numbers were not compared.
    """

    name: str
    kind: Literal["missing", "extra", "shape", "dtype", "numbers"]
    detail: str
    largest: float = 0.0


class Fault(NamedTuple):
    """One tensor that cannot be right.

    Attributes:
        name: our name.
        detail: what is wrong with it.
    """

    name: str
    detail: str


def differences(left: Source, right: Source, *, tell: Tell | None = None) -> Iterator[Difference]:
    """Every tensor in which two models differ, bit by bit.

    Args:
        left: one model under our names.
        right: the other.
        tell: told of tensors done, tensors in all, and the name at hand.
    """
    names = sorted(left.tensors.keys() | right.tensors.keys())
    for number, name in enumerate(names, start=1):
        found = _difference(left, right, name)
        if found is not None:
            yield found
        if tell is not None:
            tell(number, len(names), name)


def faults(source: Source, *, tell: Tell | None = None) -> Iterator[Fault]:
    """Every tensor that cannot be right: numbers that are none, or a matrix of zeros.

    Args:
        source: a model under our names.
        tell: told of tensors done, tensors in all, and the name at hand.
    """
    for number, (name, info) in enumerate(source.tensors.items(), start=1):
        tensor = source.read(name)
        bad = int((~torch.isfinite(tensor)).sum()) if info.dtype.is_floating_point else 0
        if bad:
            yield Fault(name, f"{bad} of {tensor.numel()} numbers are infinite or none")
        elif tensor.dim() > 1 and not bool(tensor.any()):
            yield Fault(name, f"all {tensor.numel()} numbers are 0")
        if tell is not None:
            tell(number, len(source.tensors), name)


def _difference(left: Source, right: Source, name: str) -> Difference | None:
    if name not in left.tensors:
        return Difference(name, "missing", f"only on the right: {right.info(name)}")
    if name not in right.tensors:
        return Difference(name, "extra", f"only on the left: {left.info(name)}")
    mine, other = left.info(name), right.info(name)
    if mine.shape != other.shape:
        return Difference(name, "shape", f"{list(mine.shape)}, {list(other.shape)}")
    one, two = left.read(name), right.read(name)
    if mine.dtype != other.dtype:
        largest = _largest(one, two)
        return Difference(name, "dtype", f"{mine.dtype}, {other.dtype}".replace("torch.", ""), largest)
    if _same_bits(one, two):
        return None
    unequal = int((one != two).sum())
    return Difference(name, "numbers", f"{unequal} of {one.numel()} numbers differ", _largest(one, two))


def _same_bits(one: Tensor, two: Tensor) -> bool:
    if not one.numel():
        return True
    return torch.equal(one.contiguous().reshape(-1).view(torch.uint8), two.contiguous().reshape(-1).view(torch.uint8))


def _largest(one: Tensor, two: Tensor) -> float:
    if not one.numel():
        return 0.0
    return float((one.double() - two.double()).abs().max())
