"""A seekable file over range reads: readers of containers jump about in it, and only what they touch is fetched."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Callable

from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from omniloom.storage.store import Store

BLOCK_BYTES = 64 << 10
_BLOCKS_KEPT = 64
_LONGEST_RUN_BLOCKS = 16


class RangeFile(io.RawIOBase):
    """A read-only binary file whose bytes are fetched by range, in blocks.

    Reads that follow each other fetch more at a time (up to 1 MiB), so that a stream costs few requests; a jump
    fetches one block. The last 4 MiB or so are kept.

    Args:
        fetch: gives bytes ``[start, stop)``; ``start < stop <= size_bytes``.
        size_bytes: size of the whole file.
        name: what messages call it.
        head: its first bytes, where they are known already: one block, or the whole of a shorter file.

    Attributes:
        size_bytes: size of the whole file.
        fetched_bytes: bytes fetched so far.
        requests: how often ``fetch`` was called.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], *, size_bytes: int, name: str = "<range>", head: bytes = b""
    ) -> None:
        super().__init__()
        self.size_bytes = size_bytes
        self.fetched_bytes = 0
        self.requests = 0
        self.name = name
        self._fetch = fetch
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next_block = -1
        self._run_blocks = 1
        self._position = 0
        if head and len(head) == min(BLOCK_BYTES, size_bytes):
            self._blocks[0], self._next_block = head, 1

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; nothing is fetched."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"{self.name}: byte {base + offset} lies before the file's begin")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from the position; fewer only where the file ends.

        Raises:
            StorageError: the bytes cannot be had, or fewer came than were asked for.
        """
        left = max(0, self.size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        pieces = []
        while length:
            number, skipped = divmod(self._position, BLOCK_BYTES)
            piece = self._block(number)[skipped : skipped + length]
            pieces.append(piece)
            self._position += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer; returns how many bytes came."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is not None:
            self._blocks.move_to_end(number)
            return block
        self._run_blocks = min(self._run_blocks * 2, _LONGEST_RUN_BLOCKS) if number == self._next_block else 1
        start = number * BLOCK_BYTES
        stop = min(start + self._run_blocks * BLOCK_BYTES, self.size_bytes)
        data = self._fetch(start, stop)
        if len(data) != stop - start:
            raise StorageError(f"{self.name}: {len(data):,} bytes came for bytes {start:,} to {stop:,}")
        self.fetched_bytes += len(data)
        self.requests += 1
        for at in range(0, len(data), BLOCK_BYTES):
            self._blocks[number + at // BLOCK_BYTES] = data[at : at + BLOCK_BYTES]
        self._next_block = number + -(-len(data) // BLOCK_BYTES)
        while len(self._blocks) > _BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return self._blocks[number]


def open_range(url: str, *, start: int = 0, stop: int | None = None, store: Store | None = None) -> RangeFile:
    """A file, or a span of one, by path or URL.

    Args:
        url: plain path or URL, as `open_store` takes it.
        start: first byte of the span.
        stop: byte after the span; ``None``: the end of the file.
        store: an open store, where one with options of its own is wanted; ``None``: `open_store` of the URL.

    Raises:
        StorageError: there is no such file.
    """
    source = store or open_store(url)
    end = source.size(url) if stop is None else stop
    name = url if start == 0 and stop is None else f"{url} at byte {start:,}"
    return RangeFile(
        lambda first, last: source.read(url, start + first, start + last), size_bytes=end - start, name=name
    )
