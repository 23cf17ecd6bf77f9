"""`Watchdog`: tells when something takes too long. Loaders have one of their own; this one is for users' code."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from omniloom.data.loader.watch import stacks_of_threads

logger = logging.getLogger("omniloom")

_GRACE_SECONDS = 10.0


class Watchdog:
    """Calls a function when it has not been reset for too long; once.

    Args:
        timeout: seconds.
        initial_timeout: the same for the first time; ``None``: as the others.
        callback: called then, in a thread of its own. Where it raises, the process is ended, within ten seconds.
        dump_stacks: log the stacks of all threads then.
        enabled: begin now; otherwise with `enable`.
    """

    def __init__(
        self,
        timeout: float,
        initial_timeout: float | None = None,
        callback: Callable[[], None] | None = None,
        dump_stacks: bool = True,
        enabled: bool = True,
    ) -> None:
        self._timeout, self._first = timeout, initial_timeout
        self._callback, self._dump_stacks = callback, dump_stacks
        self._lock = threading.Condition()
        self._deadline: float | None = None
        self._finished = False
        if enabled:
            self._deadline = time.monotonic() + self._next_timeout()
        self._thread = threading.Thread(target=self._wait, name="omniloom-watchdog", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Begin to count anew, where it is counting."""
        with self._lock:
            if self._deadline is not None:
                self._deadline = time.monotonic() + self._timeout
                self._lock.notify()

    def enable(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._deadline = time.monotonic() + self._next_timeout()
            self._lock.notify()

    def disable(self) -> None:
        """Stop counting."""
        with self._lock:
            self._deadline = None
            self._lock.notify()

    def finish(self) -> None:
        """End its thread."""
        with self._lock:
            self._finished = True
            self._lock.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def watch_iter(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """The values of an iterable; the time that each takes to come is counted, and not what is done with it."""
        self.enable()
        try:
            for value in iterable:
                self.disable()
                yield value
                self.enable()
        finally:
            self.disable()

    def __enter__(self) -> Watchdog:
        if self._deadline is None:
            self.enable()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _next_timeout(self) -> float:
        first, self._first = self._first, None
        return self._timeout if first is None else first

    def _wait(self) -> None:
        with self._lock:
            while not self._finished:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._lock.wait(left)
            else:
                return
        self._bark()

    def _bark(self) -> None:
        if self._dump_stacks:
            logger.warning("watchdog: nothing came for %g seconds. Stacks:\n%s", self._timeout, stacks_of_threads())
        if self._callback is None:
            return
        try:
            self._callback()
        except BaseException:
            logger.error("watchdog: its callback failed, the process ends:\n%s", traceback.format_exc())
            end_process()


def end_process() -> Any:
    """End the process: by an interrupt of its main thread, or, where that has no effect, at once."""
    threading.Timer(_GRACE_SECONDS, os._exit, (1,)).start()
    import _thread  # noqa: PLC0415

    _thread.interrupt_main()
