"""`TarPatcher`: looks for keys that are there more than once, and puts the shards' names before all keys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omniloom.data.index.fix_duplicates import RewriteRequest, rewrite_shard
from omniloom.data.shards.scan import scan_shard
from omniloom.energon.adapters.epath import EPath
from omniloom.errors import DatasetError, ShardError

Paths = str | os.PathLike[str]


class TarPatcherError(DatasetError):
    """Shards cannot be given other names."""


@dataclass(slots=True)
class TarScanResult:
    """What is in a shard.

    Attributes:
        sample_keys: its keys, in UTF-8.
        compatible: whether its members can be given other names.
    """

    sample_keys: set[bytes] = field(default_factory=set)
    compatible: bool = True


@dataclass(slots=True)
class DatasetScanResult:
    """What is in some shards.

    Attributes:
        compatible: whether all members can be given other names.
        duplicates: the shards of each key that is in more than one.
        scan_results: what is in each shard, by its path.
    """

    compatible: bool
    duplicates: dict[bytes, list[str]]
    scan_results: dict[str, TarScanResult]

    @property
    def has_duplicates(self) -> bool:
        """Whether a key is in more than one shard."""
        return bool(self.duplicates)


class TarPatcher:
    """Gives the members of shards other names: shards are written anew, complete or not at all.

    Args:
        show_progress: accepted; nothing is shown.
    """

    def __init__(self, *, show_progress: bool = True) -> None:
        self._show_progress = show_progress

    def scan(self, tar_path: Paths, prefix: str) -> TarScanResult:
        """The keys of a shard. One that cannot be read, or has a key and part twice, is not compatible."""
        try:
            found = scan_shard(tar_path, shard=f"{prefix}{Path(tar_path).name}")
        except ShardError:
            return TarScanResult(compatible=False)
        keys = {key.encode("utf-8", "surrogateescape") for key in found.keys}
        return TarScanResult(sample_keys=keys, compatible=len(keys) == len(found.keys))

    def apply_prefix(self, tar_path: Paths, prefix: str) -> None:
        """Put a text before the names of all members that belong to samples.

        Raises:
            TarPatcherError: the shard cannot be read; it is as it was.
        """
        path = os.fspath(tar_path)
        try:
            rewrite_shard(RewriteRequest(Path(path).name, path, prefix, "first-dot"))
        except ShardError as error:
            raise TarPatcherError(f"{path}: cannot be written anew: {error}") from error

    def dataset_scan(self, tar_files: Sequence[str], parent_path: EPath, num_workers: int = 1) -> DatasetScanResult:
        """The keys of shards, and those that are in more than one.

        Args:
            tar_files: names of the shards below ``parent_path``.
            parent_path: folder of the data set.
            num_workers: accepted; one process scans.
        """
        results = {str(parent_path / name): self.scan(str(parent_path / name), f"{name}/") for name in tar_files}
        places: dict[bytes, list[str]] = {}
        for path, result in results.items():
            for key in result.sample_keys:
                places.setdefault(key, []).append(path)
        duplicates = {key: sorted(paths) for key, paths in places.items() if len(paths) > 1}
        return DatasetScanResult(all(one.compatible for one in results.values()), duplicates, results)

    def dataset_apply_prefix(self, tar_files: Sequence[str], parent_path: EPath, num_workers: int = 1) -> None:
        """Put each shard's name before its keys, as ``prepare --fix-duplicates`` does."""
        for name in tar_files:
            self.apply_prefix(str(parent_path / name), f"{name}/")
