"""Where checkpoints lie, and what makes one complete: a folder's final name on a disk, a list written last in a store.

Both give a checkpoint that is there whole or not at all, whatever was killed when. A reader never goes by a name alone.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from omniloom.errors import StateError, StorageError
from omniloom.storage.files import replace_file
from omniloom.storage.messages import storage_error
from omniloom.storage.open import is_local, local_path, open_store
from omniloom.storage.urls import is_url, join_url, redacted, relative_to
from omniloom.train.sound_reading import METADATA, SoundReader
from omniloom.train.store_files import SoundStoreReader, StoreWriter

TENSORS, TRAINER, LOADER, LATEST, COMPLETE = "tensors", "trainer.json", "loader", "latest.json", "complete.json"
Address = Path | str
"""A checkpoint's folder: a path, or a URL as text."""

_STEP = re.compile(r"step-(\d{8})")
_LEFT_BEHIND = re.compile(r"step-\d{8}\.(partial|removed)")
_THREADS = 16


class CheckpointPlace(Protocol):
    """A folder of checkpoints."""

    def begin(self, step: int) -> None:
        """Make room for a checkpoint; what an earlier attempt left is removed. One rank calls it."""

    def write(self, step: int, name: str, text: str) -> None:
        """Write a small file of the checkpoint that was begun."""

    def writer(self, step: int) -> FileSystemWriter:
        """Writes the tensors of the checkpoint that was begun."""

    def abandon(self, step: int) -> None:
        """Remove what was written of the checkpoint that was begun, which cannot be completed. One rank calls it."""

    def complete(self, step: int) -> None:
        """All of it is written: from now on it is there. One rank calls it."""

    def remove(self, step: int) -> None:
        """Remove a complete checkpoint."""

    def found(self) -> Mapping[int, Address]:
        """The complete checkpoints by their steps."""


def place_of_checkpoints(folder: Address) -> CheckpointPlace:
    """The place by a path or URL."""
    if isinstance(folder, str) and is_url(folder):
        return DiskPlace(Path(local_path(folder))) if is_local(folder) else StorePlace(folder)
    return DiskPlace(Path(folder))


class DiskPlace:
    """Checkpoints in a folder of a file system; a step is written beside its final name, which it gets at the end.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, step: int) -> None:
        """Make the folder of a checkpoint that is not complete; what kills and full disks left is removed."""
        for left in self._left_behind():
            shutil.rmtree(left, ignore_errors=True)
        try:
            (self._partial(step) / LOADER).mkdir(parents=True)
        except OSError as error:
            raise storage_error("write", self._partial(step), error) from error

    def write(self, step: int, name: str, text: str) -> None:
        """Write a small file."""
        replace_file(self._partial(step) / name, text)

    def writer(self, step: int) -> FileSystemWriter:
        """The writer of torch itself."""
        return FileSystemWriter(str(self._partial(step) / TENSORS))

    def abandon(self, step: int) -> None:
        """Remove its folder."""
        shutil.rmtree(self._partial(step), ignore_errors=True)

    def complete(self, step: int) -> None:
        """Give it its final name."""
        final = self._folder / step_name(step)
        try:
            before = self._named_away(step) if final.exists() else None
            self._partial(step).rename(final)
        except OSError as error:
            raise storage_error("write", final, error) from error
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
        replace_file(self._folder / LATEST, json.dumps({"step": step, "folder": final.name}))

    def remove(self, step: int) -> None:
        """Take its name away first, so that none is complete that is half removed."""
        shutil.rmtree(self._named_away(step), ignore_errors=True)

    def found(self) -> dict[int, Path]:
        """The complete checkpoints by their steps."""
        found = {}
        for path in self._folder.glob("step-*"):
            name = _STEP.fullmatch(path.name)
            if name and (path / TRAINER).is_file() and (path / TENSORS / METADATA).is_file():
                found[int(name[1])] = path
        return found

    def _partial(self, step: int) -> Path:
        return self._folder / f"{step_name(step)}.partial"

    def _named_away(self, step: int) -> Path:
        """Take a step its name; what then lies there is no checkpoint."""
        gone = self._folder / f"{step_name(step)}.removed"
        shutil.rmtree(gone, ignore_errors=True)
        return (self._folder / step_name(step)).rename(gone)

    def _left_behind(self) -> list[Path]:
        """Steps that were being written, or removed, when a process ended: each may be as large as a checkpoint."""
        return [path for path in self._folder.glob("step-*") if _LEFT_BEHIND.fullmatch(path.name)]


class StorePlace:
    """Checkpoints in a store; ``complete.json``, written last, lists the objects that a step is made of.

    Args:
        url: the folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = open_store(url)

    def begin(self, step: int) -> None:
        """Remove what is there of the step, its list first."""
        self.remove(step)

    def write(self, step: int, name: str, text: str) -> None:
        """Write a small object."""
        self._store.write(self._at(step, name), text.encode())

    def writer(self, step: int) -> FileSystemWriter:
        """Writes objects."""
        return StoreWriter(self._at(step, TENSORS))

    def abandon(self, step: int) -> None:
        """Remove its objects."""
        self.remove(step)

    def complete(self, step: int) -> None:
        """Write the list of what there is."""
        folder = self._at(step)
        sizes = {relative_to(entry.url, folder): entry.size_bytes for entry in self._store.scan(folder)}
        self._store.write(self._at(step, COMPLETE), json.dumps({"step": step, "files": sizes}, indent=1).encode())
        told = json.dumps({"step": step, "folder": step_name(step)})
        self._store.write(join_url(self.url, LATEST), told.encode())

    def remove(self, step: int) -> None:
        """Remove the list, and then what it lists."""
        self._store.delete(self._at(step, COMPLETE))
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._store.delete, list(self._store.list(self._at(step)))))

    def found(self) -> dict[int, str]:
        """The complete checkpoints by their steps."""
        try:
            names = self._store.children(self.url)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return {}
            raise
        steps = [int(name[1]) for one in names if (name := _STEP.fullmatch(one.rstrip("/")))]
        return {step: self._at(step) for step in steps if self._store.exists(self._at(step, COMPLETE))}

    def _at(self, step: int, name: str = "") -> str:
        return join_url(self.url, f"{step_name(step)}/{name}" if name else step_name(step))


def step_name(step: int) -> str:
    """Name of the folder of a step."""
    return f"step-{step:08d}"


def tensor_reader(checkpoint: Address) -> FileSystemReader:
    """Reads the tensors of a checkpoint."""
    if isinstance(checkpoint, str) and is_url(checkpoint):
        return SoundStoreReader(join_url(checkpoint, TENSORS))
    return SoundReader(Path(checkpoint) / TENSORS)


def read_json(checkpoint: Address, name: str) -> dict[str, Any]:
    """A small file of a checkpoint.

    Raises:
        StateError: it is not there, or no JSON object.
    """
    shown = redacted(str(checkpoint))
    try:
        loaded = json.loads(open_store(str(checkpoint)).read(join_url(str(checkpoint), name)))
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise StateError(f"{shown}: no complete checkpoint, {name} is missing.") from None
    except ValueError as error:
        raise StateError(f"{shown}/{name}: not JSON: {error}.") from None
    if not isinstance(loaded, dict):
        raise StateError(f"{shown}/{name}: {type(loaded).__name__} found, an object expected.")
    return loaded


def loader_states(checkpoint: Address) -> list[dict[str, Any]]:
    """The loader states of all ranks that saved, in their order."""
    folder = join_url(str(checkpoint), LOADER)
    names = [
        name for name in open_store(folder).children(folder) if name.startswith("rank-") and name.endswith(".json")
    ]
    return [read_json(checkpoint, f"{LOADER}/{name}") for name in sorted(names)]
