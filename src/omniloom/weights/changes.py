"""What can happen to tensors between our layout and somebody else's, each change with its way back.

A change makes one tensor of theirs out of one or several of ours (``apply``) and takes it apart again (``undo``), so
that ``undo(apply(*x)) == x`` to the bit. Changes move numbers and never compute with them: they work for any dtype,
and on the meta device, where they tell shapes without reading a byte.

| change         | ours                                 | theirs                                              |
|----------------|--------------------------------------|-----------------------------------------------------|
| `Same`         | one tensor                           | the same tensor under another name                  |
| `Fuse`         | q, k, v; class and register tokens   | one after the other along an axis                   |
| `FuseByGroup`  | q, k, v                              | Megatron's rows: per group its queries, its k, its v|
| `Reorder`      | axes in our order                    | axes permuted (`TRANSPOSE` for a matrix)            |
| `Reshape`      | a shape                              | the same numbers in the same order, another shape   |
| `RotaryOrder`  | rotary pairs (i, i + d/2) of a head  | pairs (2i, 2i + 1): Meta's and llama.cpp's order    |
| `PadRows`      | the vocabulary's rows                | rows added behind, each a copy of the last          |
| `PadZeros`     | an axis                              | zeros added behind (dummy heads)                    |
| `Chain`        | what the first change takes          | what the last change gives                          |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from omniloom.errors import WeightsError


class Range(NamedTuple):
    """Indices ``start`` to ``stop`` (exclusive) along ``axis`` of a tensor."""

    axis: int
    start: int
    stop: int


class Change(ABC):
    """An invertible step between tensors of ours and one tensor of theirs."""

    @abstractmethod
    def apply(self, *parts: Tensor) -> Tensor:
        """Make their tensor out of ours.

        Raises:
            WeightsError: the shapes do not fit the change.
        """

    @abstractmethod
    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Take their tensor apart into ours; views of ``whole`` where possible.

        Raises:
            WeightsError: the shape does not fit the change.
        """

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """Where a range of one of our tensors lies in theirs, so that a rank reads its slice only.

        Args:
            part: which of our tensors, counted as ``apply`` takes them.
            wanted: the range of that tensor.
            whole: shape of their tensor.

        Returns:
            The range of their tensor that holds just these numbers in our order, or ``None`` where it is not one range
            (then all of it must be read and undone).
        """
        return None


@dataclass(frozen=True)
class Same(Change):
    """One tensor, unchanged: only its name differs."""

    def apply(self, *parts: Tensor) -> Tensor:
        """Give the only part back."""
        (only,) = parts
        return only

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Give the tensor back."""
        return (whole,)

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """The same range."""
        return wanted


@dataclass(frozen=True)
class Fuse(Change):
    """Several tensors one after the other along an axis.

    Attributes:
        sizes: length of each of our tensors along ``axis``.
        axis: axis along which they are joined.
    """

    sizes: tuple[int, ...]
    axis: int = 0

    def apply(self, *parts: Tensor) -> Tensor:
        """Join the parts."""
        for part, size in zip(parts, self.sizes, strict=True):
            _expect_length(part, axis=self.axis, length=size)
        return torch.cat(parts, dim=self.axis)

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Cut the tensor into views of its parts."""
        _expect_length(whole, axis=self.axis, length=sum(self.sizes))
        return tuple(torch.split(whole, list(self.sizes), dim=self.axis))

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """The range moved behind the parts before; along another axis there is no single range."""
        if wanted.axis != self.axis:
            return None
        before = sum(self.sizes[:part])
        return Range(self.axis, wanted.start + before, wanted.stop + before)


@dataclass(frozen=True)
class FuseByGroup(Change):
    """Queries, keys and values of each group together: Megatron's ``linear_qkv``.

    Rows of theirs, for each group g: its ``heads / groups`` query heads, then its key head, then its value head.
    Without grouped queries (``groups == heads``) that is q0, k0, v0, q1, k1, v1 and so on. Works on weights
    ``[rows, input]`` and on biases ``[rows]``.

    Attributes:
        heads: number of query heads.
        groups: number of key and value heads.
        head_dim: channels of a head.
    """

    heads: int
    groups: int
    head_dim: int

    def apply(self, *parts: Tensor) -> Tensor:
        """Interleave q ``[heads * head_dim, ...]``, k and v ``[groups * head_dim, ...]``."""
        rows = (self.heads * self.head_dim, self.groups * self.head_dim, self.groups * self.head_dim)
        for part, length in zip(parts, rows, strict=True):
            _expect_length(part, axis=0, length=length)
        by_group = [part.reshape(self.groups, -1, *part.shape[1:]) for part in parts]
        return torch.cat(by_group, dim=1).flatten(0, 1)

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Give q, k and v, copied."""
        queries = self.heads // self.groups
        _expect_length(whole, axis=0, length=(queries + 2) * self.groups * self.head_dim)
        grouped = whole.reshape(self.groups, -1, *whole.shape[1:])
        cut = torch.split(grouped, [queries * self.head_dim, self.head_dim, self.head_dim], dim=1)
        return tuple(part.flatten(0, 1) for part in cut)


@dataclass(frozen=True)
class Reorder(Change):
    """Axes in another order.

    Attributes:
        axes: for each axis of theirs, which axis of ours it is, as ``torch.permute`` takes them.
    """

    axes: tuple[int, ...]

    def apply(self, *parts: Tensor) -> Tensor:
        """Permute, and lay the numbers out anew."""
        (only,) = parts
        return only.permute(self.axes).contiguous()

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Permute back, and lay the numbers out anew."""
        back = [self.axes.index(axis) for axis in range(len(self.axes))]
        return (whole.permute(back).contiguous(),)

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """No single range: the numbers must be laid out anew."""
        return None


TRANSPOSE = Reorder((1, 0))


@dataclass(frozen=True)
class Reshape(Change):
    """The same numbers in the same order under another shape.

    Attributes:
        ours: our shape.
        theirs: their shape.
    """

    ours: tuple[int, ...]
    theirs: tuple[int, ...]

    def apply(self, *parts: Tensor) -> Tensor:
        """Give the tensor their shape."""
        (only,) = parts
        _expect_shape(only, self.ours)
        return only.reshape(self.theirs)

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Give the tensor our shape."""
        _expect_shape(whole, self.theirs)
        return (whole.reshape(self.ours),)


@dataclass(frozen=True)
class RotaryOrder(Change):
    """The order of rotary channels in query and key rows.

    Ours, as Hugging Face's, turns channel i of a head with channel ``i + head_dim / 2``; Meta's checkpoints and
    llama.cpp's files turn channel ``2 i`` with ``2 i + 1``.

    Attributes:
        heads: heads in the tensor: query heads for q, key and value heads for k.
    """

    heads: int

    def apply(self, *parts: Tensor) -> Tensor:
        """Rows ``[heads * head_dim, ...]`` from halves to pairs."""
        (only,) = parts
        return self._turned(only, (self.heads, 2, -1))

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Rows from pairs to halves."""
        return (self._turned(whole, (self.heads, -1, 2)),)

    def _turned(self, tensor: Tensor, split: tuple[int, int, int]) -> Tensor:
        if tensor.shape[0] % (2 * self.heads):
            raise WeightsError(f"{tensor.shape[0]} rows are not {self.heads} heads of an even number of channels")
        return tensor.reshape(*split, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


@dataclass(frozen=True)
class PadRows(Change):
    """Rows added behind the vocabulary, each a copy of the last one, as Megatron's converters did.

    Attributes:
        rows: rows of ours.
        padded: rows of theirs.
    """

    rows: int
    padded: int

    def apply(self, *parts: Tensor) -> Tensor:
        """Repeat the last row."""
        (only,) = parts
        _expect_length(only, axis=0, length=self.rows)
        if self.padded == self.rows:
            return only
        return torch.cat([only, only[-1:].expand(self.padded - self.rows, *only.shape[1:])])

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Leave the added rows out."""
        _expect_length(whole, axis=0, length=self.padded)
        return (whole[: self.rows],)

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """The same range along the rows; along another axis the added rows would be read as well."""
        return wanted if wanted.axis == 0 or self.rows == self.padded else None


@dataclass(frozen=True)
class PadZeros(Change):
    """Zeros added behind along an axis: Megatron's dummy heads, where the heads do not divide among the ranks.

    Attributes:
        size: length of ours.
        padded: length of theirs.
        axis: the axis.
    """

    size: int
    padded: int
    axis: int = 0

    def apply(self, *parts: Tensor) -> Tensor:
        """Add the zeros."""
        (only,) = parts
        _expect_length(only, axis=self.axis, length=self.size)
        shape = list(only.shape)
        shape[self.axis] = self.padded - self.size
        return torch.cat([only, only.new_zeros(shape)], dim=self.axis) if self.padded > self.size else only

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Leave the zeros out."""
        _expect_length(whole, axis=self.axis, length=self.padded)
        return (whole.narrow(self.axis, 0, self.size),)

    def locate(self, part: int, wanted: Range, *, whole: tuple[int, ...]) -> Range | None:
        """The same range along the padded axis."""
        return wanted if wanted.axis == self.axis else None


@dataclass(frozen=True)
class Chain(Change):
    """Changes one after the other: the first may take several tensors, each later one takes what the one before gave.

    Attributes:
        first: what happens to our tensors.
        then: what happens afterwards, in this order.
    """

    first: Change
    then: tuple[Change, ...]

    def apply(self, *parts: Tensor) -> Tensor:
        """From the first change to the last."""
        whole = self.first.apply(*parts)
        for change in self.then:
            whole = change.apply(whole)
        return whole

    def undo(self, whole: Tensor) -> tuple[Tensor, ...]:
        """From the last change to the first."""
        for change in reversed(self.then):
            (whole,) = change.undo(whole)
        return self.first.undo(whole)


def _expect_length(tensor: Tensor, *, axis: int, length: int) -> None:
    if tensor.dim() <= axis or tensor.shape[axis] != length:
        raise WeightsError(f"has shape {list(tensor.shape)}; axis {axis} should be {length} long")


def _expect_shape(tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise WeightsError(f"has shape {list(tensor.shape)}; expected {list(shape)}")
