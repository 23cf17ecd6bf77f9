"""Local files replaced in one step, and one message for what goes wrong with them."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from omniloom.errors import DatasetError, StorageError

TEMPORARY_SUFFIX = ".partial"

_ADVICE = {
    errno.ENOSPC: "Free some space and run the command again; what is finished is kept.",
    errno.EDQUOT: "Free some of the quota and run the command again; what is finished is kept.",
    errno.EACCES: "Check the permissions of the file and its folder.",
    errno.EPERM: "Check the permissions of the file and its folder.",
    errno.EROFS: "The file system is read-only; copy the data set to one that can be written to.",
}


def replace_file(path: str | os.PathLike[str], data: bytes | str, *, mode: int | None = None) -> None:
    """Write a whole file under a temporary name and rename it: readers see the old content or the new.

    The folder is made when it is missing.

    Args:
        path: the file.
        data: its content; text is written as UTF-8.
        mode: permission bits; ``None`` leaves what the process gives new files.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to. Nothing is left behind.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        remove_file(temporary)
        raise storage_error("write", target, error) from error


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove a file where it is there and can be removed."""
    with contextlib.suppress(OSError):
        Path(path).unlink()


def storage_error(verb: str, path: str | os.PathLike[str], error: OSError) -> StorageError:
    """The one message for a file that cannot be read or written: which, why, and what helps."""
    hint = _ADVICE.get(error.errno or 0, "Check the path and the disk.")
    found = StorageError(f"cannot {verb} {os.fspath(path)}: {error.strerror or error}. {hint}")
    found.errno = error.errno
    return found


def read_file(path: str | os.PathLike[str], *, what: str, advice: str) -> bytes:
    """Content of a file of the sidecar.

    Args:
        path: the file.
        what: what the file is, for the message.
        advice: what to do when it is not there.

    Raises:
        DatasetError: there is no such file.
        StorageError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{os.fspath(path)}: there is no {what}. {advice}") from None
    except OSError as error:
        raise storage_error("read", path, error) from error
