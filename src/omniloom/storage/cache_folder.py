"""Where this machine keeps what can be had again."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from omniloom.storage.messages import storage_error

CACHE_VARIABLE = "OMNILOOM_CACHE"


def node_cache(*names: str) -> Path:
    """A folder of this machine for what can be had again: below ``OMNILOOM_CACHE``, or the user's cache."""
    root = os.environ.get(CACHE_VARIABLE)
    if root is None:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "omniloom")  # noqa: PTH118, PTH111
    return Path(root, *names)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One process of this machine at a time in a folder, which is made; a disk without locks is used without.

    Raises:
        StorageError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error("keep a copy in", folder, error) from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
