"""The work folder of a preparation, ``.nv-meta/.partial``: one user at a time, nothing in it after success.

Finished scans stay in it after a failure, so that the next run need not repeat them; all else is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from omniloom.data.index.layout import COMMIT_MARK, MAIN_FOLDER, PARTS_FOLDER, WORK_FOLDER, meta_path
from omniloom.errors import DatasetError
from omniloom.storage.files import remove_file, storage_error

INDEX_FOLDER = "index"

_held: set[int] = set()


def _let_go_in_child() -> None:
    """A forked worker that outlives a killed parent must not hold its lock."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextlib.contextmanager
def open_work_folder(root: str | os.PathLike[str]) -> Iterator[Path]:
    """Make and lock the work folder of a data set; tidy it up at the end.

    Raises:
        DatasetError: another process is preparing the same data set.
        StorageError: the data set's folder cannot be written to.
    """
    meta = Path(root, MAIN_FOLDER)
    work = meta / WORK_FOLDER
    try:
        made = not meta.exists()
        meta.mkdir(exist_ok=True)
        if made:
            meta.chmod((Path(root).stat().st_mode & 0o777) | 0o700)
        lock = os.open(meta, os.O_RDONLY)
    except OSError as error:
        raise storage_error("write", meta, error) from error
    _held.add(lock)
    try:
        _lock(lock, root)
        try:
            work.mkdir(exist_ok=True)
        except OSError as error:
            raise storage_error("write", work, error) from error
        interrupted = (work / COMMIT_MARK).exists()
        _tidy(work, keep_mark=interrupted)
        try:
            yield work
        finally:
            _tidy(work, keep_mark=True)
            _remove_if_empty(work / PARTS_FOLDER)
            _remove_if_empty(work)
            _remove_if_empty(meta)
    finally:
        _held.discard(lock)
        os.close(lock)


def is_half_placed(root: str | os.PathLike[str]) -> bool:
    """Whether a preparation was interrupted while it put its files in place, or is doing so right now."""
    return meta_path(root, WORK_FOLDER, COMMIT_MARK).exists()


def move_file(source: str | os.PathLike[str], target: str | os.PathLike[str], *, mode: int | None = None) -> None:
    """Put a finished file in place, in one step even when the target lies on another disk.

    Raises:
        StorageError: it cannot be done; the old file is still there.
    """
    target = Path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode is not None:
            Path(source).chmod(mode)
        try:
            Path(source).replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_over(Path(source), target)
    except OSError as error:
        raise storage_error("write", target, error) from error


def _copy_over(source: Path, target: Path) -> None:
    temporary = target.with_name(target.name + WORK_FOLDER)
    try:
        shutil.copy2(source, temporary)
        temporary.replace(target)
    except OSError:
        remove_file(temporary)
        raise
    source.unlink()


def _lock(descriptor: int, root: str | os.PathLike[str]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DatasetError(
            f"{os.fspath(root)}: another process is preparing this data set. Wait for it to end, then run again."
        ) from None
    except OSError:
        return  # a file system without locks


def _tidy(work: Path, *, keep_mark: bool) -> None:
    if not work.is_dir():
        return
    for entry in list(work.iterdir()):
        if entry.name == PARTS_FOLDER or (keep_mark and entry.name == COMMIT_MARK):
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            remove_file(entry)


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder with nothing but empty folders in it."""
    if not folder.is_dir():
        return
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()
