"""Files of `torch.save` and `torch.jit.save`, read as plain data with tensors that are not read yet.

Such a file is a zip: ``<name>/data.pkl`` holds the objects, ``<name>/data/<key>`` the numbers of one storage each, not
compressed. The pickle is read by `restricted_pickle`, so nothing in the file can run; the numbers are mapped. So a
TorchScript archive gives its parameters without its code, and a training checkpoint its model without its optimizer.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range
from omniloom.weights.mapped import MappedFile
from omniloom.weights.restricted_pickle import Inert, load_restricted
from omniloom.weights.source import Source, TensorInfo

_STORAGE_DTYPES: Mapping[str, torch.dtype] = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "UntypedStorage": torch.uint8,
}
_MAX_DEPTH = 50
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


class _Storage(NamedTuple):
    key: str
    dtype: torch.dtype
    numbers: int


class _StorageType(NamedTuple):
    dtype: torch.dtype


@dataclass(frozen=True)
class LazyTensor:
    """A tensor of an archive that has not been read.

    Attributes:
        info: shape and dtype.
        key: the archive's name of its storage.
        first: index in the storage of its first number.
        stride: steps along each axis in numbers.
        storage_numbers: numbers in the storage.
    """

    info: TensorInfo
    key: str
    first: int
    stride: tuple[int, ...]
    storage_numbers: int

    @property
    def is_contiguous(self) -> bool:
        """Whether its numbers lie one after the other in the storage."""
        expected = 1
        for length, step in reversed(list(zip(self.info.shape, self.stride, strict=True))):
            if length > 1 and step != expected:
                return False
            expected *= length
        return True


class TorchArchive:
    """One file of ``torch.save`` or ``torch.jit.save``, or such a file inside another.

    Args:
        path: the file.
        start: byte at which the archive begins.
        stop: byte at which it ends; ``None`` is the end of the file.

    Attributes:
        data: what was saved: plain objects, `LazyTensor` for tensors, `Inert` for everything else.

    Raises:
        WeightsError: the file is missing, cut short, of the old form without a zip, or compressed.
    """

    def __init__(self, path: Path, *, start: int = 0, stop: int | None = None) -> None:
        self.file = MappedFile(path)
        self._start = start
        self._stop = self.file.size_bytes if stop is None else stop
        self._entries = self._directory()
        pickles = [name for name in self._entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise WeightsError(f"{path}: holds {len(pickles)} uncompressed files data.pkl; torch.save writes one")
        self._prefix = pickles[0].removesuffix("data.pkl")
        order = self._entries.get(self._prefix + "byteorder")
        if order is not None and self.file.bytes(*order) != b"little":
            raise WeightsError(f"{path}: was saved on a big-endian machine, which is not read here")
        self.data: Any = load_restricted(
            self.file.bytes(*self._entries[pickles[0]]),
            where=str(path),
            builders=_BUILDERS,
            persistent=self._storage,
        )

    def read(self, tensor: LazyTensor) -> Tensor:
        """Give a tensor over the mapped file."""
        begin, _ = self._entries[f"{self._prefix}data/{tensor.key}"]
        offset = begin + tensor.first * tensor.info.dtype.itemsize
        if tensor.is_contiguous:
            return self.file.tensor(offset, tensor.info)
        rest = tensor.storage_numbers - tensor.first
        return self.file.strided(offset, tensor.info, stride=tensor.stride, storage=rest)

    def _storage(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", _StorageType(dtype), str(key), _, int(numbers), *_):
                size = numbers if dtype is torch.uint8 else numbers * dtype.itemsize
                begin, end = self._entries.get(f"{self._prefix}data/{key}", (0, -1))
                if end - begin != size:
                    raise WeightsError(
                        f"{self.file.path}: storage {key!r} has {max(end - begin, 0)} bytes; its tensors need {size}"
                    )
                return _Storage(key, dtype, numbers)
            case _:
                raise WeightsError(f"{self.file.path}: refers to something that is not a storage: {pid!r}")

    def _directory(self) -> dict[str, tuple[int, int]]:
        # Wrong bytes make zipfile raise more than its own error.
        try:
            with self.file.path.open("rb") as raw:
                window = _Window(raw, self._start, self._stop)
                with zipfile.ZipFile(window) as archive:
                    # torch compresses only a TorchScript's code, which is of no interest here.
                    stored = [info for info in archive.infolist() if info.compress_type == zipfile.ZIP_STORED]
                    return {info.filename: self._extent(info, raw) for info in stored}
        except WeightsError:
            raise
        except (zipfile.BadZipFile, NotImplementedError, struct.error, OSError, ValueError) as error:
            raise WeightsError(
                f"{self.file.path}: is not a whole zip archive of torch.save ({error}). Either it is cut short, then "
                "fetch it again; or it was saved by torch < 1.6, then load it with "
                "torch.load(weights_only=True) and save it once more."
            ) from error

    def _extent(self, info: zipfile.ZipInfo, raw: BinaryIO) -> tuple[int, int]:
        header_start = self._start + info.header_offset
        raw.seek(header_start)
        header = raw.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise WeightsError(f"{self.file.path}: no header of {info.filename!r} at byte {header_start}")
        name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)[-2:]
        begin = header_start + _LOCAL_HEADER.size + name_bytes + extra_bytes
        if begin + info.file_size > self._stop:
            raise WeightsError(f"{self.file.path}: {info.filename!r} reaches past the end of the file")
        return begin, begin + info.file_size


class ArchiveSource(Source):
    """Tensors of one archive by name.

    Args:
        archive: the file.
        tensors: the archive's tensors under the names to use.
    """

    def __init__(self, archive: TorchArchive, tensors: Mapping[str, LazyTensor]) -> None:
        self.where = str(archive.file.path)
        self._archive = archive
        self._lazy = dict(tensors)
        self.tensors = {name: lazy.info for name, lazy in self._lazy.items()}

    def read(self, name: str) -> Tensor:
        """Give the tensor over the mapped file."""
        self.info(name)
        return self._archive.read(self._lazy[name])

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Give a view of the mapped tensor: only touched pages are read."""
        return self.read(name).narrow(wanted.axis, wanted.start, wanted.stop - wanted.start)

    def identity(self) -> str:
        """Path, size and time of the file."""
        return self._archive.file.identity

    def close(self) -> None:
        """Unmap the file."""
        self._archive.file.close()


def named_tensors(data: Any) -> dict[str, LazyTensor]:
    """All tensors in nested dicts and module objects, under dotted names.

    Args:
        data: a state dict, a dict of state dicts, or what a TorchScript archive holds.

    Raises:
        WeightsError: it holds itself.
    """
    found: dict[str, LazyTensor] = {}
    _collect(data, "", found, depth=0)
    return found


def _collect(data: Any, prefix: str, found: dict[str, LazyTensor], *, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise WeightsError(f"{prefix[:80]!r} is nested more than {_MAX_DEPTH} deep, or holds itself")
    if isinstance(data, LazyTensor):
        found[prefix.removesuffix(".")] = data
        return
    inner = data.state if isinstance(data, Inert) else data
    if isinstance(inner, Mapping):
        for name, value in inner.items():
            if isinstance(name, str):
                _collect(value, f"{prefix}{name}.", found, depth=depth + 1)


class _Window:
    """Part of a file that looks like a whole one to zipfile."""

    def __init__(self, raw: BinaryIO, start: int, stop: int) -> None:
        self._raw, self._start, self._stop = raw, start, stop
        self._at = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, self._stop - self._start)[whence]
        self._at = base + offset
        if self._at < 0:
            raise OSError("before the beginning")
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self._stop - self._start - self._at
        size = left if size < 0 else min(size, left)
        self._raw.seek(self._start + self._at)
        data = self._raw.read(max(size, 0))
        self._at += len(data)
        return data

    def close(self) -> None:
        """The file belongs to somebody else."""


def _rebuild_tensor(storage: _Storage, first: int, shape: Any, stride: Any, *_unused: Any) -> LazyTensor:
    shape, stride = tuple(shape), tuple(stride)
    if not isinstance(storage, _Storage) or len(shape) != len(stride) or min((first, *shape, *stride)) < 0:
        raise WeightsError("a tensor without a storage, or with a negative size")
    numbers = torch.Size(shape).numel()
    last = first + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if numbers and last >= storage.numbers:
        raise WeightsError(f"a tensor {list(shape)} reaches past its storage of {storage.numbers} numbers")
    return LazyTensor(TensorInfo(shape, storage.dtype), storage.key, first, stride, storage.numbers)


def _rebuild_typed(storage: _Storage, first: int, shape: Any, stride: Any, *rest: Any) -> LazyTensor:
    # Newer dtypes have untyped storages, counted in bytes; the dtype stands among the arguments.
    dtype = next((item for item in rest if isinstance(item, torch.dtype)), storage.dtype)
    numbers = storage.numbers * storage.dtype.itemsize // dtype.itemsize
    return _rebuild_tensor(_Storage(storage.key, dtype, numbers), first, shape, stride)


def _first(data: Any, *_unused: Any) -> Any:
    return data


def _rebuild_of_type(function: Any, _type: Any, arguments: Any, _state: Any) -> Any:
    return function(*arguments) if function in _REBUILDERS else None


_REBUILDERS = (_rebuild_tensor, _rebuild_typed, _first)
_BUILDERS: Mapping[tuple[str, str], Any] = {
    **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGE_DTYPES.items()},
    ("torch.storage", "UntypedStorage"): _StorageType(torch.uint8),
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_typed,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_of_type,
}
