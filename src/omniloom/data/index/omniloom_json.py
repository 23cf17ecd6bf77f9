"""``.nv-meta/omniloom.json``: what omniloom knows of a data set beyond Energon's files.

It belongs to one indexing, that of ``index.uuid``. When another program has indexed the set since, its facts are stale
and are not used.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.index.info import parse_json
from omniloom.data.index.layout import OMNILOOM_JSON, UUID_FILE, meta_path
from omniloom.data.shards.keys import KEY_RULES, KeyRule
from omniloom.errors import DatasetError

FORMAT = 1


class ShardMark(NamedTuple):
    """What tells whether a shard is still the one that was indexed, and how it is read.

    Attributes:
        size_bytes: size of the file.
        fingerprint: digest of sampled headers.
        irregular: read through its parts table instead of the spans of its index.
        etag: what its store called it; empty for a file on a disk.
    """

    size_bytes: int
    fingerprint: str
    irregular: bool
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OmniloomInfo:
    """Content of ``omniloom.json``.

    Attributes:
        index_uuid: content of ``index.uuid`` when this was written.
        omniloom_version: what wrote it.
        key_rule: how names were split into key and part.
        readable_by_energon: whether Energon gets the same samples from this set.
        energon_obstacles: why not; sentences.
        key_database: whether ``index.sqlite`` was made.
        samples: number of samples.
        repeated_keys: samples with a key that a sample of an earlier shard has.
        part_counts: how many parts of each name there are; the most frequent ones.
        ignored: members that belong to no sample, by reason.
        interleaved: samples whose parts were not neighbours.
        hard_links: parts that are hard links.
        dropped_duplicates: parts left out by the duplicate policy.
        dotted_keys: members whose part name has a dot.
        dotted_names: the first names of such members.
        empty_members: parts of zero bytes.
        without_end_marker: shards whose end marker is missing; the first ones.
        empty_shards: shards without a sample, left out.
        bad_shards: reason by name of the shards that were left out because they cannot be read.
        shards: marks of the shards.
    """

    index_uuid: str
    omniloom_version: str
    key_rule: KeyRule = "first-dot"
    readable_by_energon: bool = True
    energon_obstacles: list[str] = field(default_factory=list)
    key_database: bool = True
    samples: int = 0
    repeated_keys: int = 0
    part_counts: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    interleaved: int = 0
    hard_links: int = 0
    dropped_duplicates: int = 0
    dotted_keys: int = 0
    dotted_names: list[str] = field(default_factory=list)
    empty_members: int = 0
    without_end_marker: list[str] = field(default_factory=list)
    empty_shards: list[str] = field(default_factory=list)
    bad_shards: dict[str, str] = field(default_factory=dict)
    shards: dict[str, ShardMark] = field(default_factory=dict)


def encode_omniloom_info(info: OmniloomInfo) -> str:
    """Content of the file: one line per shard, so that it can be looked at."""
    plain = {field.name: getattr(info, field.name) for field in dataclasses.fields(info) if field.name != "shards"}
    head = json.dumps({"format": FORMAT, **plain}, indent=2)[:-2]
    lines = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(list(mark if mark.etag else mark[:3]))}"
        for name, mark in info.shards.items()
    )
    return f'{head},\n  "shards": {{\n{lines}\n  }}\n}}\n'


def read_omniloom_info(root: str | os.PathLike[str]) -> OmniloomInfo | None:
    """What omniloom knows of a data set; ``None`` when it was not (or not last) indexed by omniloom.

    Raises:
        DatasetError: the file is damaged or of a later version.
    """
    path = meta_path(root, OMNILOOM_JSON)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    raw = parse_json(data, path)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise DatasetError(
            f"{path}: has format {found!r}; this version of omniloom reads format {FORMAT}. Update omniloom, or run "
            "`omniloom prepare` again."
        )
    current = read_uuid(root)
    if current is not None and current != raw.get("index_uuid"):
        return None
    return _checked(raw, path)


def read_uuid(root: str | os.PathLike[str]) -> str | None:
    """Identity of the last indexing; ``None`` when there is no such file."""
    try:
        return meta_path(root, UUID_FILE).read_text("utf-8").strip()
    except (OSError, ValueError):
        return None


def _checked(raw: dict[str, Any], path: Path) -> OmniloomInfo:
    try:
        marks = {
            name: ShardMark(int(mark[0]), str(mark[1]), bool(mark[2]), *map(str, mark[3:4]))
            for name, mark in raw["shards"].items()
        }
        values = {f.name: raw[f.name] for f in dataclasses.fields(OmniloomInfo) if f.name in raw}
        info = OmniloomInfo(**{**values, "shards": marks})
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DatasetError(f"{path}: damaged ({error!r}). Run `omniloom prepare` again.") from error
    if info.key_rule not in KEY_RULES:
        raise DatasetError(f"{path}: unknown key rule {info.key_rule!r}; known are {list(KEY_RULES)}.")
    return info
