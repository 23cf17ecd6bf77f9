"""`EPath`: a path on a disk, in a profile of the Multi-Storage Client, or in a store, with the methods of Energon's."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from functools import cached_property, total_ordering
from pathlib import Path, PurePosixPath
from typing import IO, Any

from omniloom.energon.adapters.places import Bucket, ClientProfile, Disk, FileFacts, PlaceOfFiles, copy_file
from omniloom.errors import ConfigError

DEFAULT_PROFILE_NAME = "__filesystem__"  # the Multi-Storage Client's name for the local disk
CACHE_VARIABLE = "NVDATASET_CACHE_DIR"
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>/.*)?", re.DOTALL)


class DssPathError(ConfigError, AssertionError):
    """A ``dss://`` path that names no version, or no folder to find it in. Energon asserts here."""


@total_ordering
class EPath(os.PathLike[str]):
    """A path, absolute, with ``.`` and ``..`` resolved as text. ``walk`` and ``glob`` give files only.

    =============================== ==================================================================
    ``data``, ``/data``, ``file://`` the local disk
    ``msc://profile/path``           a profile of the Multi-Storage Client (``rclone://``: the same)
    ``dss://name@version/path``      ``$NVDATASET_CACHE_DIR/name/version/path``
    ``s3://bucket/path`` and others  a store of `omniloom.storage`
    =============================== ==================================================================

    Args:
        path: the path or URL, or another path.
        more: put behind it.
    """

    _root: str
    _path: PurePosixPath

    def __init__(self, path: str | os.PathLike[str] = ".", *more: str) -> None:
        if isinstance(path, EPath):
            self._root, self._path = path._root, path._path
        else:
            self._root, self._path = _parted(os.fspath(path))
        for one in more:
            self._path = _resolved(self._path / one, self._root)

    # What it says

    @property
    def url(self) -> str:
        """The path or URL as text."""
        if not self._root:
            return str(self._path)
        path = str(self._path)
        return self._root + (path.lstrip("/") if self._root == "dss://" else path if path != "/" else "")

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"EPath({self.url!r})"

    def __fspath__(self) -> str:
        return str(self.local_path()) if self.is_local() else self.url

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, EPath | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: EPath) -> bool:
        self._same_root(other)
        return self._path < other._path

    def __reduce__(self) -> tuple[Any, ...]:
        return EPath, (self.url,)  # no client, no credentials

    @property
    def name(self) -> str:
        """The last component."""
        return self._path.name

    @property
    def stem(self) -> str:
        """The last component without its last suffix."""
        return self._path.stem

    @property
    def suffix(self) -> str:
        """The last suffix, with its dot."""
        return self._path.suffix

    @property
    def display_name(self) -> str:
        """A name to show: of a ``dss://`` path, ``name@version``."""
        return self._path.parts[1] if self._root == "dss://" else self.name

    @property
    def parent(self) -> EPath:
        """The folder that it is in."""
        return self._at(self._path.parent)

    def with_suffix(self, suffix: str) -> EPath:
        """The same with another last suffix."""
        return self._at(self._path.with_suffix(suffix))

    def with_name(self, name: str) -> EPath:
        """The same with another last component."""
        return self._at(self._path.with_name(name))

    def relative_to(self, other: EPath | str) -> str:
        """The path from a folder, as text."""
        folder = EPath(other)
        self._same_root(folder)
        return str(self._path.relative_to(folder._path))

    def __truediv__(self, other: str | os.PathLike[str]) -> EPath:
        if isinstance(other, EPath):
            return other
        text = os.fspath(other)
        return EPath(text) if text.startswith("/") or "://" in text else EPath(self, text)

    # Files

    @cached_property
    def _place(self) -> PlaceOfFiles:
        if self._root in ("", "dss://"):
            return Disk()
        scheme, _, host = self._root.partition("://")
        return ClientProfile(host) if scheme == "msc" else Bucket(self._root)

    @property
    def _inner(self) -> str:
        """The name within its place."""
        if self._root != "dss://":
            return str(self._path)
        name, _, version = self._path.parts[1].rpartition("@")
        return str(Path(_dss_folder(), name, version, *self._path.parts[2:]))

    def is_local(self) -> bool:
        """Whether it lies on a local disk."""
        return isinstance(self._place, Disk)

    def local_path(self) -> Path:
        """The path on the disk. Raises ValueError where there is none."""
        if not self.is_local():
            raise ValueError(f"{self}: not on a local disk")
        return Path(self._inner)

    def open(self, mode: str = "r", block_size: int | None = None, prefetch_file: bool = False) -> IO[Any]:
        """The file, opened; folders appear when something is written.

        Args:
            mode: ``r``, ``rb``, ``w`` or ``wb``.
            block_size: accepted for Energon's sake.
            prefetch_file: likewise.
        """
        return self._place.open(self._inner, mode)

    def read_text(self) -> str:
        """The whole file as text."""
        with self.open() as file:
            return str(file.read())

    def read_bytes(self) -> bytes:
        """The whole file."""
        with self.open("rb") as file:
            return bytes(file.read())

    def write_text(self, text: str) -> None:
        """Write the whole file."""
        with self.open("w") as file:
            file.write(text)

    def write_bytes(self, data: bytes) -> None:
        """Write the whole file."""
        with self.open("wb") as file:
            file.write(data)

    def stat(self) -> FileFacts:
        """Size, time of the last change, and kind. Raises FileNotFoundError."""
        return self._place.facts(self._inner)

    def size(self) -> int:
        """Size of the file in bytes. Raises FileNotFoundError."""
        return self.stat().content_length

    def is_file(self) -> bool:
        """Whether there is a file."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether there is a folder; in a store: whether something is below it."""
        return self._kind() == "directory"

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return self._kind() is not None

    def mkdir(self, exist_ok: bool = True, parents: bool = False) -> None:
        """Nothing: folders appear when something is written."""

    def unlink(self) -> None:
        """Remove the file."""
        self._place.remove(self._inner)

    def copy(self, target: EPath | str) -> None:
        """Copy the file, or all files of the folder, also to another place."""
        goal = EPath(target)
        if self.is_file():
            copy_file(self._place, self._inner, goal._place, goal._inner)
            return
        for file in self.walk():
            file.copy(goal / file.relative_to(self))

    def move(self, target: EPath | str) -> None:
        """Move the file, also to another place."""
        self.copy(target)
        self.unlink()

    def walk(self) -> Iterator[EPath]:
        """All files below the folder; links to folders are followed."""
        start = len(str(PurePosixPath(self._inner)).rstrip("/")) + 1
        for name in self._place.files(self._inner):
            yield self / name[start:]

    def glob(self, pattern: str) -> Iterator[EPath]:
        """The files below the folder whose path from it matches: ``*`` within a name, ``**/`` for any folders."""
        if self.is_local() and "**" not in pattern:
            folder = self.local_path()
            found = (path for path in folder.glob(pattern) if path.is_file())
            return (self / str(path.relative_to(folder)) for path in found)
        matches = re.compile(_glob_expression(pattern)).fullmatch
        return (file for file in self.walk() if matches(file.relative_to(self)))

    # Inner workings

    def _at(self, path: PurePosixPath) -> EPath:
        other = EPath(self)
        other._path = path
        return other

    def _kind(self) -> str | None:
        try:
            return self.stat().type
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _same_root(self, other: EPath) -> None:
        if self._root != other._root:
            raise ConfigError(f"{self} and {other} lie in different places and cannot be compared")


def _parted(text: str) -> tuple[str, PurePosixPath]:
    """The place of a path, and the absolute path in it."""
    match = _URL.fullmatch(text)
    if match is None:
        return "", PurePosixPath(os.path.abspath(text))  # noqa: PTH100 - as text, without following links
    scheme, host, path = match["scheme"].lower(), match["host"], match["path"] or "/"
    if scheme == "file":
        return "", PurePosixPath(os.path.abspath(f"{host}{path}"))  # noqa: PTH100
    if scheme == "rclone":
        warnings.warn("rclone:// paths are deprecated: write msc://", FutureWarning, stacklevel=3)
        scheme = "msc"
    if scheme == "dss":
        _check_version(text, host)
        _dss_folder()
        return "dss://", _resolved(PurePosixPath(f"/{host}{path}"), text)
    if scheme == "msc" and host == DEFAULT_PROFILE_NAME:
        return "", _resolved(PurePosixPath(path), "")
    return f"{scheme}://{host}", _resolved(PurePosixPath(path), text)


def _resolved(path: PurePosixPath, where: str) -> PurePosixPath:
    """A path without ``.`` and ``..``. Raises ValueError where it leads above the root of a store."""
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            if not parts and where:
                raise ValueError(f"{where}: {path} leads above the root")
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    return PurePosixPath("/", *parts)


def _check_version(text: str, host: str) -> None:
    if "@" not in host:
        raise DssPathError(
            f"{text}: DSS paths must include a dataset version separated by '@', such as dss://{host}@v0"
        )
    name, _, version = host.rpartition("@")
    if not name or not version:
        raise DssPathError(f"{text}: a name and a version expected, such as dss://charts@v0")


def _dss_folder() -> str:
    folder = os.environ.get(CACHE_VARIABLE)
    if folder is None:
        raise DssPathError(f"dss:// paths lie below ${CACHE_VARIABLE}, which is not set")
    return folder


def _glob_expression(pattern: str) -> str:
    """The regular expression of a pattern of paths."""
    out, place = "", 0
    while place < len(pattern):
        rest = pattern[place:]
        if rest.startswith("**/"):
            out, place = out + "(?:.*/)?", place + 3
        elif rest.startswith("**"):
            out, place = out + ".*", place + 2
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            out, place = out + "[" + rest[1:end].replace("\\", "\\\\").replace("!", "^", 1) + "]", place + end + 1
        else:
            out, place = out + {"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])), place + 1
    return out


def _cache_folder() -> EPath | None:
    folder = os.environ.get(CACHE_VARIABLE)
    return None if folder is None else EPath(folder)


NVDATASET_CACHE_DIR = _cache_folder()
