"""A prepared data set, opened: the shards of one split part in order, and what is known of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from omniloom.data.index.info import Info, read_info
from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML, meta_name, read_sidecar
from omniloom.data.index.omniloom_json import OmniloomInfo, read_omniloom_info
from omniloom.data.index.place import DatasetPlace, normal_root, place_of
from omniloom.data.index.presence import check_shards, listed, shard_states
from omniloom.data.index.splits import read_splits
from omniloom.data.index.work_folder import is_half_placed
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.shards.far_shard import FarShard
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.urls import is_url, redacted


class ShardEntry(NamedTuple):
    """One shard of a split part.

    Attributes:
        name: its name, relative to the data set.
        path: where it is, a path or URL.
        samples: how many it holds, excluded ones and junk rows of other indexers included.
        size_bytes: its size when it was indexed; ``None`` when only Energon indexed it.
        fingerprint: its sampled header digest when it was indexed; ``None`` when only Energon indexed it.
        parts_path: its parts table, for a shard that the spans of its index do not describe; else ``None``.
        excluded_keys: keys of samples that are not to be yielded; they count in ``samples``.
        index_file: its index, where that does not lie beside it.
        far: what is known of a shard in a store.
    """

    name: str
    path: str
    samples: int
    size_bytes: int | None
    fingerprint: str | None
    parts_path: str | StoredFile | None
    excluded_keys: frozenset[str]
    index_file: StoredFile | None = None
    far: FarShard | None = None

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
            index=self.index_file,
            far=self.far,
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
    root = normal_root(root)
    if check_files and is_url(root):
        from omniloom.data.index.mirror import refresh  # noqa: PLC0415 - local sets need no store

        refresh(root)
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
            f"{splits.path}: split part {split_part!r} lists {listed(unknown)} that .info.json does not. Correct the "
            f"name, or run `omniloom prepare {root}` to index new shards."
        )
    place = place_of(root)
    known = read_omniloom_info(place.root)
    if check_files:
        check_shards(place, dict.fromkeys(names), info, known)
    excluded = splits.excluded_keys(info.shard_counts) if splits.exclude else {}
    entries, rule = _entries(place, info, known, names, excluded)
    index = DatasetIndex(root=root, split_part=split_part, shards=entries, rule=rule)
    if not index.samples:
        raise DatasetError(f"{splits.path}: the shards of split part {split_part!r} hold no samples.")
    return index


def open_shards(root: str | os.PathLike[str]) -> tuple[tuple[ShardEntry, ...], KeyRule]:
    """All shards of a prepared data set, in the order by which ``index.sqlite`` numbers them, and its key rule.

    Raises:
        DatasetError: not prepared, or a damaged sidecar.
    """
    place = place_of(root)
    info = read_info(place.root)
    return _entries(place, info, read_omniloom_info(place.root), info.shard_counts, {})


def _entries(
    place: DatasetPlace,
    info: Info,
    known: OmniloomInfo | None,
    names: Iterable[str],
    excluded: Mapping[str, frozenset[str]],
) -> tuple[tuple[ShardEntry, ...], KeyRule]:
    marks = known.shards if known else {}
    states = shard_states(place, known)
    good = states.good_states(marks) if states is not None else {}
    plain = place.is_plain  # of a hundred thousand shards each is a text put together, and nothing more
    nothing: frozenset[str] = frozenset()
    entries = []
    for name in names:
        size_bytes, fingerprint, irregular, state = marks.get(name) or (None, None, False, "")
        table = place.parts_table(name) if irregular else None
        path = f"{place.root}/{name}" if plain else place.shard(name)
        rows = info.shard_counts[name]
        index = None if plain else place.index_of(name, rows)
        keys = excluded.get(name, nothing)
        far = None if states is None else FarShard(states, state, good.get(name, ""))
        entries.append(ShardEntry(name, path, rows, size_bytes, fingerprint, table, keys, index, far))
    return tuple(entries), known.key_rule if known else "first-dot"


def dataset_config(root: str | os.PathLike[str], *, name: str = DATASET_YAML) -> dict[str, Any]:
    """Content of ``dataset.yaml`` (or another file of ``.nv-meta``), with Energon's readings of its scalars.

    Raises:
        DatasetError: there is no such file, or it is not a mapping.
        ConfigError: it is no YAML.
    """
    root = normal_root(root)
    path = meta_name(root, name)
    advice = f"Make it: `omniloom prepare {redacted(root)} --sample-type ...`, or name another file."
    config = load_yaml(read_sidecar(root, name, what="description of the samples", advice=advice), name=path)
    if not isinstance(config, dict):
        raise DatasetError(f"{path}: holds {type(config).__name__}, expected a mapping such as 'sample_type: ...'.")
    return config
