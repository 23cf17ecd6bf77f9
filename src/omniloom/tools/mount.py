"""``energon mount``: a prepared data set as a read-only folder, for as long as the program runs."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from omniloom.data.side.file_tree import FileTree
from omniloom.data.side.stores import WebdatasetFileStore
from omniloom.errors import ConfigError, OmniloomError

_FILE = stat.S_IFREG | 0o444
_FOLDER = stat.S_IFDIR | 0o555
_BLOCK_BYTES = 512


class MountedTree:
    """The answers to a file system's questions, as FUSE asks them. A file is read whole when it is opened.

    Args:
        tree: the files.
        seconds: time of all files, in seconds since 1970.
    """

    def __init__(self, tree: FileTree, *, seconds: float = 0.0) -> None:
        self._tree = tree
        self._times = {"st_ctime": seconds, "st_mtime": seconds, "st_atime": seconds}
        self._owner = {"st_uid": os.getuid(), "st_gid": os.getgid()}
        self._open: dict[int, bytes] = {}
        self._handles = itertools.count(1)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Kind, size and owner of a file or folder."""
        size = self._tree.size(path)
        if size is None:
            return {"st_mode": _FOLDER, "st_nlink": 2, "st_size": 0, **self._times, **self._owner}
        blocks = -(-size // _BLOCK_BYTES)
        return {"st_mode": _FILE, "st_nlink": 1, "st_size": size, "st_blocks": blocks, **self._times, **self._owner}

    def readdir(self, path: str, fh: int) -> Iterable[str]:
        """Names in a folder."""
        return [".", "..", *self._tree.names(path)]

    def open(self, path: str, flags: int) -> int:
        """Read a file; gives a handle. Raises OSError: writing is not possible, or the shard cannot be read."""
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        try:
            data = self._tree.read(path)
        except OmniloomError as error:
            raise OSError(errno.EIO, str(error), path) from error
        handle = next(self._handles)
        self._open[handle] = data
        return handle

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Bytes of an open file."""
        return self._open[fh][offset : offset + size]

    def release(self, path: str, fh: int) -> int:
        """Forget an open file."""
        self._open.pop(fh, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Nothing is free."""
        return {"f_bsize": _BLOCK_BYTES, "f_frsize": _BLOCK_BYTES, "f_files": self._tree.files, "f_namemax": 255}


@click.command(name="mount", epilog="\b\nExample:\n  omniloom mount shards folder --sample-folders")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("mountpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-d", "--detach", is_flag=True, help="Go on in the background.")
@click.option("-s", "--sample-folders", is_flag=True, help="A folder for each sample, not one for all parts.")
@click.option("-w", "--allow-slow", is_flag=True, help="Read names from shards that an old version has indexed.")
def command(path: Path, mountpoint: Path, *, detach: bool, sample_folders: bool, allow_slow: bool) -> None:
    """Show a prepared data set as a folder of files.

    It is there until it is unmounted, or Ctrl-C is pressed.
    """
    if allow_slow and not sample_folders:
        raise click.UsageError("--allow-slow goes with --sample-folders: without names there is no flat list.")
    fuse = _fuse()
    click.echo(f"Mounting {path} at {mountpoint}...")
    tree = FileTree(WebdatasetFileStore(path), by_sample=sample_folders, allow_slow=allow_slow)
    if tree.left_out:
        click.echo(f"{tree.left_out} parts have names that no file can have, and are left out.")
    click.echo(f"Mount is ready to go: {tree.files} files. `umount {mountpoint}` ends it.")
    operations = type("Operations", (MountedTree, fuse.Operations), {})(tree, seconds=path.stat().st_mtime)
    fuse.FUSE(operations, str(mountpoint), foreground=not detach, nothreads=True, ro=True)


def _fuse() -> Any:
    """The library that speaks to the kernel. Raises ConfigError where it, or FUSE itself, is missing."""
    try:
        import mfusepy  # noqa: PLC0415 - an extra
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"mounting needs FUSE: pip install omniloom[mount], and the system's libfuse (fuse3). {error}"
        ) from error
    return mfusepy
