"""Blocks of objects kept on this machine's disk, for all processes on it: each is fetched once, and never read torn.

A block is a file whose name is a digest of URL, ETag and number, so a changed object has other blocks. It is written
under a name of its own and renamed, and its end holds a checksum, so what a killed process or a full disk left is never
taken for a block. Who fetches is settled by tickets, not by locks. The oldest blocks go when the folder outgrows its
limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from omniloom.storage.cache_folder import node_cache
from omniloom.storage.counts import COUNTS
from omniloom.storage.store import Range, Stat
from omniloom.storage.tickets import Tickets

BLOCK_BYTES = 1 << 20
_END = struct.Struct("<4sIQ")
_MAGIC = b"OMB1"
_KEPT_BLOCKS = 16
_RENEWED_SECONDS = 60.0
_LONGEST_POLL_SECONDS = 0.05
_LEFT_OVER_SECONDS = 3600.0
_FREE_SHARE = 0.02
_SILENT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 60.0

logger = logging.getLogger("omniloom")
_CACHES: dict[tuple[str, int], BlockCache | None] = {}
Fetch = Callable[[int, int], bytes]


@dataclass
class _Order:
    """What one read wants: the places of its blocks, how those that are missing are fetched, and what is here."""

    paths: dict[int, str]
    stat: Stat
    fetch: Fetch
    longest_bytes: int
    blocks: dict[int, bytes] = field(default_factory=dict)

    def ticket(self, number: int) -> str:
        return f"{self.paths[number]}.ticket"


@dataclass(frozen=True)
class CacheContents:
    """What lies in a cache.

    Attributes:
        blocks: its blocks.
        size_bytes: their bytes on disk.
    """

    blocks: int
    size_bytes: int


class BlockCache:
    """A folder of blocks.

    Args:
        folder: on a disk of this machine; made when it is missing.
        limit_bytes: the oldest blocks go when it outgrows this. Each process looks after it has written a 32nd of it,
            so the folder may be larger by that much for each process.
    """

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self._tickets = Tickets()
        self._lock = threading.Lock()
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._written_bytes = limit_bytes  # so that what was there before is looked at first
        self._silent_until = 0.0

    def read_ranges(
        self, url: str, ranges: Iterable[Range], stat: Stat, fetch: Fetch, *, longest_bytes: int
    ) -> list[bytes]:
        """Ranges of an object whose state is known, from the cache, or fetched and kept.

        Args:
            url: the object.
            ranges: within its size.
            stat: its size and ETag.
            fetch: gives bytes ``[start, stop)`` of it.
            longest_bytes: missing neighbours are fetched together up to so many bytes.
        """
        wanted = list(ranges)
        numbers = sorted({n for start, stop in wanted for n in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))})
        order = _Order({number: self._path(url, stat, number) for number in numbers}, stat, fetch, longest_bytes)
        missing = [number for number in numbers if not self._find(number, order)]
        COUNTS.add("cache_hits", len(order.blocks))
        COUNTS.add("cache_misses", len(missing))
        poll, started = 0.001, time.monotonic()
        while missing:
            # Whoever holds a ticket for ever does not hold up the others for ever.
            over = time.monotonic() - started > _LONGEST_WAIT_SECONDS
            mine = [number for number in missing if over or self._tickets.draw(order.ticket(number))]
            try:
                # One that was made since it was found missing need not be made again.
                self._fetch([number for number in mine if not self._find(number, order)], order)
            finally:
                for number in mine:
                    self._tickets.give_back(order.ticket(number))
            missing = [number for number in missing if number not in order.blocks and not self._find(number, order)]
            if missing:
                time.sleep(poll)
                poll = min(2 * poll, _LONGEST_POLL_SECONDS)
        return [_cut(order.blocks, start, stop) for start, stop in wanted]

    def remember(self, name: str, make: Callable[[], bytes], *, fresh_seconds: float) -> bytes:
        """Something small that one process of this machine asks for, and the others take from it.

        Args:
            name: what it is.
            make: asks for it.
            fresh_seconds: older answers are asked for again.
        """
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        path = f"{self.folder}/{digest[:2]}/{digest[2:]}.answer"
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if time.time() - os.stat(path).st_mtime < fresh_seconds and (found := self._load(path)) is not None:  # noqa: PTH116
                    return found
            if self._tickets.draw(f"{path}.ticket"):
                break
            if time.monotonic() > deadline:
                return make()
            time.sleep(_LONGEST_POLL_SECONDS / 5)
        try:
            made = make()
            self._save(path, made)
        finally:
            self._tickets.give_back(f"{path}.ticket")
        return made

    def contents(self) -> CacheContents:
        """What lies in it now."""
        sizes = [size for _, size, path in self._files() if path.endswith(".block")]
        return CacheContents(len(sizes), sum(sizes))

    def _path(self, url: str, stat: Stat, number: int) -> str:
        text = f"{url.partition('?')[0]}\0{stat.etag}\0{stat.size_bytes}\0{number}"
        name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f"{self.folder}/{name[:2]}/{name[2:]}.block"

    def _find(self, number: int, order: _Order) -> bool:
        """Take a block that is there."""
        path = order.paths[number]
        data = self._recent.get(path)
        if data is None:
            data = self._load(path)
            if data is None:
                return False
            self._keep(path, data)
        order.blocks[number] = data
        return True

    def _load(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - texts
                found = file.read()
                age_seconds = time.time() - os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        data = found[: -_END.size]
        if len(found) < _END.size or found[-_END.size :] != _END.pack(_MAGIC, zlib.crc32(data), len(data)):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - a disk that lost power
            return None
        if age_seconds > _RENEWED_SECONDS and path.endswith(".block"):
            with contextlib.suppress(OSError):
                os.utime(path)  # used just now: the oldest go first
        return data

    def _keep(self, path: str, data: bytes) -> None:
        with self._lock:
            self._recent[path] = data
            while len(self._recent) > _KEPT_BLOCKS:
                self._recent.popitem(last=False)

    def _fetch(self, numbers: list[int], order: _Order) -> None:
        """Fetch blocks, neighbours together, and keep them."""
        for group in _neighbours(numbers, max(1, order.longest_bytes // BLOCK_BYTES)):
            begin = group[0] * BLOCK_BYTES
            data = order.fetch(begin, min((group[-1] + 1) * BLOCK_BYTES, order.stat.size_bytes))
            for number in group:
                at = number * BLOCK_BYTES - begin
                order.blocks[number] = block = data[at : at + BLOCK_BYTES]
                self._keep(order.paths[number], block)
                self._save(order.paths[number], block)
                self._tickets.give_back(order.ticket(number))

    def _save(self, path: str, data: bytes) -> None:
        """Put a block into its place. Where the disk is full, blocks are not kept for a while; reading goes on."""
        if time.monotonic() < self._silent_until:
            return
        partial = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.partial"
        try:
            with open(partial, "wb") as file:  # noqa: PTH123
                file.write(data)
                file.write(_END.pack(_MAGIC, zlib.crc32(data), len(data)))
            os.replace(partial, path)  # noqa: PTH105
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(partial)  # noqa: PTH108
            COUNTS.add("cache_write_failures", 1)
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            self._shrink()
            return
        with self._lock:
            self._written_bytes += len(data)
            look = self._written_bytes > self.limit_bytes // 32
            if look:
                self._written_bytes = 0
        if look:
            self._shrink()

    @classmethod
    def at(cls, folder: str, limit_bytes: int) -> BlockCache | None:
        """The cache of this process in a folder; ``None``, told once, where it cannot be made."""
        key = (folder, limit_bytes)
        if key not in _CACHES:
            try:
                _CACHES[key] = cls(folder or node_cache("blocks"), limit_bytes).prepare()
            except OSError as error:
                logger.warning("%s: no cache of blocks can be made there: %s", folder or node_cache("blocks"), error)
                _CACHES[key] = None
        return _CACHES[key]

    def prepare(self) -> BlockCache:
        """Make its folders. Raises OSError where that cannot be done."""
        for number in range(256):
            (self.folder / f"{number:02x}").mkdir(parents=True, exist_ok=True)
        return self

    def _shrink(self) -> None:
        """Let the oldest blocks go until the folder is within its limit and the disk has some room."""
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        limit = self.limit_bytes - self.limit_bytes // 32
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.folder)
            lacking = int(disk.f_blocks * disk.f_frsize * _FREE_SHARE) - disk.f_bavail * disk.f_frsize
            limit = min(limit, max(0, held - lacking))
        for modified, size, path in files:
            left_over = path.endswith(".partial") and time.time() - modified > _LEFT_OVER_SECONDS
            if not left_over and (held <= limit or not path.endswith((".block", ".answer"))):
                continue
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
                held -= size
                COUNTS.add("cache_evictions", int(not left_over))

    def _files(self) -> list[tuple[float, int, str]]:
        """Time of the last use, size and path of every file."""
        found = []
        for number in range(256):
            with contextlib.suppress(OSError), os.scandir(f"{self.folder}/{number:02x}") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        found.append((status.st_mtime, status.st_size, entry.path))
        return found


def _neighbours(numbers: list[int], most: int) -> list[list[int]]:
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1 and len(groups[-1]) < most:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def _cut(blocks: dict[int, bytes], start: int, stop: int) -> bytes:
    pieces = []
    for number in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)):
        base = number * BLOCK_BYTES
        pieces.append(blocks[number][max(0, start - base) : stop - base])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
