"""One message for what goes wrong with a file: which, why, and what helps."""

from __future__ import annotations

import errno
import os

from omniloom.errors import StorageError
from omniloom.storage.urls import redacted

_ADVICE = {
    errno.ENOSPC: "Free some space and run the command again; what is finished is kept.",
    errno.EDQUOT: "Free some of the quota and run the command again; what is finished is kept.",
    errno.EACCES: "Check the permissions of the file and its folder.",
    errno.EPERM: "Check the permissions of the file and its folder.",
    errno.EROFS: "The file system is read-only; copy the data set to one that can be written to.",
}


def storage_error(verb: str, path: str | os.PathLike[str], error: OSError) -> StorageError:
    """The one message for a file that cannot be read or written: which, why, and what helps."""
    hint = _ADVICE.get(error.errno or 0, "Check the path and the disk.")
    found = StorageError(f"cannot {verb} {redacted(os.fspath(path))}: {error.strerror or error}. {hint}")
    found.errno = error.errno
    return found


def missing(url: str, what: str = "object") -> StorageError:
    """The error of an object that is not there; its ``errno`` is ``ENOENT``."""
    found = StorageError(f"{redacted(url)}: there is no such {what}. Check the name, the bucket and its region.")
    found.errno = errno.ENOENT
    return found
