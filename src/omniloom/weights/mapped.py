"""A file mapped into memory, so that a tensor is read from it only where it is touched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.source import TensorInfo


class MappedFile:
    """A file whose bytes become tensors without being copied.

    The map is private: writing to such a tensor would change memory only, never the file.

    Args:
        path: the file.

    Raises:
        WeightsError: there is no such file.
    """

    def __init__(self, path: Path) -> None:
        try:
            status = path.stat()
        except FileNotFoundError:
            raise WeightsError(f"{path}: is missing. Fetch or copy it into its folder.") from None
        self.path = path
        self.size_bytes = status.st_size
        self.identity = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"

    def bytes(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop``."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def tensor(self, offset: int, info: TensorInfo) -> Tensor:
        """The contiguous tensor whose numbers begin at a byte.

        Raises:
            WeightsError: the file ends before the tensor does.
        """
        stop = offset + info.size_bytes
        if offset < 0 or stop > self.size_bytes:
            raise WeightsError(
                f"{self.path}: a tensor of {info.size_bytes} bytes at byte {offset} reaches past the end of the file, "
                f"which has {self.size_bytes}. The file is cut short; fetch or copy it again."
            )
        if stop == offset:
            return torch.empty(info.shape, dtype=info.dtype)
        raw = torch.from_numpy(self._map[offset:stop])
        if offset % info.dtype.itemsize:
            raw = raw.clone()
        return raw.view(info.dtype).view(info.shape)

    def strided(self, offset: int, info: TensorInfo, *, stride: Sequence[int], storage: int) -> Tensor:
        """A tensor that is not contiguous within its storage.

        Args:
            offset: byte of the tensor's first number.
            info: shape and dtype.
            stride: steps in numbers along each axis.
            storage: numbers from that first one to the end of the storage.
        """
        flat = self.tensor(offset, TensorInfo((storage,), info.dtype))
        return flat.as_strided(info.shape, tuple(stride))

    def close(self) -> None:
        """Unmap, as soon as no tensor over it is left."""
        self.__dict__.pop("_map", None)

    @cached_property
    def _map(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.memmap(self.path, dtype=np.uint8, mode="c")
