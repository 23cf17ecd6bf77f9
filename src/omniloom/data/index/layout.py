"""Names of the files of a prepared data set."""

from __future__ import annotations

import os
from pathlib import Path

from omniloom.errors import DatasetError
from omniloom.storage.files import read_file, remove_file
from omniloom.storage.files import replace_file as replace_file  # noqa: PLC0414 - converters import it from here
from omniloom.storage.urls import is_url, join_url, redacted

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
COMMIT_MARK = "putting-in-place"
FOLDER_INDEX = "files.jsonl"
PLACE_JSON = "place.json"
"""Where the shards lie of which this is the sidecar, where they lie elsewhere."""

SIDECAR_NAMES = (
    INFO_JSON, INFO_YAML, SPLIT_YAML, SPLIT_JSON, DATASET_YAML, SAMPLE_LOADER, UUID_FILE, OMNILOOM_JSON, PLACE_JSON,
    FOLDER_INDEX, f"{FOLDER_INDEX}.idx", DATABASE,
)  # fmt: skip
"""The small files that may lie in ``.nv-meta``, for stores that do not list them."""


def mending_command(root: str | os.PathLike[str]) -> str:
    """The command that makes what is missing of a sidecar, and leaves its split and its description as they are."""
    has_split = any(meta_path(root, name).is_file() for name in (SPLIT_YAML, SPLIT_JSON))
    described = meta_path(root, DATASET_YAML).is_file()
    options = ("--non-interactive " if has_split and described else "", "--keep-split " if has_split else "",
               "--skip-dataset-yaml " if described else "")  # fmt: skip
    return f"omniloom prepare {''.join(options)}{redacted(os.fspath(root))}"


def meta_path(root: str | os.PathLike[str], *names: str) -> Path:
    """A path below the ``.nv-meta`` folder of a data set; of one in a store, below its copy on this machine."""
    if isinstance(root, str) and is_url(root):
        from omniloom.data.index.mirror import mirror_folder  # noqa: PLC0415 - local sets need no store

        return Path(mirror_folder(root), MAIN_FOLDER, *names)
    return Path(root, MAIN_FOLDER, *names)


def meta_name(root: str | os.PathLike[str], *names: str) -> str:
    """The same as its owner knows it, for messages."""
    if isinstance(root, str) and is_url(root):
        return redacted(join_url(root, "/".join((MAIN_FOLDER, *names))))
    return os.fspath(meta_path(root, *names))


def read_sidecar(root: str | os.PathLike[str], name: str, *, what: str, advice: str) -> bytes:
    """Content of a file of ``.nv-meta``; see `read_file` for the arguments.

    Raises:
        DatasetError: there is no such file.
        StorageError: it cannot be read.
    """
    path = meta_path(root, name)
    if isinstance(root, str) and is_url(root) and not path.is_file():
        raise DatasetError(f"{meta_name(root, name)}: there is no {what}. {advice}")
    return read_file(path, what=what, advice=advice)


def write_sidecar_file(root: str | os.PathLike[str], name: str, text: str) -> str:
    """Write a file of ``.nv-meta`` in one step; gives its path or URL. Raises StorageError."""
    if not (isinstance(root, str) and is_url(root)):
        replace_file(meta_path(root, name), text)
        return os.fspath(meta_path(root, name))
    from omniloom.data.index.mirror import renew  # noqa: PLC0415 - local sets need no store

    where = join_url(root, f"{MAIN_FOLDER}/{name}")
    replace_file(where, text)
    renew(root)
    return redacted(where)


def remove_sidecar_file(root: str | os.PathLike[str], name: str) -> None:
    """Remove a file of ``.nv-meta`` where it is there."""
    if not (isinstance(root, str) and is_url(root)):
        remove_file(meta_path(root, name))
        return
    from omniloom.data.index.mirror import renew  # noqa: PLC0415 - local sets need no store

    remove_file(join_url(root, f"{MAIN_FOLDER}/{name}"))
    renew(root)


def parts_path(folder: str | os.PathLike[str], shard: str) -> str:
    """Where the parts table of a shard lies below ``folder``; names of shards may hold folders."""
    return f"{os.fspath(folder)}/{shard}{PARTS_SUFFIX}"


def is_inside(shard: str) -> bool:
    """Whether a shard's name stays below its data set: relative, without ``..``."""
    return bool(shard) and not shard.startswith("/") and "\0" not in shard and ".." not in shard.split("/")
