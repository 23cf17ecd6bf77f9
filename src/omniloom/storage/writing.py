"""What all writers have in common: a block that closes them at its end, and gives up where an exception leaves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class BlockWriter(ABC):
    """An object that is being written; see `Writer` for what its methods promise."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""

    @abstractmethod
    def close(self) -> None:
        """Finish."""

    @abstractmethod
    def abort(self) -> None:
        """Give up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
