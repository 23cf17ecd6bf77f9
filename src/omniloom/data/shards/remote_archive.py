"""An archive in a store: its headers hopped to or streamed over, whichever the link makes quicker.

To index an archive one header after the other is needed, and the payloads between them are not. A jump to the next
header costs a request, so one latency; reading on costs the payload's bytes. The quicker one depends on the link and on
the payloads, so both are measured as the archive is read: jumps beyond ``latency x bandwidth`` bytes are made, shorter
ones are streamed over. Long payloads are jumped over in any case: many shards share the link, and bytes may cost money.
"""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from omniloom.data.shards.archive_file import KEPT_BYTES, FileMark, Window
from omniloom.data.shards.header import BLOCK_BYTES
from omniloom.errors import ObjectChangedError, StorageError
from omniloom.storage.open import open_store
from omniloom.storage.spool import SPOOL
from omniloom.storage.store import Stat, Store
from omniloom.storage.urls import redacted, split_url

HOP_BYTES = 8 << 10
"""Fetched at a jump: a header, and the small members after it."""

STREAM_BYTES = 8 << 20
"""The longest window of a stream."""

LONG_PAYLOAD_BYTES = 4 << 20
"""A longer payload is never streamed over."""

_HEADERS_KEPT = 8_192
_MAGIC, _MAGIC_AT = b"ustar", 257
_ASSUMED_LATENCY_SECONDS = 0.03
_ASSUMED_BYTES_PER_SECOND = 100e6
_SMALL_BYTES = 64 << 10
_LARGE_BYTES = 512 << 10
_NEWEST = 0.2


class Transfer(NamedTuple):
    """What an archive, or several, cost to read.

    Attributes:
        requests: requests to the store.
        size_bytes: bytes that came.
        seconds: time that the requests took, one after the other.
        hops: windows that were jumped to.
        streamed: windows that followed the one before.
    """

    requests: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    hops: int = 0
    streamed: int = 0

    def plus(self, other: Transfer) -> Transfer:
        """The sum of two."""
        return Transfer(
            self.requests + other.requests,
            self.size_bytes + other.size_bytes,
            self.seconds + other.seconds,
            self.hops + other.hops,
            self.streamed + other.streamed,
        )

    @property
    def way(self) -> str:
        """How most of it was read: ``hops`` or ``stream``."""
        return "hops" if self.hops > self.streamed else "stream"


@dataclass(slots=True)
class LinkSpeed:
    """What requests to one place have cost so far; newer ones count more.

    Attributes:
        latency_seconds: until a small answer is there.
        bytes_per_second: of a long answer, beyond the latency.
    """

    latency_seconds: float = _ASSUMED_LATENCY_SECONDS
    bytes_per_second: float = _ASSUMED_BYTES_PER_SECOND
    _small: int = 0
    _large: int = 0

    def count(self, size_bytes: int, seconds: float) -> None:
        """Take a request into account."""
        if size_bytes <= _SMALL_BYTES:
            share = _NEWEST if self._small else 1.0
            self.latency_seconds += share * (seconds - self.latency_seconds)
            self._small += 1
        elif size_bytes >= _LARGE_BYTES:
            share = _NEWEST if self._large else 1.0
            rate = size_bytes / max(seconds - self.latency_seconds, seconds / 10, 1e-6)
            self.bytes_per_second += share * (rate - self.bytes_per_second)
            self._large += 1

    @property
    def worth_a_hop_bytes(self) -> float:
        """What could be streamed while one request is on its way; no more than a long payload."""
        return min(self.latency_seconds * self.bytes_per_second, float(LONG_PAYLOAD_BYTES))


_speeds: dict[str, LinkSpeed] = {}
_lock = threading.Lock()


def link_speed(url: str) -> LinkSpeed:
    """What is known of the link to where a URL lies."""
    place = split_url(url)[0]
    with _lock:
        return _speeds.setdefault(place, LinkSpeed())


class RemoteArchive:
    """An archive in a store. Its object is looked at once; another state of it later is an error.

    Args:
        url: the object.
        store: an open store; ``None``: the one of the URL.
        known: size in bytes and state (`FileMark.state`), where a listing told them: then it is not looked at, and
            another state when it is read is an error.
        kept_bytes: what windows brought is kept up to so many bytes, the newest of it.

    Attributes:
        path: the URL.
        transfer: what it cost so far.
    """

    def __init__(
        self,
        url: str,
        *,
        store: Store | None = None,
        known: tuple[int, str] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.path = url
        self.transfer = Transfer()
        self._store = store or open_store(url)
        self._speed = link_speed(url)
        self._stat = Stat(known[0]) if known else None
        self._expected = known[1] if known else ""
        self._most_kept_bytes = kept_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._headers: dict[int, bytes] = {}

    def stat(self) -> Stat:
        """Size and ETag. Raises StorageError; ``errno.ENOENT`` where there is no such object."""
        if self._stat is None:
            begin = time.perf_counter()
            self._stat = self._store.stat(self.path)
            self._count(1, 0, time.perf_counter() - begin)
        return self._stat

    def mark(self) -> FileMark:
        """Size and a number of the ETag."""
        return mark_of(self.stat())

    def pread(self, length: int, start: int) -> bytes:
        """Up to ``length`` bytes from ``start``; fewer only where the archive ends. Raises StorageError.

        What a read-ahead fetched is taken from the spool.
        """
        ahead = SPOOL.take(self.path, start, start + length)
        if ahead is not None:
            if self._expected:
                self._compare_state()
            return ahead
        stat = self.stat()
        stop = min(start + length, stat.size_bytes)
        if stop <= start:
            return b""
        begin = time.perf_counter()
        data = self._store.read(self.path, start, stop, etag=stat.etag)
        self._count(1, len(data), time.perf_counter() - begin)
        if self._expected:
            self._compare_state()
        return data

    read = pread

    def read_many(self, starts: Sequence[int], length: int) -> list[bytes]:
        """As `read` at each of some places; what lies in windows that were read is taken from them."""
        size_bytes = self.stat().size_bytes
        return self.read_ranges([(start, max(start, min(start + length, size_bytes))) for start in starts])

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `read` for each of some ranges; near ones are one request."""
        found = [self._from_kept(start, stop - start) if start < stop else b"" for start, stop in ranges]
        missing = [number for number, data in enumerate(found) if data is None]
        if missing:
            begin = time.perf_counter()
            asked = [ranges[number] for number in missing]
            fetched = self._store.read_ranges(self.path, asked, etag=self.stat().etag)
            self._count(len(fetched), sum(map(len, fetched)), time.perf_counter() - begin)
            for number, data in zip(missing, fetched, strict=True):
                found[number] = data
        return [data or b"" for data in found]

    def window(self) -> Window:
        """A window that hops or streams, forward."""
        return RemoteWindow(self)

    def next_data(self, position: int, size_bytes: int) -> int:
        """The position itself: no store tells of holes."""
        return position

    def close(self) -> None:
        """Forget what was kept."""
        self._kept.clear()
        self._headers.clear()
        self._kept_bytes = 0

    def fetch_window(self, start: int, length: int, *, jumped: bool) -> bytes:
        """Bytes for a window; they are kept for `read_many` while there is room."""
        data = self.read(length, start)
        self.transfer = self.transfer.plus(Transfer(hops=int(jumped), streamed=int(not jumped)))
        self._kept.append((start, data))
        self._kept_bytes += len(data)
        while self._kept_bytes > self._most_kept_bytes:
            base, old = self._kept.popleft()
            self._kept_bytes -= len(old)
            self._keep_headers(base, old)
        return data

    def _keep_headers(self, base: int, data: bytes) -> None:
        """Keep what looks like headers of a window that goes: a shard's fingerprint asks for some of them again."""
        at = data.find(_MAGIC)
        while at >= 0 and len(self._headers) < _HEADERS_KEPT:
            start = at - _MAGIC_AT
            if start >= 0 and (base + start) % BLOCK_BYTES == 0:
                self._headers[base + start] = data[start : start + BLOCK_BYTES]
            at = data.find(_MAGIC, at + 1)

    @property
    def worth_a_hop_bytes(self) -> float:
        """Jumps of more bytes are quicker made than streamed over."""
        return self._speed.worth_a_hop_bytes

    def _from_kept(self, start: int, length: int) -> bytes | None:
        if length == BLOCK_BYTES and len(block := self._headers.get(start, b"")) == length:
            return block
        stop = min(start + length, self.stat().size_bytes)
        for base, data in self._kept:
            if base <= start and stop <= base + len(data):
                return data[start - base : stop - base]
        return None

    def _compare_state(self) -> None:
        """See that what was read is what the listing told of."""
        etag = self._store.seen_etag(self.path)
        if etag is None:
            return  # a store that tells none
        expected, self._expected = self._expected, ""
        self._stat = Stat(self.stat().size_bytes, etag)
        if expected not in states_of(self._stat):
            raise ObjectChangedError(redacted(self.path), expected=f"state {expected}", found=etag)

    def _count(self, requests: int, size_bytes: int, seconds: float) -> None:
        self.transfer = self.transfer.plus(Transfer(requests, size_bytes, seconds))
        if requests == 1:
            self._speed.count(size_bytes, seconds)


class RemoteWindow(Window):
    """A window over an archive in a store: short after jumps that are worth a request, else ever longer."""

    __slots__ = ("_archive", "_length")

    def __init__(self, archive: RemoteArchive) -> None:
        super().__init__(b"", 0)
        self._archive = archive
        self._length = HOP_BYTES

    def take(self, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the archive ends."""
        length = min(length, self._archive.stat().size_bytes - start)
        if length <= 0:
            return b""
        at = start - self.base
        if at < 0 or at + length > len(self.data):
            self._refill(start, length)
            at = 0
        return self.data[at : at + length]

    def _refill(self, start: int, length: int) -> None:
        end = self.base + len(self.data)
        skipped = start - end
        hop = skipped > self._archive.worth_a_hop_bytes or skipped < 0
        wanted = HOP_BYTES if hop or not self.data else max(2 * self._length, 2 * skipped)
        self._length = min(wanted, STREAM_BYTES)
        self.base = start
        self.data = self._archive.fetch_window(start, max(length, self._length), jumped=hop)


def mark_of(stat: Stat) -> FileMark:
    """Size and ETag as a mark; the ETag's digest stands for the time that stores do not tell."""
    if stat.etag is None:
        return FileMark(stat.size_bytes, 0)
    digest = hashlib.blake2b(stat.etag.encode(), digest_size=7).digest()
    return FileMark(stat.size_bytes, int.from_bytes(digest, "big"), stat.etag)


def states_of(stat: Stat) -> tuple[str, ...]:
    """States as `FileMark.state` tells them; some listings leave out the quotes of an ETag, or write them."""
    if stat.etag is None:
        return ()
    bare = stat.etag.strip('"')
    return tuple(mark_of(Stat(stat.size_bytes, etag)).state for etag in (stat.etag, bare, f'"{bare}"'))


def is_missing(error: StorageError) -> bool:
    """Whether there is no such object."""
    return error.errno == errno.ENOENT
