"""What every form of weights looks like to those who read it: names, shapes, and tensors or slices of them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range


class TensorInfo(NamedTuple):
    """Shape and dtype of a tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        """Bytes of its numbers."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def meta(self) -> Tensor:
        """A tensor on the meta device that looks like it."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


class Source(ABC):
    """Tensors by name, read when asked for.

    Attributes:
        where: path or description for messages.
        tensors: shape and dtype of every tensor.
    """

    where: str
    tensors: Mapping[str, TensorInfo]

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """Read a whole tensor; it may share memory with a mapped file, so it is not to be written to.

        Raises:
            WeightsError: there is no such tensor, or its bytes are unsound.
        """

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read part of a tensor: indices ``start`` to ``stop`` along ``axis``."""
        return self.read(name).narrow(wanted.axis, wanted.start, wanted.stop - wanted.start)

    def read_slice(self, name: str, *, axis: int, part: int, parts: int) -> Tensor:
        """Read the slice of one rank, cut as ``torch.chunk`` cuts: all slices equally long, the last ones shorter.

        Reads no more bytes than the slice has, where the form and the table allow.

        Args:
            name: the tensor.
            axis: along which it is cut.
            part: which slice, from 0.
            parts: into how many it is cut.
        """
        if not 0 <= part < parts:
            raise WeightsError(f"{self.where}: slice {part} of {parts} of {name!r} was asked for; count from 0")
        length = self.info(name).shape[axis]
        step = -(-length // parts)
        start = min(part * step, length)
        return self.read_range(name, Range(axis, start, min(start + step, length)))

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of a tensor.

        Raises:
            WeightsError: there is no such tensor.
        """
        try:
            return self.tensors[name]
        except KeyError:
            raise WeightsError(f"{self.where}: holds no tensor {name!r} among its {len(self.tensors)}") from None

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(info.size_bytes for info in self.tensors.values())

    def identity(self) -> str:
        """Something that changes when the weights behind it change, without reading them."""
        return self.where

    def close(self) -> None:  # noqa: B027 - most sources hold nothing open
        """Let go of open files."""


class InMemory(Source):
    """Tensors that are already there."""

    def __init__(self, tensors: Mapping[str, Tensor], *, where: str = "memory") -> None:
        self.where = where
        self._tensors = dict(tensors)
        self.tensors = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in tensors.items()}

    def read(self, name: str) -> Tensor:
        """Give the tensor."""
        self.info(name)
        return self._tensors[name]


class Joined(Source):
    """Several sources as one; no name may be in two of them.

    Raises:
        WeightsError: two sources hold a tensor of the same name.
    """

    def __init__(self, *sources: Source) -> None:
        self.where = " + ".join(source.where for source in sources)
        self._sources = sources
        self._holders: dict[str, Source] = {}
        tensors: dict[str, TensorInfo] = {}
        for source in sources:
            for name, info in source.tensors.items():
                if name in tensors:
                    raise WeightsError(f"{name!r} is both in {self._holders[name].where} and in {source.where}")
                tensors[name], self._holders[name] = info, source
        self.tensors = tensors

    def read(self, name: str) -> Tensor:
        """Read from the source that holds it."""
        self.info(name)
        return self._holders[name].read(name)

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read from the source that holds it."""
        self.info(name)
        return self._holders[name].read_range(name, wanted)

    def identity(self) -> str:
        """Those of all."""
        return "\n".join(source.identity() for source in self._sources)

    def close(self) -> None:
        """Close all."""
        for source in self._sources:
            source.close()


class Renamed(Source):
    """A source under other names.

    Args:
        source: what is read.
        names: for each new name, the name in ``source``; others are hidden.
    """

    def __init__(self, source: Source, names: Mapping[str, str]) -> None:
        self.where = source.where
        self._source = source
        self._names = dict(names)
        self.tensors = {new: source.info(old) for new, old in names.items()}

    def read(self, name: str) -> Tensor:
        """Read under the source's name."""
        self.info(name)
        return self._source.read(self._names[name])

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read under the source's name."""
        self.info(name)
        return self._source.read_range(self._names[name], wanted)

    def identity(self) -> str:
        """That of the source."""
        return self._source.identity()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def with_prefix_removed(source: Source, prefix: str) -> Source:
    """The tensors whose names begin with a prefix, without it."""
    return Renamed(source, {name.removeprefix(prefix): name for name in source.tensors if name.startswith(prefix)})


class Cast(Source):
    """A source whose floating-point tensors have another dtype.

    Args:
        source: what is read.
        dtype: of all floating-point tensors.
    """

    def __init__(self, source: Source, dtype: torch.dtype) -> None:
        self.where = source.where
        self._source = source
        self._dtype = dtype
        self.tensors = {
            name: TensorInfo(info.shape, dtype) if info.dtype.is_floating_point else info
            for name, info in source.tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """Read and round to the dtype."""
        return self._source.read(name).to(self.info(name).dtype)

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read and round to the dtype."""
        return self._source.read_range(name, wanted).to(self.info(name).dtype)

    def identity(self) -> str:
        """That of the source, and the dtype."""
        return f"{self._source.identity()}\n{self._dtype}"

    def close(self) -> None:
        """Close the source."""
        self._source.close()
