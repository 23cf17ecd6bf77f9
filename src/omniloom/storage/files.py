"""Single files by path or URL: read, replaced in one step, removed. For plain paths no store is opened."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from omniloom.errors import DatasetError, StorageError
from omniloom.storage.messages import storage_error as storage_error  # noqa: PLC0414 - callers import it from here
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, redacted

TEMPORARY_SUFFIX = ".partial"


def replace_file(path: str | os.PathLike[str], data: bytes | str, *, mode: int | None = None) -> None:
    """Write a whole file in one step: readers see the old content or the new.

    On disk it is written under a temporary name and renamed; the folder is made when it is missing.

    Args:
        path: the file, a path or URL.
        data: its content; text is written as UTF-8.
        mode: permission bits of a file on disk; ``None`` leaves what the process gives new files.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to. Nothing is left behind.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    if isinstance(path, str) and is_url(path):
        open_store(path).write(path, content)
        return
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        remove_file(temporary)
        raise storage_error("write", target, error) from error


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove a file, by path or URL, where it is there and can be removed."""
    with contextlib.suppress(OSError):
        if isinstance(path, str) and is_url(path):
            open_store(path).delete(path)
        else:
            Path(path).unlink()


def file_exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a file, by path or URL. Raises StorageError where a store does not say."""
    if isinstance(path, str) and is_url(path):
        return open_store(path).exists(path)
    return os.path.isfile(path)  # noqa: PTH113 - texts and paths alike


def folder_exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a folder; in an object store, whether anything lies below it."""
    if isinstance(path, str) and is_url(path):
        return open_store(path).is_folder(path)
    return os.path.isdir(path)  # noqa: PTH112


def file_size(path: str | os.PathLike[str]) -> int:
    """Size in bytes of a file, by path or URL. Raises StorageError when there is none."""
    if isinstance(path, str) and is_url(path):
        return open_store(path).size(path)
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError as error:
        raise storage_error("look at", path, error) from error


def read_file(path: str | os.PathLike[str], *, what: str, advice: str) -> bytes:
    """Content of a file of the sidecar.

    Args:
        path: the file, a path or URL.
        what: what the file is, for the message.
        advice: what to do when it is not there.

    Raises:
        DatasetError: there is no such file.
        StorageError: it cannot be read.
    """
    try:
        if isinstance(path, str) and is_url(path):
            return open_store(path).read(path)
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise _no_file(path, what, advice) from None
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise _no_file(path, what, advice) from None
        raise
    except OSError as error:
        raise storage_error("read", path, error) from error


def _no_file(path: str | os.PathLike[str], what: str, advice: str) -> DatasetError:
    return DatasetError(f"{redacted(os.fspath(path))}: there is no {what}. {advice}")
