"""`FileStoreCachePool`: values of stores fetched ahead by threads onto the local disk, until they are used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
import threading
import uuid
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from omniloom.data.sample import SourceInfo
from omniloom.data.side.cache_folder import CacheFolder
from omniloom.data.side.lazy import CachePool, Lazy
from omniloom.data.side.store import FileStore, add_source_info
from omniloom.errors import ConfigError

T = TypeVar("T")
Key = tuple[str, str]


@dataclass(eq=False)
class PendingTask:
    """A value on its way into the cache, or there; its fields have Energon's names.

    Attributes:
        ds: its store.
        fname: its name in the store.
        send_to_cache_future: the fetching; gives whether the value is in the cache.
        refcount: lazies that have yet to use it.
        require_data_now: somebody waits for it, so it must not wait for room.
        cache_path: its file, once it is written.
        data_size: room it takes.
        source_info: where it came from.
    """

    ds: FileStore[Any]
    fname: str
    send_to_cache_future: Future[bool] | None = None
    refcount: int = 1
    require_data_now: bool = False
    cache_path: Path | None = None
    data_size: int = 0
    source_info: SourceInfo | None = None


class FileCacheLazy(Lazy[T]):
    """A value that a pool fetches ahead. Its file goes when the last reference was used or dropped."""

    def __init__(self, *, ds: FileStore[T], fname: str, pool: FileStoreCachePool, entry: PendingTask) -> None:
        super().__init__(ds=ds, fname=fname, pool=pool)
        self.entry = entry
        self._pool = pool
        self._data: tuple[T, SourceInfo] | None = None
        self._used = False

    def get(self, sample: Any = None) -> T:
        """The value, read once; where it came from is added to the sources of ``sample``."""
        if self._data is None:
            self._used = True
            self._data = self._pool.take(self.entry)
        add_source_info(sample, self._data[1])
        return self._data[0]

    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            self._pool.drop(self.entry)


class CacheFileLazy(Lazy[T]):
    """A value that user code put away; its file goes when it was used or dropped."""

    def __init__(self, *, fname: str, pool: FileStoreCachePool, cache_path: Path) -> None:
        super().__init__(ds=None, fname=fname, pool=pool)
        self.cache_path: Path | None = cache_path
        self._pool = pool
        self._data: T | None = None

    def get(self, sample: Any = None) -> T:
        """The value. It has no source."""
        if self.cache_path is not None:
            path, self.cache_path = self.cache_path, None
            self._data = self._pool.unpickled(path)
        return self._data  # type: ignore[return-value]

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __del__(self) -> None:
        if getattr(self, "cache_path", None) is not None:
            with contextlib.suppress(OSError):
                self.cache_path.unlink()  # type: ignore[union-attr]


class FileStoreCachePool(CachePool):
    """Fetches values ahead onto the local disk, within a size. Each process has a folder of its own, which is removed
    when the pool is closed or the process ends; what a killed process left, the next one removes.

    Args:
        parent_cache_dir: where the folder is made; ``None``: the system's temporary folder.
        num_workers: threads that fetch.
        max_cache_size_gbytes: disk space at most, in GiB.
        max_cache_count: files at most.
        method: ``raw``: keep the stores' bytes and decode them when they are used; ``pickle``: keep decoded values.

    Raises:
        ConfigError: unknown method, or limits that hold nothing.
    """

    def __init__(
        self,
        *,
        parent_cache_dir: str | os.PathLike[str] | None = None,
        num_workers: int = 8,
        max_cache_size_gbytes: float = 1024,
        max_cache_count: int = 10_000_000,
        method: Literal["raw", "pickle"] = "raw",
    ) -> None:
        if method not in ("raw", "pickle"):
            raise ConfigError(f"method={method!r} found; 'raw' or 'pickle' expected")
        if num_workers < 1 or max_cache_count < 1 or not max_cache_size_gbytes > 0:
            raise ConfigError(
                f"num_workers={num_workers}, max_cache_count={max_cache_count}, "
                f"max_cache_size_gbytes={max_cache_size_gbytes}: expected numbers above 0"
            )
        self.parent_cache_dir = Path(parent_cache_dir or tempfile.gettempdir())
        self.num_workers = num_workers
        self.max_cache_size = int(max_cache_size_gbytes * (1 << 30))
        self.max_cache_count = max_cache_count
        self.method = method
        self._owner = -1
        self._renew()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (
            self.parent_cache_dir,
            self.num_workers,
            self.max_cache_size / (1 << 30),
            self.max_cache_count,
            self.method,
        )

    def __repr__(self) -> str:
        kept = f"{self.current_cache_count} files of {self.current_cache_size:,} bytes"
        return f"FileStoreCachePool({self.cache_dir}, {kept})"

    @property
    def cache_dir(self) -> Path:
        """The folder of this process."""
        return self._folder.path

    def get(self, ds: FileStore[T], fname: str, sample: Any = None) -> T:
        """A value now, past the cache; where it came from is added to the sources of ``sample``."""
        value: T = ds.get(fname, sample)
        return value

    def get_lazy(self, ds: FileStore[T], fname: str) -> FileCacheLazy[T]:
        """A reference to a value, which is fetched from now on. Those of the same store and name share the fetching.

        Raises:
            RuntimeError: the pool is closed.
        """
        self._renew()
        with self._lock:
            if self._shutting_down:
                raise RuntimeError("the cache pool is closed")
            entry = self._pending_tasks.get((ds.get_path(), fname))
            if entry is None:
                entry = self._pending_tasks[ds.get_path(), fname] = PendingTask(ds, fname)
                entry.send_to_cache_future = self._worker_pool.submit(self._fetch, entry)
            else:
                entry.refcount += 1
        return FileCacheLazy(ds=ds, fname=fname, pool=self, entry=entry)

    def to_cache(self, data: T, name: str) -> CacheFileLazy[T]:
        """Put a value away on the disk, and get a reference to it. The name is for people."""
        self._renew()
        path = self._folder.write(uuid.uuid4().hex, pickle.dumps(data))
        return CacheFileLazy(fname=name, pool=self, cache_path=path)

    def unpickled(self, path: Path) -> Any:
        """A value that this process put away, whose file is removed."""
        data = self._folder.read(path)
        path.unlink(missing_ok=True)
        return pickle.loads(data)

    def close(self) -> None:
        """End the threads and remove the folder. References that were not used are lost."""
        with self._lock:
            self._shutting_down = True
            for entry in self._pending_tasks.values():
                if entry.send_to_cache_future is not None:
                    entry.send_to_cache_future.cancel()
            self._room.notify_all()
        self._worker_pool.shutdown(wait=True)
        with self._lock:
            self._pending_tasks.clear()
            self.current_cache_size = self.current_cache_count = 0
        self._folder.close()

    def take(self, entry: PendingTask) -> tuple[Any, SourceInfo]:
        """The value of an entry for one of its references; for `FileCacheLazy`."""
        cached = False
        try:
            with self._lock:
                entry.require_data_now = True
                self._room.notify_all()
                future = entry.send_to_cache_future
            if future is not None and not future.cancel():
                with contextlib.suppress(CancelledError):
                    cached = future.result()
            return self._read(entry) if cached else entry.ds[entry.fname]
        finally:
            self.drop(entry, again=not cached)

    def drop(self, entry: PendingTask, *, again: bool = False) -> None:
        """One reference fewer; for `FileCacheLazy`.

        Args:
            entry: what it refers to.
            again: fetch for those that are left: their fetching was given up for one that could not wait.
        """
        if self._owner != os.getpid():
            return
        with self._lock:
            entry.refcount -= 1
            entry.require_data_now = False
            if entry.refcount <= 0:
                self._pending_tasks.pop((entry.ds.get_path(), entry.fname), None)
                if entry.send_to_cache_future is not None:
                    entry.send_to_cache_future.cancel()
                self._remove(entry)
                self._room.notify_all()
            elif again and entry.cache_path is None and not (self._shutting_down or _failed(entry)):
                entry.send_to_cache_future = self._worker_pool.submit(self._fetch, entry)

    def _fetch(self, entry: PendingTask) -> bool:
        """Bring a value into the cache; false where there is no need or no room."""
        if self.method == "raw":
            data, entry.source_info = entry.ds._get_raw(entry.fname)
        else:
            value, entry.source_info = entry.ds[entry.fname]
            data = pickle.dumps(value)
        with self._lock:
            while not self._has_room(len(data)):
                if entry.require_data_now or self._shutting_down or entry.refcount <= 0:
                    return False
                self._room.wait()
            if self._shutting_down or entry.refcount <= 0:
                return False
            entry.data_size = len(data)
            self.current_cache_size += entry.data_size
            self.current_cache_count += 1
        try:
            path = self._folder.write(_file_name(entry), data)
        except BaseException:
            self._give_back(entry)
            raise
        with self._lock:
            entry.cache_path = path
            if entry.refcount <= 0:
                self._remove(entry)
        return True

    def _has_room(self, size_bytes: int) -> bool:
        full = self.current_cache_count + 1 > self.max_cache_count
        return not full and self.current_cache_size + size_bytes <= self.max_cache_size

    def _read(self, entry: PendingTask) -> tuple[Any, SourceInfo]:
        if entry.cache_path is None or entry.source_info is None:
            return entry.ds[entry.fname]
        data = self._folder.read(entry.cache_path)
        if self.method == "raw":
            return entry.ds._decode_raw(data, fname=entry.fname), entry.source_info
        return pickle.loads(data), entry.source_info  # this process wrote it, into a folder of its own

    def _remove(self, entry: PendingTask) -> None:
        if entry.cache_path is not None:
            with contextlib.suppress(OSError):
                entry.cache_path.unlink()
            entry.cache_path = None
            self._give_back(entry)

    def _give_back(self, entry: PendingTask) -> None:
        with self._lock:
            self.current_cache_size -= entry.data_size
            self.current_cache_count -= 1
            entry.data_size = 0
            self._room.notify_all()

    def _renew(self) -> None:
        """Begin anew in a child process: threads, locks and folder are its parent's."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._folder = CacheFolder(self.parent_cache_dir)
        self._worker_pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="omniloom-cache")
        self._pending_tasks: dict[Key, PendingTask] = {}
        self._shutting_down = False
        self.current_cache_size = 0
        self.current_cache_count = 0


def _again(parent: Path, workers: int, gbytes: float, count: int, method: Literal["raw", "pickle"]) -> Any:
    return FileStoreCachePool(
        parent_cache_dir=parent,
        num_workers=workers,
        max_cache_size_gbytes=gbytes,
        max_cache_count=count,
        method=method,
    )


def _failed(entry: PendingTask) -> bool:
    future = entry.send_to_cache_future
    return future is not None and future.done() and not future.cancelled() and future.exception() is not None


def _file_name(entry: PendingTask) -> str:
    names = (entry.ds.get_path(), entry.fname)
    return "_".join(
        hashlib.md5(name.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest() for name in names
    )
