"""Image bytes by the name that a data set's JSON uses, out of a folder or out of a zip archive read in place.

The names come from strangers: none may lead out of the folder, and only plain files are read.

    ================= ==================================================================
    missing-image     there is no such file
    outside-images    the name, or a link it goes through, leads out of the folder
    not-a-file        a folder, a pipe, a device, a link inside a zip
    unreadable-image  no permission, a damaged or encrypted zip member, a name no disk takes
    empty-image       a file of no bytes
    too-large-image   more than ``MAX_IMAGE_BYTES``
    ================= ==================================================================
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Protocol

from omniloom.errors import ConfigError, SampleError, StorageError
from omniloom.storage.files import file_exists, folder_exists
from omniloom.storage.inside import InsideFolder, OutsideError
from omniloom.storage.inside_store import InsideStore
from omniloom.storage.urls import is_url, redacted

MAX_IMAGE_BYTES = 1 << 30


class ImageSource(Protocol):
    """Where images are read from; safe to use from several threads."""

    def read(self, name: str) -> bytes:
        """Bytes of the image called ``name``; raises SampleError with a reason of the table above."""

    def has(self, name: str) -> bool:
        """Whether there is a file of that name now."""

    def fingerprint(self) -> str:
        """Text that changes when the source is another one; cheap, so not of every byte."""


def open_images(path: Path | str, *, follow_links: bool = False) -> ImageSource:
    """Open a folder, or a zip archive, of images.

    Args:
        path: the folder or the archive; a folder of a store by its URL.
        follow_links: read through symbolic links that leave the folder; otherwise such images are refused.

    Raises:
        ConfigError: there is nothing of that name, or it is neither a folder nor a zip archive.
    """
    if isinstance(path, str) and is_url(path):
        return StoreImages(path)
    path = Path(path)
    if path.is_dir():
        return FolderImages(path, follow_links=follow_links)
    if not path.exists():
        raise ConfigError(f"{path}: no such folder or zip archive of images. Check --images.")
    if not zipfile.is_zipfile(path):
        raise ConfigError(f"{path}: neither a folder nor a zip archive. Unpack it, or give its folder as --images.")
    return ZipImages(path)


class FolderImages:
    """Images in a folder and its sub-folders."""

    def __init__(self, root: Path, *, follow_links: bool = False) -> None:
        self._root = os.path.realpath(root)
        self._folder = InsideFolder(self._root, follow_links=follow_links)

    def read(self, name: str) -> bytes:
        """Bytes of one image; see the table at the top of this file for what is refused."""
        path = self._locate(name)
        try:
            # Not blocking, because opening a pipe would wait for a writer for ever.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise SampleError("no such file", reason="missing-image") from None
        except OSError as error:
            raise SampleError(error.strerror or str(error), reason="unreadable-image") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise SampleError("not a plain file", reason="not-a-file")
            _check_size(found.st_size)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        except OSError as error:
            raise SampleError(error.strerror or str(error), reason="unreadable-image") from error
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name now."""
        try:
            return os.path.exists(self._locate(name))  # noqa: PTH110
        except SampleError:
            return False

    def fingerprint(self) -> str:
        """The folder's own path: looking at every file would take as long as converting."""
        return f"folder {self._root}"

    def _locate(self, name: str) -> str:
        if "\0" in name:
            raise SampleError("the name holds a NUL", reason="unreadable-image")
        try:
            return self._folder.locate(name)
        except OutsideError as error:
            raise SampleError(str(error), reason="outside-images") from None
        except OSError as error:
            raise SampleError(error.strerror or str(error), reason="unreadable-image") from error


class StoreImages:
    """Images below a folder of a store.

    Args:
        url: the folder.

    Raises:
        ConfigError: there is nothing below it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._folder = InsideStore(url, max_file_bytes=MAX_IMAGE_BYTES)
        if not folder_exists(url):
            raise ConfigError(f"{redacted(url)}: no such folder of images. Check --images.")

    def read(self, name: str) -> bytes:
        """Bytes of one image; see the table at the top of this file for what is refused."""
        try:
            data = self._folder.read(name)
        except OutsideError as error:
            raise SampleError(str(error), reason="outside-images") from None
        except StorageError as error:
            reason = "missing-image" if error.errno == errno.ENOENT else "unreadable-image"
            raise SampleError(str(error), reason=reason) from error
        _check_size(len(data))
        return data

    def has(self, name: str) -> bool:
        """Whether there is an object of that name now."""
        try:
            return file_exists(self._folder.locate(name))
        except OutsideError:
            return False

    def fingerprint(self) -> str:
        """The folder's own URL: looking at every object would take as long as converting."""
        return f"folder {redacted(self._url)}"


class ZipImages:
    """Images in a zip archive, which is read in place: nothing is unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive = zipfile.ZipFile(path)
        self._members = {info.filename: info for info in self._archive.infolist()}
        tops = {name.partition("/")[0] for name in self._members if not name.startswith("__MACOSX/")}
        # Archives made of a whole folder have its name before every member; the JSON seldom says it.
        self._top = f"{tops.pop()}/" if len(tops) == 1 else ""

    def read(self, name: str) -> bytes:
        """Bytes of one image; see the table at the top of this file for what is refused."""
        info = self._find(name)
        if info is None:
            raise SampleError("no such member of the archive", reason="missing-image")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir() or kind not in (0, stat.S_IFREG):
            raise SampleError("not a plain file", reason="not-a-file")
        _check_size(info.file_size)
        try:
            return self._archive.read(info)
        except (RuntimeError, NotImplementedError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise SampleError(str(error), reason="unreadable-image") from error

    def has(self, name: str) -> bool:
        """Whether the archive has a member of that name."""
        try:
            return self._find(name) is not None
        except SampleError:
            return False

    def fingerprint(self) -> str:
        """Digest of the archive's own table of contents, checksums included."""
        digest = hashlib.sha256()
        for info in self._archive.infolist():
            digest.update(f"{info.filename}\0{info.CRC}\0{info.file_size}\0".encode(errors="surrogatepass"))
        return f"zip {digest.hexdigest()}"

    def _find(self, name: str) -> zipfile.ZipInfo | None:
        path = posixpath.normpath(name)
        if path.startswith(("/", "../")) or path == "..":
            raise SampleError(f"leads out of {self._path.name}", reason="outside-images")
        names = (path, self._top + path, f"{path}/", f"{self._top}{path}/")
        return next((self._members[name] for name in names if name in self._members), None)


def _check_size(size_bytes: int) -> None:
    if size_bytes == 0:
        raise SampleError("the file is empty", reason="empty-image")
    if size_bytes > MAX_IMAGE_BYTES:
        raise SampleError(f"{size_bytes:,} bytes, at most {MAX_IMAGE_BYTES:,}", reason="too-large-image")
