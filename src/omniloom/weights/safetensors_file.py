"""Files of safetensors: eight bytes of length, a JSON header, then the numbers.

Read and laid out here rather than by the safetensors library, because a file is laid out before its tensors are there,
so that each is written to its place as it comes; the library needs all of them in memory. Tests read what is written
here with the library, and the other way round.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range
from omniloom.weights.layout import Extent, FileLayout
from omniloom.weights.mapped import MappedFile
from omniloom.weights.source import Source, TensorInfo

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER_BYTES = 100_000_000  # as the library


class SafetensorsFile(Source):
    """The tensors of one file.

    Args:
        path: the file.

    Attributes:
        metadata: strings that were saved with it.

    Raises:
        WeightsError: the file is missing, cut short, or its header does not describe its bytes.
    """

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._file = MappedFile(path)
        header, data_start = self._header()
        self.metadata: dict[str, str] = header.pop("__metadata__", None) or {}
        self._offsets: dict[str, int] = {}
        self.tensors: dict[str, TensorInfo] = {}
        spans: list[tuple[int, int, str]] = []
        for name, entry in header.items():
            info, begin, end = self._entry(name, entry)
            self.tensors[name], self._offsets[name] = info, data_start + begin
            spans.append((begin, end, name))
        self._check_covered(sorted(spans), self._file.size_bytes - data_start)

    def read(self, name: str) -> Tensor:
        """Give the tensor over the mapped file."""
        return self._file.tensor(self._offsets.get(name, 0), self.info(name))

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Give a view of the mapped tensor: only touched pages are read."""
        return self.read(name).narrow(wanted.axis, wanted.start, wanted.stop - wanted.start)

    def identity(self) -> str:
        """Path, size and time of the file."""
        return self._file.identity

    def close(self) -> None:
        """Unmap the file."""
        self._file.close()

    def _header(self) -> tuple[dict[str, Any], int]:
        start = self._file.bytes(0, 8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= _MAX_HEADER_BYTES or 8 + length > self._file.size_bytes:
            raise self._unsound(f"says its header has {length} bytes, in a file of {self._file.size_bytes}")
        try:
            header = json.loads(self._file.bytes(8, 8 + length))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise self._unsound(f"has a header that is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise self._unsound("has a header that is not a JSON object")
        return header, 8 + length

    def _entry(self, name: str, entry: Any) -> tuple[TensorInfo, int, int]:
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if all(
                isinstance(length, int) and length >= 0 for length in shape
            ):
                if dtype not in DTYPES:
                    raise self._unsound(f"{name!r} has dtype {dtype!r}, not one of {', '.join(DTYPES)}")
                info = TensorInfo(tuple(shape), DTYPES[dtype])
                if end - begin != info.size_bytes or begin < 0:
                    raise self._unsound(f"{name!r} is {info}, {info.size_bytes} bytes, but has bytes {begin} to {end}")
                return info, begin, end
            case _:
                raise self._unsound(f"{name!r} is described as {entry!r}")

    def _check_covered(self, spans: list[tuple[int, int, str]], data_bytes: int) -> None:
        at = 0
        for begin, end, name in spans:
            if begin != at:
                raise self._unsound(f"{name!r} begins at byte {begin} of the numbers, where {at} was expected")
            at = end
        if at != data_bytes:
            raise self._unsound(f"has {data_bytes} bytes of numbers; its header describes {at}")

    def _unsound(self, what: str) -> WeightsError:
        return WeightsError(f"{self.where}: {what}. The file is cut short or damaged; fetch or copy it again.")


def lay_out_safetensors(path: str, tensors: Mapping[str, TensorInfo], *, metadata: Mapping[str, str]) -> FileLayout:
    """Where each tensor goes in a file that is still to be written.

    Args:
        path: of the file within its folder.
        tensors: what it will hold, in this order.
        metadata: strings to save with it; transformers expects ``{"format": "pt"}``.

    Raises:
        WeightsError: a dtype has no name in safetensors.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    starts: dict[str, int] = {}
    for name, info in tensors.items():
        if info.dtype not in _NAMES:
            raise WeightsError(f"{name!r} is {info}, which safetensors has no name for. Choose another `--dtype`.")
        starts[name] = at
        end = at + info.size_bytes
        header[name] = {"dtype": _NAMES[info.dtype], "shape": list(info.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    data_start = 8 + len(text)
    return FileLayout(
        path=path,
        size_bytes=data_start + at,
        extents={name: Extent(data_start + starts[name], info.size_bytes) for name, info in tensors.items()},
        opening=((0, struct.pack("<Q", len(text)) + text),),
    )
