"""What a kind of store has to know: one plain request each. `RemoteStore` retries, checks, merges and caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from omniloom.storage.store import Stat, Writer


class Got(NamedTuple):
    """The answer to one read.

    Attributes:
        data: its bytes.
        stat: of the whole object, where the answer told it.
    """

    data: bytes
    stat: Stat | None


class Backend(Protocol):
    """One bucket, host or profile. Keys are names below it. Errors are those of the library that it uses."""

    def get(self, key: str, start: int, stop: int | None) -> Got:
        """Bytes ``[start, stop)``, fewer where the object ends; to the end without ``stop``."""

    def head(self, key: str) -> Stat:
        """Size and ETag."""

    def scan(self, prefix: str) -> Iterator[tuple[str, Stat]]:
        """Keys below a folder (empty: all), in any order."""

    def children(self, prefix: str) -> tuple[list[tuple[str, Stat]], list[str]]:
        """Keys directly in a folder: of objects, with what listings tell of them, and of folders."""

    def put(self, key: str, data: bytes) -> None:
        """Write a whole object, atomically."""

    def open_writer(self, key: str, part_bytes: int) -> Writer:
        """Write an object in parts; errors are those of the library."""

    def delete(self, key: str) -> None:
        """Remove an object."""
