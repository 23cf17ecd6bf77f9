"""A prepared data set, opened: the shards of one split part in order, and what is known of each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from omniloom.data.index.info import Info, read_info
from omniloom.data.index.layout import DATASET_YAML, PARTS_FOLDER, SPLIT_YAML, mending_command, meta_path, parts_path
from omniloom.data.index.omniloom_json import read_omniloom_info
from omniloom.data.index.splits import read_splits
from omniloom.data.index.work_folder import is_half_placed
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.tar_index import samples_in_bytes, tar_index_path
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError
from omniloom.storage.files import read_file

_NAMES_SHOWN = 3


class ShardEntry(NamedTuple):
    """One shard of a split part.

    Attributes:
        name: its name, relative to the data set.
        path: where it is.
        samples: how many it holds, excluded ones and junk rows of other indexers included.
        size_bytes: its size when it was indexed; ``None`` when only Energon indexed it.
        fingerprint: its sampled header digest when it was indexed; ``None`` when only Energon indexed it.
        parts_path: its parts table, for a shard that the spans of its index do not describe; else ``None``.
        excluded_keys: keys of samples that are not to be yielded; they count in ``samples``.
    """

    name: str
    path: str
    samples: int
    size_bytes: int | None
    fingerprint: str | None
    parts_path: str | None
    excluded_keys: frozenset[str]

    def open(self, rule: KeyRule) -> TarShard:
        """The shard at work; the file is opened at its first use.

        Args:
            rule: how names of members are split into key and part.
        """
        return TarShard(
            self.path,
            name=self.name,
            samples=self.samples,
            size_bytes=self.size_bytes,
            fingerprint=self.fingerprint,
            parts_path=self.parts_path,
            rule=rule,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIndex:
    """One split part of a data set.

    Attributes:
        root: folder of the data set.
        split_part: name of the part.
        shards: its shards; their order is the order of the samples. A shard may come twice.
        rule: how names of members are split into key and part.
    """

    root: str
    split_part: str
    shards: tuple[ShardEntry, ...]
    rule: KeyRule

    @property
    def samples(self) -> int:
        """Samples of all shards together."""
        return sum(shard.samples for shard in self.shards)


def open_dataset(
    root: str | os.PathLike[str], *, split_part: str = "train", split_config: str = SPLIT_YAML, check_files: bool = True
) -> DatasetIndex:
    """Open one split part of a prepared data set. Reads the sidecar only, no shard.

    On a set that only Energon prepared, a shard that changed later shows by its length alone (an index that ends
    beyond the file) or when a span does not hold sound headers; with ``omniloom.json`` also by size and fingerprint.

    Args:
        root: folder of the data set.
        split_part: such as ``train``.
        split_config: name of the split file in ``.nv-meta``.
        check_files: whether to see that every shard and its index are there and agree with ``.info.json``; costs one
            look at each. A process that opens a set which another one checked can leave it out.

    Raises:
        DatasetError: not prepared, no such part, an empty part, a missing shard, an index of another length.
        ConfigError: a file of the sidecar is no YAML.
    """
    root = os.fspath(root)
    if is_half_placed(root):
        raise DatasetError(
            f"{root}: `omniloom prepare` was interrupted while it put its files in place, or is doing so right now. "
            "Run it again, or wait for it."
        )
    info = read_info(root)
    splits = read_splits(root, split_config=split_config)
    names = splits.shards_of(split_part)
    unknown = [name for name in dict.fromkeys(names) if name not in info.shard_counts]
    if unknown:
        raise DatasetError(
            f"{splits.path}: split part {split_part!r} lists {_listed(unknown)} that .info.json does not. Correct the "
            f"name, or run `omniloom prepare {root}` to index new shards."
        )
    if check_files:
        _check_files(root, dict.fromkeys(names), info)
    excluded = splits.excluded_keys(info.shard_counts) if splits.exclude else {}
    entries, rule = _entries(root, info, names, excluded)
    index = DatasetIndex(root=root, split_part=split_part, shards=entries, rule=rule)
    if not index.samples:
        raise DatasetError(f"{splits.path}: the shards of split part {split_part!r} hold no samples.")
    return index


def open_shards(root: str | os.PathLike[str]) -> tuple[tuple[ShardEntry, ...], KeyRule]:
    """All shards of a prepared data set, in the order by which ``index.sqlite`` numbers them, and its key rule.

    Raises:
        DatasetError: not prepared, or a damaged sidecar.
    """
    root = os.fspath(root)
    info = read_info(root)
    return _entries(root, info, info.shard_counts, {})


def _entries(
    root: str, info: Info, names: Iterable[str], excluded: Mapping[str, frozenset[str]]
) -> tuple[tuple[ShardEntry, ...], KeyRule]:
    known = read_omniloom_info(root)
    marks = known.shards if known else {}
    parts_folder = meta_path(root, PARTS_FOLDER)
    nothing: frozenset[str] = frozenset()
    entries = []
    for name in names:
        size_bytes, fingerprint, irregular = marks.get(name) or (None, None, False)
        table = parts_path(parts_folder, name) if irregular else None
        path = f"{root}/{name}"
        keys = excluded.get(name, nothing)
        entries.append(ShardEntry(name, path, info.shard_counts[name], size_bytes, fingerprint, table, keys))
    return tuple(entries), known.key_rule if known else "first-dot"


def dataset_config(root: str | os.PathLike[str], *, name: str = DATASET_YAML) -> dict[str, Any]:
    """Content of ``dataset.yaml`` (or another file of ``.nv-meta``), with Energon's readings of its scalars.

    Raises:
        DatasetError: there is no such file, or it is not a mapping.
        ConfigError: it is no YAML.
    """
    path = meta_path(root, name)
    advice = f"Make it: `omniloom prepare {os.fspath(root)} --sample-type ...`, or name another file."
    config = load_yaml(read_file(path, what="description of the samples", advice=advice), name=str(path))
    if not isinstance(config, dict):
        raise DatasetError(f"{path}: holds {type(config).__name__}, expected a mapping such as 'sample_type: ...'.")
    return config


def _check_files(root: str, names: Collection[str], info: Info) -> None:
    missing = _missing(root, names)
    if missing:
        raise DatasetError(
            f"{root}: {_listed(missing)} of .info.json missing on disk. Bring them back, or run "
            f"`omniloom prepare {root}` on what is there."
        )
    for name in names:
        path = tar_index_path(f"{root}/{name}")
        try:
            size_bytes = os.stat(path).st_size  # noqa: PTH116 - once per shard, of which there may be many thousands
        except OSError as error:
            raise DatasetError(
                f"{path}: there is no index of the shard ({error.strerror}). Make it: `{mending_command(root)}`."
            ) from error
        found = samples_in_bytes(size_bytes, path=path)
        if found != info.shard_counts[name]:
            raise DatasetError(
                f"{path}: lists {found:,} samples, but .info.json says {info.shard_counts[name]:,}. The index or the "
                f"shard was changed alone; run `omniloom prepare {root}` again."
            )


def _missing(root: str, names: Collection[str]) -> list[str]:
    """Names of shards that are not there; each folder is listed once, which is quicker than to ask for each file."""
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        folders.setdefault(folder, set()).add(base)
    missing = []
    for folder, bases in folders.items():
        try:
            present = set(os.listdir(f"{root}/{folder}"))  # noqa: PTH208
        except OSError:
            present = set()
        missing += [f"{folder}/{base}" if folder else base for base in sorted(bases - present)]
    return missing


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"{'shard' if len(names) == 1 else f'{len(names):,} shards:'} {shown}{more}"
