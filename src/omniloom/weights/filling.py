"""Fills a folder of laid-out files tensor by tensor: complete or absent, never half, and resumable.

Files are made in ``FOLDER.partial`` at their full length; each tensor is read once and written to all its places. A
journal beside them says which tensors are on disk, so that a broken conversion goes on where it stopped, as long as
source and layout are the same. At the end the folder is renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from omniloom.errors import StorageError, WeightsError
from omniloom.weights.layout import FileLayout, Job, Slot
from omniloom.weights.source import Source

Progress = Callable[[int, int, str], None]
"""Called with bytes written, bytes in all, and the name of the tensor at hand."""

JOURNAL = ".omniloom-journal.jsonl"
_SYNC_EVERY_BYTES = 512 << 20


@dataclass(frozen=True)
class Plan:
    """A folder to be made.

    Attributes:
        files: large files, laid out.
        jobs: what goes where; together they fill every extent once.
        small: other files by their path in the folder: their bytes, or a file to copy.
    """

    files: tuple[FileLayout, ...]
    jobs: tuple[Job, ...]
    small: Mapping[str, bytes | Path] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of all large files."""
        return sum(file.size_bytes for file in self.files)

    def fingerprint(self, source: Source) -> str:
        """Changes when the layout or the source does."""
        told = hashlib.sha256(source.identity().encode())
        for file in self.files:
            told.update(json.dumps([file.path, file.size_bytes, sorted(file.extents.items())]).encode())
        for job in self.jobs:
            told.update(repr((job, source.tensors.get(job.name))).encode())
        return told.hexdigest()

    def check(self, source: Source) -> None:
        """See that every extent is filled once, by something of its size.

        Raises:
            WeightsError: it is not so.
        """
        open_extents = {(file.path, key): extent for file in self.files for key, extent in file.extents.items()}
        for job in self.jobs:
            info = source.info(job.name)
            for slot in job.slots:
                extent = open_extents.pop((slot.file, slot.key), None)
                shape = slot.cut.shape_of_slice(info.shape, slot.ranks)
                if extent is None or extent.size_bytes != torch.Size(shape).numel() * info.dtype.itemsize:
                    raise WeightsError(f"{job.name!r} ({info}) does not fit its place {slot.key!r} in {slot.file}")
        if open_extents:
            raise WeightsError(f"nothing was planned for {sorted(open_extents)[0]} and {len(open_extents) - 1} more")


def fill(plan: Plan, source: Source, folder: Path, *, progress: Progress | None = None) -> None:
    """Make the folder.

    Args:
        plan: what it will hold.
        source: where the jobs' tensors are read.
        folder: must not be there, or be empty.
        progress: told after each tensor.

    Raises:
        WeightsError: the folder is there already, or a tensor is unsound.
        StorageError: the disk is too small.
    """
    plan.check(source)
    refuse_existing(folder)
    partial = folder.with_name(folder.name + ".partial")
    done = _resume(partial, plan.fingerprint(source))
    written = sum(sum(_size(plan, slot) for slot in job.slots) for job in plan.jobs if job.name in done)
    _check_room(folder, plan.size_bytes - written)
    with _Hands(plan, partial, done) as hands:
        total = sum(extent.size_bytes for file in plan.files for extent in file.extents.values())
        for job in plan.jobs:
            if job.name in done:
                continue
            try:
                tensor = source.read(job.name)
            except RuntimeError as error:
                raise WeightsError(f"{source.where}: {job.name!r} cannot be read ({error})") from error
            written += hands.put(job, tensor)
            if progress is not None:
                progress(written, total, job.name)
        hands.finish()
    write_small_files(partial, plan.small)
    if folder.is_dir():
        folder.rmdir()
    partial.replace(folder)
    (folder / JOURNAL).unlink()  # only now: a break before this line leaves a folder that can go on, or is complete
    _sync_folder(folder.parent)


def refuse_existing(folder: Path) -> None:
    """See that a folder can be made.

    Raises:
        WeightsError: something is there already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WeightsError(f"{folder}: is there already. Remove it, or name another folder to write to.")


def write_small_files(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write or copy files, making the folders they lie in."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copyfile(content, path)


class _Hands:
    """Open files of a plan, and what has been done."""

    def __init__(self, plan: Plan, partial: Path, done: dict[str, list[int]]) -> None:
        self._plan, self._partial, self._done = plan, partial, done
        self._layouts = {file.path: file for file in plan.files}
        self._files: dict[str, int] = {}
        self._pending: dict[str, list[int]] = {}
        self._unsynced_bytes = 0
        self._stack = ExitStack()

    def __enter__(self) -> _Hands:
        for file in self._plan.files:
            path = self._partial / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            self._stack.callback(os.close, descriptor)
            self._files[file.path] = descriptor
            os.ftruncate(descriptor, file.size_bytes)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def put(self, job: Job, tensor: Tensor) -> int:
        """Write a tensor to all its places; gives the number of bytes."""
        checksums: list[int] = []
        written = 0
        for slot in job.slots:
            data = _bytes_of(slot.cut.slice_of(tensor, rank=slot.rank, ranks=slot.ranks))
            layout = self._layouts[slot.file]
            _write_at(self._files[slot.file], layout.extents[slot.key].offset, data)
            checksums.append(zlib.crc32(data) if layout.wants_checksums else 0)
            written += len(data)
        self._pending[job.name] = checksums
        self._unsynced_bytes += written
        if self._unsynced_bytes >= _SYNC_EVERY_BYTES:
            self._sync()
        return written

    def finish(self) -> None:
        """Write what is known beforehand and what is known only now."""
        checksums: dict[str, dict[str, int]] = {file.path: {} for file in self._plan.files}
        known = self._done | self._pending
        for job in self._plan.jobs:
            for slot, checksum in zip(job.slots, known[job.name], strict=True):
                checksums[slot.file][slot.key] = checksum
        for file in self._plan.files:
            for offset, data in (*file.opening, *file.closing(checksums[file.path])):
                _write_at(self._files[file.path], offset, memoryview(data))
        self._sync()

    def _sync(self) -> None:
        for descriptor in self._files.values():
            os.fdatasync(descriptor)
        with (self._partial / JOURNAL).open("a") as journal:
            journal.writelines(json.dumps(entry) + "\n" for entry in self._pending.items())
            journal.flush()
            os.fdatasync(journal.fileno())
        self._done.update(self._pending)
        self._pending.clear()
        self._unsynced_bytes = 0


def _resume(partial: Path, fingerprint: str) -> dict[str, list[int]]:
    """What an earlier try has done; a try for another plan or source is cleared away."""
    journal = partial / JOURNAL
    if journal.is_file():
        first, *lines = journal.read_text().split("\n")
        if first == json.dumps({"plan": fingerprint}):
            # The last line has no end when the machine died while writing it.
            return dict(json.loads(line) for line in lines[:-1])
    if partial.exists():
        if not journal.is_file() and any(partial.iterdir()):
            raise WeightsError(f"{partial}: is there, but not from a conversion. Remove it.")
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    journal.write_text(json.dumps({"plan": fingerprint}) + "\n")
    return {}


def _size(plan: Plan, slot: Slot) -> int:
    return next(file for file in plan.files if file.path == slot.file).extents[slot.key].size_bytes


def _check_room(folder: Path, needed_bytes: int) -> None:
    parent = folder.parent
    while not parent.exists():
        parent = parent.parent
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise StorageError(
            f"{folder}: needs {needed_bytes / 1e9:.1f} GB, and {free_bytes / 1e9:.1f} GB are free. Make room, or write "
            "to another disk."
        )


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _write_at(descriptor: int, offset: int, data: memoryview) -> None:
    view = data
    while view:
        count = os.pwrite(descriptor, view[: 1 << 30], offset)
        view, offset = view[count:], offset + count


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
