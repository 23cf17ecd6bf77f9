"""Files of a folder by names that come from strangers: none leads out of it, and only plain files are read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from omniloom.errors import StorageError
from omniloom.storage.messages import storage_error

MAX_FILE_BYTES = 1 << 30


class OutsideError(StorageError):
    """A name leads out of its folder, or to something that is no plain file."""


@dataclass(frozen=True)
class InsideFolder:
    """A folder whose files are read by relative name.

    Attributes:
        root: the folder.
        follow_links: read through symbolic links that leave the folder; otherwise they are refused.
        max_file_bytes: the largest file that is read.
    """

    root: str
    follow_links: bool = False
    max_file_bytes: int = MAX_FILE_BYTES
    _real: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_real", os.path.realpath(self.root))

    def locate(self, name: str) -> str:
        """Path of the file of that name, which need not exist.

        Raises:
            OutsideError: the name, or a link it goes through, leads out of the folder, or no file can have it.
        """
        if not name or "\0" in name:
            raise OutsideError(f"{self.root}: {name!r} is no name of a file")
        path = os.path.normpath(os.path.join(self._real, name))  # noqa: PTH118 - strings: this runs once a file
        if not self.follow_links and self._has_link(path):
            path = os.path.realpath(path)
        if not path.startswith(os.path.join(self._real, "")):  # noqa: PTH118
            raise OutsideError(
                f"{self.root}: {name!r} leads to {path}, out of the folder. Name files below the folder"
                + ("." if self.follow_links else ", or copy what links lead to.")
            )
        return path

    def _has_link(self, path: str) -> bool:
        """Whether a path goes through a symbolic link below the folder, whose own path has none."""
        end = len(self._real)
        while (end := path.find(os.sep, end + 1)) > 0:
            if os.path.islink(path[:end]):  # noqa: PTH114 - strings, as above
                return True
        return os.path.islink(path)  # noqa: PTH114

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            OutsideError: the name leads out of the folder, or to no plain file.
            StorageError: there is no such file (``errno.ENOENT``), it is too large, or it cannot be read.
        """
        path = self.locate(name)
        try:
            # Not blocking, because opening a pipe would wait for a writer for ever.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error("read", path, error) from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OutsideError(f"{path}: not a plain file")
            if found.st_size > self.max_file_bytes:
                raise StorageError(f"{path}: {found.st_size:,} bytes; at most {self.max_file_bytes:,} are read")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        except StorageError:
            raise
        except OSError as error:
            raise storage_error("read", path, error) from error
        finally:
            os.close(descriptor)
