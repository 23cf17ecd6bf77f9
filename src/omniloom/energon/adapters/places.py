"""Where the files of `EPath` lie: a disk, a profile of the Multi-Storage Client, or a store of `omniloom.storage`."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

from omniloom.errors import ConfigError
from omniloom.storage.open import open_store


@dataclass(frozen=True)
class FileFacts:
    """What a place knows of a file or folder.

    Attributes:
        content_length: its size in bytes.
        last_modified: when it was written last; ``None``: the place does not say.
        type: ``"file"`` or ``"directory"``.
    """

    content_length: int
    last_modified: datetime | None = None
    type: str = "file"

    @property
    def st_size(self) -> int:
        """The size in bytes, as ``os.stat`` calls it."""
        return self.content_length

    @property
    def st_mtime(self) -> float:
        """When it was written last, in seconds since 1970; 0 where the place does not say."""
        return 0.0 if self.last_modified is None else self.last_modified.timestamp()


class PlaceOfFiles(Protocol):
    """What `EPath` asks of a place. Names are absolute, and start with a slash."""

    def open(self, name: str, mode: str) -> IO[Any]:
        """The file, opened for reading or writing; folders appear when something is written."""

    def facts(self, name: str) -> FileFacts:
        """What is known of a file or folder. Raises FileNotFoundError where there is none."""

    def files(self, name: str) -> Iterator[str]:
        """Names of all files below a folder."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class Disk:
    """The local disk."""

    def open(self, name: str, mode: str) -> IO[Any]:
        """The file, opened."""
        path = Path(name)
        if "r" not in mode:
            path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode, encoding=None if "b" in mode else "utf-8")

    def facts(self, name: str) -> FileFacts:
        """What the disk knows of a file or folder."""
        found = Path(name).stat()
        kind = "directory" if Path(name).is_dir() else "file"
        return FileFacts(found.st_size, datetime.fromtimestamp(found.st_mtime, UTC), kind)

    def files(self, name: str) -> Iterator[str]:
        """All files below a folder; links to folders are followed."""
        for folder, _, names in os.walk(name, followlinks=True):
            for one in sorted(names):
                yield str(Path(folder, one))

    def remove(self, name: str) -> None:
        """Remove a file."""
        Path(name).unlink()


@dataclass(frozen=True)
class ClientProfile:
    """A profile of the Multi-Storage Client, which has its own configuration or that of rclone.

    Attributes:
        profile: its name.
    """

    profile: str

    @property
    def _client(self) -> Any:
        try:
            from multistorageclient import resolve_storage_client  # noqa: PLC0415 - a heavy extra
        except ImportError as error:
            raise ConfigError(
                f"msc://{self.profile}: the Multi-Storage Client is missing; pip install multi-storage-client"
            ) from error
        return resolve_storage_client(f"msc://{self.profile}")[0]  # kept by the client, and made anew after a fork

    def open(self, name: str, mode: str) -> IO[Any]:
        """The object, opened."""
        opened: IO[Any] = self._client.open(name, mode)
        return opened

    def facts(self, name: str) -> FileFacts:
        """What the store knows of an object or prefix."""
        found = self._client.info(name)
        return FileFacts(found.content_length, found.last_modified, found.type)

    def files(self, name: str) -> Iterator[str]:
        """All objects below a prefix."""
        for found in self._client.list_recursive(name):
            yield f"/{found.key.lstrip('/')}"

    def remove(self, name: str) -> None:
        """Remove an object."""
        self._client.delete(name)


@dataclass(frozen=True)
class Bucket:
    """A bucket or server that `omniloom.storage` reads and writes.

    Attributes:
        root: its URL without a path, such as ``s3://bucket``.
    """

    root: str

    def open(self, name: str, mode: str) -> IO[Any]:
        """The object, read whole; or a file that is written as an object when it is closed."""
        store, url = open_store(self.root), self.root + name
        if "r" in mode:
            raw: IO[Any] = io.BytesIO(store.read(url))
        else:
            raw = _WrittenAtTheEnd(lambda data: store.write(url, data))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8")

    def facts(self, name: str) -> FileFacts:
        """Size of an object; whatever has objects below it is a folder."""
        store, url = open_store(self.root), self.root + name
        if store.exists(url):
            return FileFacts(store.size(url))
        if store.is_folder(url):
            return FileFacts(0, type="directory")
        raise FileNotFoundError(f"{url}: there is nothing")

    def files(self, name: str) -> Iterator[str]:
        """All objects below a prefix."""
        for url in open_store(self.root).list(f"{self.root}{name.rstrip('/')}/"):
            yield url.removeprefix(self.root)

    def remove(self, name: str) -> None:
        """Remove an object."""
        open_store(self.root).delete(self.root + name)


class _WrittenAtTheEnd(io.BytesIO):
    """Bytes that are handed on when the file is closed."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = write

    def close(self) -> None:
        """Hand the bytes on, once."""
        if not self.closed:
            self._write(self.getvalue())
        super().close()


def copy_file(source: PlaceOfFiles, name: str, target: PlaceOfFiles, target_name: str) -> None:
    """Copy one file from a place to the same or another one, in pieces."""
    with source.open(name, "rb") as read, target.open(target_name, "wb") as written:
        shutil.copyfileobj(read, written)
