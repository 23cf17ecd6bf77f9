"""Objects below a folder of a store by names that come from strangers: as `inside`, where there are no links."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omniloom.errors import StorageError
from omniloom.storage.inside import MAX_FILE_BYTES, InsideFolder, OutsideError
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, redacted


@dataclass(frozen=True)
class InsideStore:
    """A folder of a store whose objects are read by relative name.

    Attributes:
        root: its URL.
        max_file_bytes: the largest object that is read.
    """

    root: str
    max_file_bytes: int = MAX_FILE_BYTES

    def locate(self, name: str) -> str:
        """URL of the object of that name, which need not exist. Raises OutsideError."""
        if not name:
            raise OutsideError(f"{redacted(self.root)}: {name!r} is no name of a file")
        try:
            url = join_url(self.root, name)
        except StorageError as error:
            raise OutsideError(str(error)) from error
        if url == self.root:
            raise OutsideError(f"{redacted(self.root)}: {name!r} is the folder itself")
        return url

    def read(self, name: str) -> bytes:
        """All bytes of an object.

        Raises:
            OutsideError: the name leads out of the folder.
            StorageError: there is no such object (``errno.ENOENT``), it is too large, or it cannot be read.
        """
        url = self.locate(name)
        store = open_store(url)
        stat = store.stat(url)
        if stat.size_bytes > self.max_file_bytes:
            raise StorageError(f"{redacted(url)}: {stat.size_bytes:,} bytes; at most {self.max_file_bytes:,} are read")
        return store.read(url, 0, stat.size_bytes, etag=stat.etag)


def inside_folder(root: str | os.PathLike[str], *, follow_links: bool = False) -> InsideFolder | InsideStore:
    """The files of a folder of this machine or of a store.

    Args:
        root: the folder, a path or URL.
        follow_links: read through symbolic links that leave a folder of this machine.
    """
    text = os.fspath(root)
    return InsideStore(text) if is_url(text) else InsideFolder(text, follow_links=follow_links)
