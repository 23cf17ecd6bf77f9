"""What a process keeps for the shards it reads: open files and tables, the oldest given up beyond a limit."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

OPEN_FILES = 32
TABLE_BYTES = 64 << 20


class OpenFile:
    """A descriptor that closes when the last reader lets go of it, so that no thread reads from a number reused."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)  # held by the method: when the interpreter ends, `os` may be gone before a file is


class Holder(Protocol):
    """Owner of something a `Pool` counts."""

    def release(self, what: str) -> None:
        """Let go of the thing named ``what``; it will be made again when it is needed."""


class Pool:
    """Counts what holders keep; when the sum of weights passes the capacity, the oldest are told to let go.

    Holders are known by weak reference: the pool keeps nothing alive.
    """

    def __init__(self, what: str, capacity: int) -> None:
        self.what = what
        self.capacity = capacity
        self._entries: OrderedDict[int, tuple[weakref.ref[Holder], int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.RLock()  # a holder may die, and be forgotten, while it is held
        os.register_at_fork(after_in_child=self._after_fork)

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, holder: Holder, weight: int) -> None:
        """Count a thing that a holder has just made."""
        number = id(holder)
        released = []
        with self._lock:
            self._remove(number)
            self._entries[number] = (weakref.ref(holder, lambda _: self._forget(number)), weight)
            self._weight += weight
            while self._weight > self.capacity and len(self._entries) > 1:
                released.append(self._remove(next(iter(self._entries))))
        for one in released:
            if one is not None:
                one.release(self.what)

    def forget(self, holder: Holder) -> None:
        """Stop counting what a holder has let go of by itself."""
        self._forget(id(holder))

    def shrink(self) -> int:
        """Tell the older half to let go; returns how many were told."""
        with self._lock:
            released = [self._remove(number) for number in list(self._entries)[: (len(self._entries) + 1) // 2]]
        for one in released:
            if one is not None:
                one.release(self.what)
        return len(released)

    def _forget(self, number: int) -> None:
        with self._lock:
            self._remove(number)

    def _remove(self, number: int) -> Holder | None:
        entry = self._entries.pop(number, None)
        if entry is None:
            return None
        self._weight -= entry[1]
        return entry[0]()

    def _after_fork(self) -> None:
        self._lock = threading.RLock()  # another thread of the parent may have held it
