"""A prepared data set as a tree of files, for those who want to look at it with the tools of a file system.

Flat, each part is a file ``<key>.<part>``; by sample, each sample is a folder with its parts as files. Slashes in keys
are folders. Names that a file system cannot have (``.``, ``..``, nothing) are left out and counted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from omniloom.data.side.store import FileStore
from omniloom.data.side.stores import WebdatasetFileStore

SEVERAL_TIMES = "WARNING_SAME_KEY_IN_MULTIPLE_TAR_FILES"
"""A file in the folder of a sample whose key stands in several shards. (Energon's name.)"""

_Folder = dict[str, Any]
_FORBIDDEN = ("", ".", "..")


class FileTree:
    """The files of a prepared data set.

    All names are held in memory; the bytes are read when they are asked for.

    Args:
        store: the data set.
        by_sample: a folder for each sample, in place of one folder of all parts.
        allow_slow: read the names of parts from the shards where an old database has none; ``by_sample`` only.

    Attributes:
        files: number of files.
        left_out: number of parts whose names a file system cannot have, or that a folder of the same name hides.
    """

    def __init__(self, store: WebdatasetFileStore, *, by_sample: bool = False, allow_slow: bool = False) -> None:
        self._store: FileStore[bytes] = store
        self._root: _Folder = {}
        self.files = self.left_out = 0
        for folder, name, size, key in _entries(store, by_sample=by_sample, allow_slow=allow_slow):
            self._add(folder, name, size, key)

    def names(self, path: str) -> list[str]:
        """Names in a folder. Raises FileNotFoundError or NotADirectoryError."""
        found = self._find(path)
        if not isinstance(found, dict):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return list(found)

    def size(self, path: str) -> int | None:
        """Size of a file in bytes; ``None``: a folder. Raises FileNotFoundError."""
        found = self._find(path)
        return None if isinstance(found, dict) else int(found[0])

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises FileNotFoundError, IsADirectoryError, or what the store raises."""
        found = self._find(path)
        if isinstance(found, dict):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return b"" if found[1] is None else self._store[found[1]][0]

    def _add(self, folder: str, name: str, size: int, key: str | None) -> None:
        place = self._root
        for one in folder.split("/") if folder else ():
            place = place.setdefault(one, {}) if one not in _FORBIDDEN else {}
            if not isinstance(place, dict):
                self.left_out += 1
                return
        if name in _FORBIDDEN or isinstance(place.get(name), dict) or any(o in _FORBIDDEN for o in _parts(folder)):
            self.left_out += 1
            return
        if name in place:
            if SEVERAL_TIMES not in place and folder:
                place[SEVERAL_TIMES] = (0, None)
            return
        place[name] = (size, key)
        self.files += 1

    def _find(self, path: str) -> Any:
        found: Any = self._root
        for one in _parts(path.strip("/")):
            if not isinstance(found, dict) or one not in found:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            found = found[one]
        return found


def _parts(path: str) -> list[str]:
    return path.split("/") if path else []


def _entries(
    store: WebdatasetFileStore, *, by_sample: bool, allow_slow: bool
) -> Iterator[tuple[str, str, int, str | None]]:
    """Folder, name, size and full name of each file."""
    if by_sample and allow_slow:
        for sample in store.list_all_samples():
            for part in store.list_sample_parts(sample.name, slow_mode=True):
                yield sample.name, part.name, part.size_bytes, f"{sample.name}.{part.name}"
        return
    for part in store.list_all_sample_parts():
        folder, _, base = part.name.rpartition("/")
        if not by_sample:
            yield folder, base, part.size_bytes, part.name
            continue
        key, _, name = base.partition(".")
        yield f"{folder}/{key}" if folder else key, name, part.size_bytes, part.name
