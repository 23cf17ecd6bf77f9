"""Object stores through obstore (Rust object_store). Opened lazily in each process, never carried over a fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from omniloom.errors import StorageError


class BucketStore:
    """Objects of buckets by URL, such as ``s3://bucket/key``. Credentials come from the cloud's usual environment.

    Args:
        options: options of the store, as obstore names them (``endpoint``, ``region``, ...).
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._opened: dict[tuple[int, str], Any] = {}

    def read(self, url: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes ``[start, stop)`` of an object; to its end without ``stop``. Raises StorageError."""
        store, key = self._bucket(url)
        end = self.size(url) if stop is None else stop
        if end <= start:
            return b""
        data: bytes = _run(url, lambda: bytes(store.get_range(key, start=start, end=end)))
        if len(data) != end - start:
            raise StorageError(f"{url}: {len(data)} bytes found at byte {start}, {end - start} expected")
        return data

    def size(self, url: str) -> int:
        """Size in bytes. Raises StorageError when there is no such object."""
        store, key = self._bucket(url)
        return int(_run(url, lambda: store.head(key)["size"]))

    def list(self, prefix: str) -> Iterator[str]:
        """URLs of all objects below a prefix, sorted."""
        store, key = self._bucket(prefix)
        root = prefix[: len(prefix) - len(key)] if key else prefix.rstrip("/") + "/"
        names = _run(prefix, lambda: [one["path"] for chunk in store.list(prefix=key or None) for one in chunk])
        yield from (root + name for name in sorted(names))

    def write(self, url: str, data: bytes) -> None:
        """Write a whole object; stores put objects atomically."""
        store, key = self._bucket(url)
        _run(url, lambda: store.put(key, data))

    def _bucket(self, url: str) -> tuple[Any, str]:
        parts = urlsplit(url)
        name = f"{parts.scheme}://{parts.netloc}"
        place = (os.getpid(), name)
        if place not in self._opened:
            try:
                from obstore.store import from_url  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise StorageError(f"{url}: object stores need the extra: pip install 'omniloom[cloud]'") from error
            self._opened[place] = _run(name, lambda: from_url(name, **self._options))
        return self._opened[place], parts.path.lstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_opened": {}}


def _run(url: str, call: Any) -> Any:
    try:
        return call()
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"{url}: {type(error).__name__}: {error}") from error
