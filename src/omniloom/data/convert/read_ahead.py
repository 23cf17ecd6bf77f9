"""Calls a function on items in threads, some items ahead of where the results are taken, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
ITEMS_A_TASK = 8  # handing one item at a time to a thread costs more than reading a small file that is in memory


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in the order of the items.

    At most two tasks of ``ITEMS_A_TASK`` items a thread wait or run, so that memory stays bounded.

    Args:
        function: called in a thread; what it raises is raised here, in its turn.
        items: taken in the calling thread.
        threads: how many at a time; 0 calls the function here, when its result is wanted.
    """
    if threads == 0:
        yield from map(function, items)
        return
    waiting: deque[Future[list[Result]]] = deque()
    executor = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    source = iter(items)
    try:
        while batch := list(islice(source, ITEMS_A_TASK)):
            waiting.append(executor.submit(lambda batch: [function(item) for item in batch], batch))
            if len(waiting) >= 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
