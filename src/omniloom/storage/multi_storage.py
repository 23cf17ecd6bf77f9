"""``msc://profile/path``: profiles of the Multi-Storage Client, from its own configuration files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from omniloom.errors import StorageError
from omniloom.storage.backend import Got
from omniloom.storage.store import Stat
from omniloom.storage.tuning import Options
from omniloom.storage.writing import BlockWriter


class MultiStorage:
    """One profile.

    Args:
        root: ``msc://profile``.
        options: of them, none is used: the profile says all.
    """

    def __init__(self, root: str, options: Options) -> None:
        try:
            import multistorageclient  # noqa: PLC0415 - an extra
            from multistorageclient.types import Range  # noqa: PLC0415
        except ImportError as error:
            raise StorageError(f"{root}: profiles need the extra: pip install 'omniloom[msc]'") from error
        self._range: Any = Range
        self._client: Any = multistorageclient.resolve_storage_client(f"{root}/")[0]

    def get(self, key: str, start: int, stop: int | None) -> Got:
        """Bytes of an object."""
        if stop is None and not start:
            return Got(bytes(self._client.read(key)), None)
        end = self.head(key).size_bytes if stop is None else stop
        data = bytes(self._client.read(key, byte_range=self._range(offset=start, size=end - start)))
        return Got(data, None if len(data) == end - start else self.head(key))

    def head(self, key: str) -> Stat:
        """Size and ETag."""
        return _stat(self._client.info(key))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stat]]:
        """Keys below a folder."""
        folder = f"{prefix}/" if prefix else ""
        for found in self._client.list(path=folder):
            if found.type == "file":
                yield found.key.lstrip("/"), _stat(found)

    def children(self, prefix: str) -> tuple[list[tuple[str, Stat]], list[str]]:
        """Keys directly in a folder: of objects and of folders."""
        folder = f"{prefix}/" if prefix else ""
        found = list(self._client.list(path=folder, include_directories=True))
        objects = [(one.key.lstrip("/"), _stat(one)) for one in found if one.type == "file"]
        return objects, [one.key.strip("/") for one in found if one.type == "directory"]

    def put(self, key: str, data: bytes) -> None:
        """Write a whole object."""
        self._client.write(key, data)

    def open_writer(self, key: str, part_bytes: int) -> MultiStorageWriter:
        """Write an object, which is sent when it is closed: the client has no uploads by part for others."""
        return MultiStorageWriter(self._client, key)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._client.delete(key)


class MultiStorageWriter(BlockWriter):
    """An object that is gathered in memory and sent when it is closed."""

    def __init__(self, client: Any, key: str) -> None:
        self._client, self._key = client, key
        self._gathered: io.BytesIO | None = io.BytesIO()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""
        if self._gathered is None:
            raise StorageError(f"{self._key}: written to after it was closed")
        return self._gathered.write(data)

    def close(self) -> None:
        """Send it."""
        if self._gathered is not None:
            gathered, self._gathered = self._gathered, None
            self._client.write(self._key, gathered.getvalue())

    def abort(self) -> None:
        """Forget it."""
        self._gathered = None


def _stat(found: Any) -> Stat:
    if found.type != "file":
        raise FileNotFoundError(found.key)
    tag = found.etag or (found.last_modified.isoformat() if found.last_modified else None)
    return Stat(int(found.content_length), tag)
