"""Names of the files of a prepared data set."""

from __future__ import annotations

import os
from pathlib import Path

from omniloom.storage.files import replace_file as replace_file  # noqa: PLC0414 - converters import it from here

MAIN_FOLDER = ".nv-meta"
INFO_JSON = ".info.json"
INFO_YAML = ".info.yaml"
SPLIT_YAML = "split.yaml"
SPLIT_JSON = "split.json"
DATASET_YAML = "dataset.yaml"
SAMPLE_LOADER = "sample_loader.py"
DATABASE = "index.sqlite"
UUID_FILE = "index.uuid"
OMNILOOM_JSON = "omniloom.json"
PARTS_FOLDER = "parts"
WORK_FOLDER = ".partial"
MEDIA_PARTIAL = "media.partial"
PARTS_SUFFIX = ".parts"


def mending_command(root: str | os.PathLike[str]) -> str:
    """The command that makes what is missing of a sidecar, and leaves its split and its description as they are."""
    has_split = any(meta_path(root, name).is_file() for name in (SPLIT_YAML, SPLIT_JSON))
    described = meta_path(root, DATASET_YAML).is_file()
    options = ("--non-interactive " if has_split and described else "", "--keep-split " if has_split else "",
               "--skip-dataset-yaml " if described else "")  # fmt: skip
    return f"omniloom prepare {''.join(options)}{os.fspath(root)}"


def meta_path(root: str | os.PathLike[str], *names: str) -> Path:
    """A path below the ``.nv-meta`` folder of a data set."""
    return Path(root, MAIN_FOLDER, *names)


def parts_path(folder: str | os.PathLike[str], shard: str) -> str:
    """Where the parts table of a shard lies below ``folder``; names of shards may hold folders."""
    return f"{os.fspath(folder)}/{shard}{PARTS_SUFFIX}"


def is_inside(shard: str) -> bool:
    """Whether a shard's name stays below its data set: relative, without ``..``."""
    return bool(shard) and not shard.startswith("/") and "\0" not in shard and ".." not in shard.split("/")
