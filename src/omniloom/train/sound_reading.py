"""Reading a distributed checkpoint without running what its files name.

torch unpickles a checkpoint's ``.metadata`` and its entries that are no tensors with the plain unpickler, which calls
whatever a file names. Here only the classes that such files are made of can be named, and no file outside of the
checkpoint.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from omniloom.errors import StateError

METADATA = ".metadata"
_OF_METADATA = (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties,
    TensorStorageMetadata, _MEM_FORMAT_ENCODING,
)  # fmt: skip
_MAY_BE_NAMED: dict[tuple[str, str], Any] = {
    **{("torch.distributed.checkpoint.metadata", kind.__name__): kind for kind in _OF_METADATA},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): dict,
    ("pathlib", "PosixPath"): PurePosixPath,
    ("pathlib", "PurePosixPath"): PurePosixPath,
}
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class SoundReader(FileSystemReader):
    """Reads the files of a checkpoint on disk."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds.

        Raises:
            StateError: the file names what has no place in it, or a file outside of the checkpoint.
        """
        path = f"{self.path}/{METADATA}"
        data = self.metadata_bytes()
        try:
            metadata = _MetadataUnpickler(io.BytesIO(data)).load()
        except StateError:
            raise
        except Exception as error:
            raise StateError(f"{path}: not the list of a checkpoint: {error}. Is it cut off?") from error
        if not isinstance(metadata, Metadata):
            raise StateError(f"{path}: {type(metadata).__name__} found, the list of a checkpoint expected.")
        for info in (metadata.storage_data or {}).values():
            inside = PurePosixPath(info.relative_path)
            if inside.is_absolute() or ".." in inside.parts:
                raise StateError(f"{path}: names the file {info.relative_path!r}, which is not in the checkpoint.")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def metadata_bytes(self) -> bytes:
        """Content of the checkpoint's list of contents."""
        return (Path(self.path) / METADATA).read_bytes()


class SoundPlanner(DefaultLoadPlanner):
    """Loads entries that are no tensors as plain values."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take in an entry. Raises an error of pickle where it is no plain value."""
        plain = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), plain)  # now it is ours, and torch may read it as it likes
        plain.seek(0)
        super().load_bytes(read_item, plain)


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        try:
            return _MAY_BE_NAMED[module, name]
        except KeyError:
            raise StateError(
                f"{METADATA} names {module}.{name}, which no checkpoint needs. The file is not what it seems; nothing "
                "of it was run."
            ) from None
