"""A folder of a process for files of its own, which goes away with it, also when it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import string
import weakref
from multiprocessing.util import Finalize
from pathlib import Path

from omniloom.errors import StorageError
from omniloom.storage.files import storage_error

PREFIX = "cache_"
LOCK_SUFFIX = ".lock"
_LETTERS = string.ascii_lowercase + string.digits


class CacheFolder:
    """A new folder below another one, readable by its owner alone.

    The process holds a lock beside it. What a killed process left is removed by the next one that makes a folder there.

    Args:
        parent: where it is made.

    Attributes:
        path: the folder.
    """

    def __init__(self, parent: Path) -> None:
        _remove_abandoned(parent)
        name = PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(16))
        self.path = parent.resolve() / name
        lock_path = self.path.with_name(f".{name}{LOCK_SUFFIX}")
        try:
            parent.mkdir(parents=True, exist_ok=True)
            # Locked before the folder is there, so that nobody takes it for abandoned.
            lock = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise storage_error("make the cache folder", self.path, error) from error
        self._finalizer = weakref.finalize(self, _remove, self.path, lock_path, lock, os.getpid())
        Finalize(None, self._finalizer, exitpriority=1)  # a forked child of multiprocessing runs no other finalizers

    def write(self, name: str, data: bytes) -> Path:
        """Put a file in. Raises StorageError when the disk is full."""
        path = self.path / name
        try:
            path.write_bytes(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise storage_error("write", path, error) from error
        return path

    def read(self, path: Path) -> bytes:
        """Bytes of a file. Raises StorageError when it is gone."""
        try:
            return path.read_bytes()
        except OSError as error:
            raise StorageError(f"{path}: is gone from the cache: {error.strerror}") from error

    def close(self) -> None:
        """Remove the folder with all its files, and those beside it whose process is gone."""
        self._finalizer()
        _remove_abandoned(self.path.parent)


def _remove(path: Path, lock_path: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:  # a child of a fork has only a copy of the descriptor
        return
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        lock_path.unlink()
    os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove folders whose process is gone: nobody holds their lock."""
    for lock_path in parent.glob(f".{PREFIX}{'[a-z0-9]' * 16}{LOCK_SUFFIX}"):
        with contextlib.suppress(OSError):
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(parent / lock_path.name[1 : -len(LOCK_SUFFIX)], ignore_errors=True)
                lock_path.unlink()
            finally:
                os.close(lock)
