"""Calls a function on items in threads, some items ahead of where the results are taken, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int, window: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in the order of the items.

    Args:
        function: called in a thread; what it raises is raised here, in its turn.
        items: taken in the calling thread.
        threads: how many at a time; 0 calls the function here, when its result is wanted.
        window: how many results may wait at most, so that memory stays bounded.
    """
    if threads == 0:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
