"""Whole objects of a store kept on this machine: indexes that are read in any order, and by every process of a node."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from omniloom.errors import StorageError
from omniloom.storage.cache_folder import alone_in
from omniloom.storage.cache_folder import node_cache as node_cache  # noqa: PLC0414 - callers import it from here
from omniloom.storage.files import remove_file, replace_file, storage_error
from omniloom.storage.kept_room import make_room, note_use
from omniloom.storage.open import is_local, local_path, open_store
from omniloom.storage.store import Stat
from omniloom.storage.urls import is_url, join_url, name_of, redacted, relative_to

PIECE_BYTES = 16 << 20
_THREADS = 4
_WHOLE = "whole"


class StoredFile(NamedTuple):
    """A file of a data set that lies elsewhere, and its place on this machine.

    Attributes:
        url: where it lies; a plain path for one that is read where it lies.
        path: where it is kept on this machine.
        size_bytes: its size, where that is known: then it costs one request.
    """

    url: str
    path: str
    size_bytes: int | None = None

    def fetch(self) -> str:
        """Path of the file, brought here if it was not yet. Raises StorageError; ENOENT where there is none."""
        if not os.path.exists(self.path):  # noqa: PTH110 - once a shard
            if not is_url(self.url):
                raise storage_error("read", self.url, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
            copy_here(self.url, self.path, size_bytes=self.size_bytes)
        return self.path


def fetched(file: str | StoredFile) -> str:
    """The path of a file that may have to be brought here first. Raises StorageError."""
    return file.fetch() if isinstance(file, StoredFile) else file


def kept_copy(file: str | os.PathLike[str]) -> Path:
    """A file of this machine as it is; of a store, a copy on this machine, one for each state that it had.

    Raises:
        StorageError: there is none (``errno.ENOENT``), it cannot be had, or the disk is full.
    """
    text = os.fspath(file)
    if not is_url(text):
        return Path(text)
    stat = open_store(text).stat(text)
    identity = f"{text.partition('?')[0]}\n{stat.size_bytes}\n{stat.etag}"
    path = node_cache("files", hashlib.sha256(identity.encode()).hexdigest()[:32], name_of(text))
    if stat.etag is None or not path.is_file():
        copy_here(text, path)
        make_room(node_cache("files"))
    note_use(path.parent)
    return path


def kept_folder(folder: str | os.PathLike[str]) -> Path:
    """A folder of this machine as it is; of a store, a copy of all below it, one for each state that it had.

    Several processes may ask at once: one fetches, the others wait.

    Raises:
        StorageError: there is nothing below it (``errno.ENOENT``), it cannot be had, or the disk is full.
    """
    text = os.fspath(folder)
    if not is_url(text):
        return Path(text)
    if is_local(text):
        return Path(local_path(text))
    entries = list(open_store(text).scan(text))
    if not entries:
        raise storage_error("read", text, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    names = {relative_to(entry.url, text): entry for entry in entries}
    for name in names:
        join_url(text, name)  # refuses what would climb out of the copy
    states = sorted((name, entry.size_bytes, entry.etag) for name, entry in names.items())
    identity = json.dumps([text.partition("?")[0], states])
    kept = node_cache("folders", hashlib.sha256(identity.encode()).hexdigest()[:32])
    path = kept / name_of(text)
    with alone_in(kept):
        if not (kept / _WHOLE).is_file():
            with ThreadPoolExecutor(_THREADS) as threads:
                bringing = [threads.submit(copy_here, one.url, path / name) for name, one in names.items()]
            for one in bringing:
                one.result()
            replace_file(kept / _WHOLE, "")
            make_room(node_cache("folders"))
    note_use(kept)
    return path


def copy_here(url: str, path: str | os.PathLike[str], *, size_bytes: int | None = None) -> None:
    """Bring an object here, in pieces and under another name first: several processes may do so at once.

    Args:
        url: the object.
        path: where its copy is to be.
        size_bytes: its size, where that is known: a small one is then fetched without looking at it first.

    Raises:
        StorageError: it cannot be had, or the disk is full; nothing is left behind.
    """
    store = open_store(url)
    stat = store.stat(url) if size_bytes is None else Stat(size_bytes)
    target = Path(path)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            if stat.size_bytes <= PIECE_BYTES:  # as a whole: also of servers that give no ranges
                file.write(store.read(url, etag=stat.etag))
            for start in range(0, stat.size_bytes if stat.size_bytes > PIECE_BYTES else 0, PIECE_BYTES):
                stop = min(start + PIECE_BYTES, stat.size_bytes)
                file.write(store.read(url, start, stop, etag=stat.etag))
        partial.replace(target)
    except StorageError:
        remove_file(partial)
        raise
    except OSError as error:
        remove_file(partial)
        raise storage_error(f"keep a copy of {redacted(url)} in", target, error) from error


def copy_there(path: str | os.PathLike[str], url: str) -> None:
    """Write a file of this machine to a store, in pieces; readers see all of it or what was there before.

    Raises:
        StorageError: it cannot be read or written.
    """
    try:
        with Path(path).open("rb") as file, open_store(url).open_writer(url) as writer:
            while piece := file.read(PIECE_BYTES):
                writer.write(piece)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error("read", path, error) from error
