"""Ranges of an archive in a store that are read in a known order: fetched in few long requests, before they are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from omniloom.data.shards.archive_file import Archive
from omniloom.errors import StorageError, StoreAwayError
from omniloom.storage.store import Range

BATCH_ITEMS = 4_096
"""Items that are looked ahead in a batch at most."""

BATCHES_AHEAD = 2
"""Batches that are here or on their way beyond the one that is used."""

Item = TypeVar("Item")
_Batch = list[tuple[Item, Sequence[Range]]]


def with_ranges(
    archive: Archive, wanted: Iterable[tuple[Item, Sequence[Range]]], *, batch_bytes: int
) -> Iterator[tuple[Item, list[bytes] | None]]:
    """Each item with the bytes of its ranges, in order.

    Memory stays within three batches, or three single items that are longer. Near ranges of a batch are one
    request, by the store's rules for gaps.

    Args:
        archive: the open archive.
        wanted: items and the ranges that they need, best in the order of the archive.
        batch_bytes: wanted bytes of the ranges that are fetched together.

    Yields:
        An item and its bytes, range by range; ``None`` after a fault: asking once more for itself, the item that it
        belongs to has it.

    Raises:
        StoreAwayError: the store does not answer any more.
    """
    with ThreadPoolExecutor(1, "omniloom-ranges") as thread:
        coming: deque[tuple[_Batch[Item], Future[list[bytes]]]] = deque()
        try:
            for batch in _batches(wanted, batch_bytes):
                coming.append((batch, thread.submit(_fetch, archive, batch)))
                if len(coming) > BATCHES_AHEAD:
                    yield from _dealt(*coming.popleft())
            while coming:
                yield from _dealt(*coming.popleft())
        finally:
            thread.shutdown(wait=True, cancel_futures=True)


def _batches(wanted: Iterable[tuple[Item, Sequence[Range]]], batch_bytes: int) -> Iterator[_Batch[Item]]:
    batch: _Batch[Item] = []
    size_bytes = 0
    for item, ranges in wanted:
        more = sum(stop - start for start, stop in ranges)
        if batch and (size_bytes + more > batch_bytes or len(batch) >= BATCH_ITEMS):
            yield batch
            batch, size_bytes = [], 0
        batch.append((item, ranges))
        size_bytes += more
    if batch:
        yield batch


def _fetch(archive: Archive, batch: _Batch[Item]) -> list[bytes]:
    return archive.read_ranges([one for _, ranges in batch for one in ranges])


def _dealt(batch: _Batch[Item], fetching: Future[list[bytes]]) -> Iterator[tuple[Item, list[bytes] | None]]:
    try:
        found = iter(fetching.result())
    except StoreAwayError:
        raise
    except StorageError:
        yield from ((item, None) for item, _ in batch)
        return
    for item, ranges in batch:
        yield item, [next(found) for _ in ranges]
