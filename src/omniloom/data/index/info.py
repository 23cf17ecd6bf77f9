"""``.nv-meta/.info.json``: the shards of a data set and how many samples each holds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniloom.data.index.layout import (
    INFO_JSON,
    INFO_YAML,
    is_inside,
    mending_command,
    meta_name,
    meta_path,
    read_sidecar,
)
from omniloom.data.index.yaml_dialect import dump_yaml, load_yaml
from omniloom.errors import DatasetError
from omniloom.storage.urls import is_url

# The version of the sidecar format that this package writes, in the words of the program that owns the format.
ENERGON_VERSION = "7.4.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Content of ``.info.json``.

    Attributes:
        shard_counts: samples by shard name; the order is the numbering of the shards in ``index.sqlite``.
        energon_version: what wrote the file; ``None`` where it does not say.
    """

    shard_counts: dict[str, int]
    energon_version: str | None = None

    @property
    def samples(self) -> int:
        """Samples of all shards together."""
        return sum(self.shard_counts.values())


def is_prepared(root: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a prepared data set, in the new or the old form."""
    return meta_path(root, INFO_JSON).is_file() or meta_path(root, INFO_YAML).is_file()


def read_info(root: str | os.PathLike[str]) -> Info:
    """Read ``.info.json``, or ``.info.yaml`` as older versions wrote it.

    Raises:
        DatasetError: the folder is not prepared, or the file is damaged.
        ConfigError: ``.info.yaml`` is no YAML.
    """
    old = not meta_path(root, INFO_JSON).is_file() and meta_path(root, INFO_YAML).is_file()
    file = INFO_YAML if old else INFO_JSON
    data, name = _read(root, file), meta_name(root, file)
    return _checked(load_yaml(data, name=name) if old else parse_json(data, name), name)


def encode_info(shard_counts: Mapping[str, int]) -> str:
    """Content of ``.info.json``."""
    return json.dumps({"energon_version": ENERGON_VERSION, "shard_counts": shard_counts}, indent=2)


def encode_info_yaml(shard_counts: Mapping[str, int]) -> str:
    """The same content for ``.info.yaml``, which is only written where it was before."""
    return dump_yaml({"energon_version": ENERGON_VERSION, "shard_counts": dict(shard_counts)})


def parse_json(data: bytes, path: Path | str) -> Any:
    """Parse a JSON file of the sidecar.

    Raises:
        DatasetError: names the file, line and column.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: damaged: no valid JSON: {error}. Run `omniloom prepare` again.") from error


def _read(root: str | os.PathLike[str], file: str) -> bytes:
    if not is_url(os.fspath(root)) and not Path(root).is_dir():
        raise DatasetError(f"{os.fspath(root)}: there is no such folder. Check the path of the data set.")
    known = meta_path(root, file).is_file()
    advice = "" if known else f"The data set is not prepared; run `{mending_command(root)}`."
    return read_sidecar(root, file, what="list of shards", advice=advice)


def _checked(raw: Any, path: str) -> Info:
    if not isinstance(raw, dict) or not isinstance(raw.get("shard_counts"), dict):
        raise DatasetError(f"{path}: expected a mapping with the key 'shard_counts'. Run `omniloom prepare` again.")
    unknown = sorted(set(raw) - {"shard_counts", "energon_version"})
    if unknown:
        raise DatasetError(f"{path}: unknown keys {unknown}; expected 'energon_version' and 'shard_counts'.")
    for name, count in raw["shard_counts"].items():
        if type(count) is not int or count < 0:
            raise DatasetError(f"{path}: shard {name!r} has {count!r} samples; expected a whole number from 0 on.")
        if not is_inside(name):
            raise DatasetError(f"{path}: shard {name!r} lies outside the data set; expected a path below its folder.")
    version = raw.get("energon_version")
    return Info(shard_counts=raw["shard_counts"], energon_version=None if version is None else str(version))
