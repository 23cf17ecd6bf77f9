"""What lies at a path, in Energon's words; files near and far."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any

from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.info import is_prepared, read_info
from omniloom.data.index.layout import DATABASE, SPLIT_YAML, meta_path
from omniloom.data.shards.keys import split_key
from omniloom.energon.adapters.epath import EPath
from omniloom.storage.files import file_exists, folder_exists
from omniloom.storage.node_copy import copy_here, node_cache

Paths = str | os.PathLike[str]


class EnergonDatasetType(Enum):
    """The kinds of data sets that Energon knows. What only omniloom reads (Parquet, say) is ``INVALID`` among them."""

    METADATASET = "metadataset"
    WEBDATASET = "webdataset"
    JSONL = "jsonl"
    FILESYSTEM = "filesystem"
    INVALID = "invalid"


@dataclass(kw_only=True)
class WebdatasetInfo:
    """The content of a ``.info.json``: who prepared the data set, and how many samples each shard holds."""

    energon_version: str | None = None
    shard_counts: dict[str, int]


@dataclass(kw_only=True)
class WebdatasetSplits:
    """The content of a split file: shards by part, and shards and samples that are left out."""

    split_parts: dict[str, list[str]]
    exclude: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """A shard: its name in the data set, where it lies, and how many samples it holds."""

    name: str
    path: EPath
    count: int


@dataclass(frozen=True)
class WebdatasetMeta:
    """What is known of a part of a prepared data set.

    Attributes:
        sample_excludes: keys of samples that are left out.
        shards: the shards of the part, those that are left out excepted.
        split_part_files: names of these shards.
        info_shard_files: names of all shards of the data set.
    """

    sample_excludes: set[str]
    shards: list[ShardInfo]
    split_part_files: list[str]
    info_shard_files: list[str]

    @staticmethod
    def from_config(path: Paths, *, split_part: str, split_config: str | None = None) -> WebdatasetMeta:
        """That of a prepared data set.

        Args:
            path: where it lies.
            split_part: part of the split.
            split_config: name of the split file in ``.nv-meta``.
        """
        index = open_dataset(path, split_part=split_part, split_config=split_config or SPLIT_YAML, check_files=False)
        return WebdatasetMeta(
            sample_excludes={key for shard in index.shards for key in shard.excluded_keys},
            shards=[ShardInfo(name=shard.name, path=EPath(shard.path), count=shard.samples) for shard in index.shards],
            split_part_files=[shard.name for shard in index.shards],
            info_shard_files=get_info_shard_files(path),
        )


def get_dataset_type(path: Paths) -> EnergonDatasetType:
    """What lies at a path."""
    text = os.fspath(path)
    if file_exists(text):
        endings = {".jsonl": EnergonDatasetType.JSONL, ".yaml": EnergonDatasetType.METADATASET}
        return endings.get(os.path.splitext(text)[1], EnergonDatasetType.INVALID)  # noqa: PTH122 - may be a URL
    if not folder_exists(text):
        return EnergonDatasetType.INVALID
    if is_prepared(text):
        return EnergonDatasetType.WEBDATASET
    return EnergonDatasetType.FILESYSTEM if meta_path(text, DATABASE).is_file() else EnergonDatasetType.INVALID


def check_dataset_info_present(path: Paths) -> bool:
    """Whether a folder holds a prepared data set."""
    return is_prepared(path)


def get_dataset_info(path: Paths) -> dict[str, Any]:
    """The content of ``.info.json``."""
    info = read_info(path)
    return {"energon_version": info.energon_version, "shard_counts": dict(info.shard_counts)}


def get_info_shard_files(path: Paths) -> list[str]:
    """Names of the shards of a prepared data set, in their order."""
    return list(read_info(path).shard_counts)


def iter_dataset_content(path: Paths, extract_keys: Container[str] = ()) -> Iterator[dict[str, Any]]:
    """The samples of one shard, in their order: names of parts, with the bytes of those that are asked for.

    Args:
        path: the shard.
        extract_keys: parts whose bytes are read; those of the others are ``None``.
    """
    last: str | None = None
    sample: dict[str, Any] = {}
    with EPath(path).open("rb") as file, tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            halves = split_key(member.name, "first-dot") if member.isreg() else None
            if halves is None:
                continue
            key, part = halves
            if key != last:
                if sample:
                    yield sample
                sample, last = {"__key__": key}, key
            opened = archive.extractfile(member) if part in extract_keys else None
            sample[part] = None if opened is None else opened.read()
    if sample:
        yield sample


def ensure_local_copy(path: EPath) -> EPath:
    """A file on this machine: the file itself, or a copy of one in a store, made anew when the store's has changed."""
    if path.is_local():
        return path
    facts = path.stat()
    mark = f"{path.url} {facts.content_length} {facts.last_modified}"
    target = node_cache("files", sha256(mark.encode()).hexdigest())
    if not target.is_file():
        copy_here(path.url, target)
    return EPath(target)
