"""The files of a distributed checkpoint in a store: written piece by piece, read by the ranges that a rank needs.

torch's own reader and writer do all but the input and output. A shard file is one object that is there, complete, when
its rank has closed it; nothing is ever renamed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemWriter, _StorageInfo

from omniloom.storage.open import open_store
from omniloom.storage.store import Store, Writer
from omniloom.storage.urls import is_url, join_url
from omniloom.train.sound_reading import METADATA, SoundReader

_COPIED_AHEAD_BYTES = 64 << 20


class StoreFiles(FileSystemBase):
    """What torch asks of a file system, answered by a store.

    torch notes and logs the names that it is given, so they are URLs without a query, which may hold secrets.
    """

    def __init__(self, url: str) -> None:
        self._store: Store = open_store(url)
        self._query = "".join(url.partition("?")[1:])

    def at(self, path: str | os.PathLike[str]) -> str:
        """The URL of a name, as the store is asked."""
        return f"{os.fspath(path)}{self._query}"

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """A file to be written, or the name of one to be read."""
        url = self.at(path)
        if mode == "rb":
            yield _Named(url)
            return
        with self._store.open_writer(url) as writer:
            yield _Upload(writer)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        """A file of a folder."""
        return join_url(os.fspath(path), suffix)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Copy and remove; torch does so with its small list of contents alone."""
        self._store.write(self.at(new_path), self._store.read(self.at(path)))
        self._store.delete(self.at(path))

    def init_path(self, path: str | os.PathLike[str]) -> str:
        """The URL."""
        return os.fspath(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """There are no folders to be made."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a URL."""
        return not isinstance(checkpoint_id, Path) and is_url(os.fspath(checkpoint_id))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Whether there is such a file."""
        return self._store.exists(self.at(path))

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Remove a file."""
        self._store.delete(self.at(path))


class StoreWriter(FileSystemWriter):
    """Writes a checkpoint's files to a store.

    Args:
        url: folder of the files.
    """

    def __init__(self, url: str) -> None:
        name = url.partition("?")[0]
        super().__init__(name, sync_files=False, per_thread_copy_ahead=_COPIED_AHEAD_BYTES)
        self.fs = cast(Any, StoreFiles(url))
        self.path = self.fs.init_path(name)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a URL."""
        return StoreFiles.validate_checkpoint_id(checkpoint_id)


class SoundStoreReader(SoundReader):
    """Reads a checkpoint's files in a store; nothing that they name is run.

    Args:
        url: folder of the files.
    """

    def __init__(self, url: str) -> None:
        name = url.partition("?")[0]
        super().__init__(name)
        self._files = StoreFiles(url)
        self.fs = cast(Any, self._files)
        self.path = self._files.init_path(name)
        self._store = open_store(url)

    def metadata_bytes(self) -> bytes:
        """Content of the list of contents."""
        return self._store.read(self._files.at(join_url(str(self.path), METADATA)))

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> IO[bytes]:
        """One entry, fetched as one range."""
        url = cast(_Named, file).url
        return io.BytesIO(self._store.read(url, sinfo.offset, sinfo.offset + sinfo.length))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a URL."""
        return StoreFiles.validate_checkpoint_id(checkpoint_id)


class _Named(io.RawIOBase):
    """Stands for a file whose ranges are read apart from each other."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


class _Upload(io.RawIOBase):
    """A stream into an object; tells how far it is, as torch notes where each entry begins."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer
        self._position = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: Any, /) -> int:
        """Take more bytes."""
        piece = bytes(data)  # torch hands over memory that it uses again, and an upload may send it later
        self._writer.write(piece)
        self._position += len(piece)
        return len(piece)
