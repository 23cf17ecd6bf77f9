"""A store that is not on this machine: retried, checked for change, read in merged ranges, many at a time."""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from omniloom.errors import ObjectChangedError, StorageError
from omniloom.storage.backend import Backend, Got
from omniloom.storage.block_cache import BlockCache
from omniloom.storage.counts import COUNTS
from omniloom.storage.ranges import LongRange, cut_ranges, merge_ranges
from omniloom.storage.retry import NoRangesError, ShortBodyError, named_fault, retrying
from omniloom.storage.store import Entry, Range, Stat, Writer
from omniloom.storage.tuning import Options, Tuning, options_of
from omniloom.storage.urls import join_url, name_of, redacted, split_url
from omniloom.storage.writing import BlockWriter

_TAGS_KEPT = 65_536
_Listed = list[tuple[str, int, str | None]]
LISTING_FRESH_SECONDS = 60.0
"""A listing that another process of this machine asked for is taken for so long, where there is a cache."""
Answer = TypeVar("Answer")


class RemoteStore:
    """Objects by URL. Connections are opened lazily in each process and never carried over a fork or a pickle.

    Args:
        connect: makes the backend of a bucket or host of its options.
        query_is_ours: whether queries of URLs hold options, or belong to the server.
        given: options that the caller gave.
    """

    def __init__(
        self, connect: Callable[[str, Options], Backend], *, query_is_ours: bool = True, given: Mapping[str, Any]
    ) -> None:
        self._connect = connect
        self._query_is_ours = query_is_ours
        self._given = dict(given)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._forget()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._connect, '__name__', self._connect)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"connect": self._connect, "query_is_ours": self._query_is_ours, "given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._connect, self._query_is_ours, self._given = state["connect"], state["query_is_ours"], state["given"]
        self._forget()

    def read(self, url: str, start: int = 0, stop: int | None = None, *, etag: str | None = None) -> bytes:
        """Bytes ``[start, stop)`` of an object; to its end without ``stop``. Raises as `Store.read`."""
        if stop is None:
            cached = self._cached(url, etag)
            if cached is None:
                return self._get(url, start, None, etag)
            stop = max(start, cached[1].size_bytes)
        return self.read_ranges(url, [(start, stop)], etag=etag)[0]

    def read_ranges(self, url: str, ranges: Sequence[Range], *, etag: str | None = None) -> list[bytes]:
        """Many ranges of one object, in the order asked for."""
        cached = self._cached(url, etag)
        if cached is None or any(stop > cached[1].size_bytes for _, stop in ranges):
            return self._fetch_ranges(url, ranges, etag)
        cache, stat = cached
        tuning = self._options(url).tuning
        return cache.read_ranges(
            url,
            ranges,
            stat,
            lambda start, stop: self._fetch_ranges(url, [(start, stop)], stat.etag)[0],
            longest_bytes=tuning.part_bytes,
        )

    def _cached(self, url: str, etag: str | None) -> tuple[BlockCache, Stat] | None:
        """The cache on this machine and the state of an object, where it is kept there."""
        tuning = self._options(url).tuning
        if not tuning.cache_bytes:
            return None
        cache = BlockCache.at(tuning.cache_folder, tuning.cache_bytes)
        stat = self._stats.get(url)
        if stat is None or (etag is not None and etag != stat.etag):
            stat = self.stat(url)
        if etag is not None and etag != stat.etag:
            raise ObjectChangedError(redacted(url), expected=etag, found=stat.etag)
        return None if cache is None or stat.etag is None else (cache, stat)

    def _fetch_ranges(self, url: str, ranges: Sequence[Range], etag: str | None) -> list[bytes]:
        tuning = self._options(url).tuning
        wanted = [one for one in merge_ranges(ranges, gap_bytes=tuning.gap_bytes, longest_bytes=tuning.part_bytes)
                  if one.stop > one.start]  # fmt: skip
        cuts = [cut for one in wanted for cut in _parts(one, tuning.part_bytes)]
        if len(cuts) == 1:
            data = [self._get(url, cuts[0][0], cuts[0][1], etag)]
        else:
            data = list(self._threads(tuning).map(lambda cut: self._get(url, cut[0], cut[1], etag), cuts))
        pieces, at = [], 0
        for one in wanted:
            count = len(_parts(one, tuning.part_bytes))
            pieces.append((one, data[at] if count == 1 else b"".join(data[at : at + count])))
            at += count
        return cut_ranges(ranges, pieces)

    def stat(self, url: str) -> Stat:
        """Size and ETag."""
        stat = self._ask(url, lambda backend, key: backend.head(key))
        self._check(url, stat, None)
        if self._options(url).tuning.cache_bytes:
            with self._lock:
                self._stats[url] = stat
                if len(self._stats) > _TAGS_KEPT:
                    self._stats.popitem(last=False)
        return stat

    def size(self, url: str) -> int:
        """Size in bytes."""
        return self.stat(url).size_bytes

    def exists(self, url: str) -> bool:
        """Whether there is such an object."""
        try:
            self.stat(url)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def is_folder(self, url: str) -> bool:
        """Whether anything lies below it. Of a web server that does not say it is assumed."""
        try:
            return self._ask(url, lambda backend, key: any(backend.children(key.rstrip("/"))))
        except StorageError as error:
            if error.errno == errno.ENOTSUP:
                return True
            raise

    def list(self, prefix: str) -> Iterator[str]:
        """URLs of all objects below a folder, sorted."""
        return (entry.url for entry in self.scan(prefix))

    def scan(self, prefix: str) -> Iterator[Entry]:
        """All objects below a folder with their sizes, sorted."""
        root = _root_with_query(prefix)
        for key, size_bytes, etag in self._listed(prefix):
            yield Entry(join_url(root, key), size_bytes, etag)

    def _listed(self, prefix: str) -> _Listed:
        """Key, size and ETag of all objects below a folder; of the processes of a machine with a cache, one asks."""
        folder = split_url(prefix)[1].rstrip("/")

        def ask(backend: Backend, _key: str) -> _Listed:
            return sorted((key, stat.size_bytes, stat.etag) for key, stat in backend.scan(folder))

        tuning = self._options(prefix).tuning
        cache = BlockCache.at(tuning.cache_folder, tuning.cache_bytes) if tuning.cache_bytes else None
        if cache is None:
            return self._ask(prefix, ask)
        name = f"list {prefix.partition('?')[0]}"
        answer = cache.remember(
            name, lambda: json.dumps(self._ask(prefix, ask)).encode(), fresh_seconds=LISTING_FRESH_SECONDS
        )
        return [(key, size_bytes, etag) for key, size_bytes, etag in json.loads(answer)]

    def entries(self, prefix: str) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """The objects directly in a folder, and names of its folders."""
        folder = split_url(prefix)[1].rstrip("/")
        objects, folders = self._ask(prefix, lambda backend, key: backend.children(folder))
        cut, root = len(folder) + 1 if folder else 0, _root_with_query(prefix)
        found = [Entry(join_url(root, key), stat.size_bytes, stat.etag) for key, stat in sorted(objects) if key[cut:]]
        names = sorted(name for key in folders if (name := key.rstrip("/")[cut:]))
        return tuple(found), tuple(names)

    def children(self, prefix: str) -> tuple[str, ...]:
        """Names in a folder, those of folders with a slash at the end."""
        objects, folders = self.entries(prefix)
        return tuple(sorted([name_of(entry.url) for entry in objects] + [f"{name}/" for name in folders]))

    def seen_etag(self, url: str) -> str | None:
        """The ETag that an object had when this process first read or looked at it; ``None`` before that."""
        return self._tags.get(url)

    def write(self, url: str, data: bytes) -> None:
        """Write a whole object, in parts where it is long."""
        if len(data) > self._options(url).tuning.part_bytes * 4:
            with self.open_writer(url) as writer:
                writer.write(data)
            return
        self._ask(url, lambda backend, key: backend.put(key, data))
        self._forget_tag(url)

    def open_writer(self, url: str) -> Writer:
        """Write an object piece by piece, in bounded memory."""
        part_bytes = self._options(url).tuning.part_bytes
        self._forget_tag(url)
        return _NamedWriter(url, self._ask(url, lambda backend, key: backend.open_writer(key, part_bytes)))

    def delete(self, url: str) -> None:
        """Remove an object; one that is not there is removed already."""
        self._forget_tag(url)
        try:
            self._ask(url, lambda backend, key: backend.delete(key))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise

    def _get(self, url: str, start: int, stop: int | None, etag: str | None) -> bytes:
        def ask(backend: Backend, key: str) -> Got:
            COUNTS.add("requests", 1)
            got = backend.get(key, start, stop)
            COUNTS.add("fetched_bytes", len(got.data))
            size = got.stat.size_bytes if got.stat else None
            end = size if stop is None or (size is not None and size < stop) else stop
            if end is not None and len(got.data) != max(0, end - start):
                raise ShortBodyError(f"{len(got.data):,} of {end - start:,} bytes came")
            return got

        try:
            got = self._ask(url, ask)
        except NoRangesError:
            return self._cut_whole(url, start, stop, etag)
        if got.stat is not None:
            self._check(url, got.stat, etag)
        if stop is not None and len(got.data) != stop - start:
            raise StorageError(
                f"{redacted(url)}: {len(got.data)} bytes found at byte {start}, {stop - start} expected"
                + (f"; the object has {got.stat.size_bytes:,} bytes" if got.stat else "")
            )
        return got.data

    def _cut_whole(self, url: str, start: int, stop: int | None, etag: str | None) -> bytes:
        """A range of an object of a server that gives none: the object is fetched whole, and kept for a while."""
        most = self._options(url).tuning.whole_bytes
        whole = self._whole.get(url)
        if whole is None:
            size_bytes = self.stat(url).size_bytes
            if size_bytes > most:
                raise NoRangesError(
                    f"{redacted(url)}: the server gives no ranges, and {size_bytes:,} bytes are more than the {most:,} "
                    "that are fetched whole (whole_bytes). Copy the data to a server that gives ranges."
                )
            whole = self._get(url, 0, None, etag)
            with self._lock:
                self._whole[url] = whole
                while sum(map(len, self._whole.values())) > most and len(self._whole) > 1:
                    self._whole.popitem(last=False)
        return whole[start:stop]

    def _check(self, url: str, stat: Stat, etag: str | None) -> None:
        """An object must stay what this process saw first, or what the caller saw."""
        if stat.etag is None:
            return
        with self._lock:
            known = etag or self._tags.get(url)
            if known is None:
                self._tags[url] = stat.etag
                if len(self._tags) > _TAGS_KEPT:
                    self._tags.popitem(last=False)
        if known is not None and known != stat.etag:
            raise ObjectChangedError(redacted(url), expected=known, found=stat.etag)

    def _ask(self, url: str, ask: Callable[[Backend, str], Answer]) -> Answer:
        """One request, by the rules for faults."""
        key = split_url(url)[1]
        return retrying(
            lambda: ask(self._backend(url), key),
            where=redacted(url),
            retry_seconds=self._options(url).tuning.retry_seconds,
            refresh=lambda: self._disconnect(url),
        )

    def _place(self, url: str) -> tuple[str, str]:
        """What a connection is for: a bucket or host, and a query, of our options or to go along with requests."""
        return split_url(url)[0], url.partition("?")[2]

    def _options(self, url: str) -> Options:
        place = self._place(url)
        options = self._settings.get(place)
        if options is None:
            options = options_of(url, self._given, query_is_ours=self._query_is_ours)
            self._settings[place] = options
        return options

    def _backend(self, url: str) -> Backend:
        if self._process != os.getpid():
            self._forget()
        place = self._place(url)
        with self._lock:
            backend = self._backends.get(place)
            if backend is None:
                try:
                    root = place[0] if self._query_is_ours else _root_with_query(url)
                    backend = self._connect(root, self._options(url))
                except Exception as error:
                    raise named_fault(error, redacted(url)) from error
                self._backends[place] = backend
        return backend

    def _disconnect(self, url: str) -> None:
        with self._lock:
            self._backends.pop(self._place(url), None)

    def _threads(self, tuning: Tuning) -> ThreadPoolExecutor:
        if self._process != os.getpid():
            self._forget()
        with self._lock:
            pool = self._pool
            if pool is None:
                pool = self._pool = ThreadPoolExecutor(tuning.connections, "omniloom-store")
        return pool

    def _forget_tag(self, url: str) -> None:
        with self._lock:
            self._tags.pop(url, None)
            self._stats.pop(url, None)

    def _forget(self) -> None:
        """What belongs to one process alone."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._backends: dict[Any, Backend] = {}
        self._settings: dict[Any, Options] = {}
        self._pool = None
        self._tags: OrderedDict[str, str] = OrderedDict()
        self._stats: OrderedDict[str, Stat] = OrderedDict()
        self._whole: OrderedDict[str, bytes] = OrderedDict()


class _NamedWriter(BlockWriter):
    """A backend's writer whose errors say what was written."""

    def __init__(self, url: str, writer: Writer) -> None:
        self._url = url
        self._writer = writer

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""
        return int(self._named(lambda: self._writer.write(data)))

    def close(self) -> None:
        """Finish."""
        self._named(self._writer.close)

    def abort(self) -> None:
        """Give up."""
        self._named(self._writer.abort)

    def _named(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise named_fault(error, redacted(self._url)) from error


def _parts(one: LongRange, part_bytes: int) -> list[Range]:
    """A long range as ranges of at most ``part_bytes``, of even length."""
    length = one.stop - one.start
    count = -(-length // part_bytes)
    bounds = [one.start + length * number // count for number in range(count + 1)]
    return list(itertools.pairwise(bounds))


def _root_with_query(url: str) -> str:
    root = split_url(url)[0]
    _, mark, query = url.partition("?")
    return f"{root}{mark}{query}"
