"""What kind of source lies at a path: one table of file endings, and what tells folders apart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from omniloom.data.index.dataset import dataset_config
from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import (
    DATASET_YAML,
    FOLDER_INDEX,
    MAIN_FOLDER,
    is_inside,
    mending_command,
    meta_name,
    meta_path,
)
from omniloom.data.index.place import absolute_root
from omniloom.data.index.sources import COMPRESSED_SUFFIXES, SHARD_SUFFIX
from omniloom.errors import ConfigError, DatasetError
from omniloom.storage.files import file_exists, folder_exists
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, name_of, parent_url, redacted, relative_to

SourceKind = Literal["webdataset", "jsonl", "parquet", "arrow", "llava", "folder", "metadataset"]

ENDINGS: dict[str, SourceKind] = {
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".json": "llava",
    ".yaml": "metadataset",
    ".yml": "metadataset",
}
SAVED_DATASET = "state.json"
SAVED_DATASETS = "dataset_dict.json"
_SHARDED: tuple[str, ...] = (".parquet", ".jsonl", ".arrow")
_ARCHIVES = (SHARD_SUFFIX, *COMPRESSED_SUFFIXES)
_PACKED = tuple(kind + packed for kind in (".jsonl", ".json") for packed in (".gz", ".zst", ".bz2", ".xz"))
_LOOKED_AT = 100_000
_KEYS = {"kind", "files", "json", "images"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of samples.

    Attributes:
        kind: what it is.
        path: where it is: a file, or a folder.
        root: the folder that names in it are relative to.
        has_sidecar: whether the ``.nv-meta`` of ``root`` describes it: not that of a single file, which is named alone.
        files: pattern of its files below ``root``; ``None``: those with the ending of its kind.
        images: folder of images, for LLaVA JSON.
    """

    kind: SourceKind
    path: str
    root: str
    has_sidecar: bool = True
    files: str | None = None
    images: str | None = None


def find_source(path: str | os.PathLike[str], *, config_name: str = DATASET_YAML) -> Source:
    """What lies at a path.

    Args:
        path: a file, or a folder.
        config_name: description of the samples in ``.nv-meta``, which may declare the source (key ``source``).

    Raises:
        DatasetError: there is nothing, or nothing that could be read as samples; says what to do.
        ConfigError: a declaration that is malformed.
    """
    absolute = absolute_root(path)
    if is_url(absolute):
        return _find_in_store(absolute, config_name)
    if not Path(absolute).is_dir():
        kind = ENDINGS.get(Path(absolute).suffix)
        if not Path(absolute).exists():
            raise DatasetError(f"{absolute}: there is no such file or folder. Check the path of the data set.")
        if kind is None:
            raise DatasetError(
                f"{absolute}: {Path(absolute).suffix or 'no ending'} found; files that hold samples end in "
                f"{', '.join(ENDINGS)}. A folder of shards is named by its folder."
            )
        folder = os.fspath(Path(absolute).parent)
        return Source(kind=kind, path=absolute, root=folder, has_sidecar=False, images=folder)
    if is_prepared(absolute):
        return Source(kind="webdataset", path=absolute, root=absolute)
    return _declared(absolute, config_name) or Source(kind=_folder_kind(absolute), path=absolute, root=absolute)


def _find_in_store(url: str, config_name: str) -> Source:
    from omniloom.data.index.mirror import refresh  # noqa: PLC0415 - local sets need no store

    kind = ENDINGS.get(os.path.splitext(name_of(url))[1])  # noqa: PTH122
    if kind is not None and file_exists(url):
        folder = parent_url(url)
        return Source(kind=kind, path=url, root=folder, has_sidecar=False, images=folder)
    refresh(url)
    if is_prepared(url):
        return Source(kind="webdataset", path=url, root=url)
    if kind is not None or not folder_exists(url):
        raise DatasetError(f"{redacted(url)}: there is no such object or folder. Check the URL of the data set.")
    return _declared(url, config_name) or Source(kind=_folder_kind(url), path=url, root=url)


def _declared(root: str, config_name: str) -> Source | None:
    where = meta_path(root, config_name)
    if not where.is_file():
        return None
    declared = dataset_config(root, name=config_name).get("source")
    return None if declared is None else source_of(declared, root=root, where=meta_name(root, config_name))


def source_of(declared: Any, *, root: str, where: str) -> Source:
    """The source that the key ``source`` of a ``dataset.yaml`` declares.

    Args:
        declared: the value: ``kind``, and ``files`` (a pattern), or ``json`` and ``images`` for LLaVA.
        root: folder of the data set.
        where: the file, for messages.

    Raises:
        ConfigError: it is malformed, or names something outside of the folder.
    """
    kinds = [kind for kind in get_args(SourceKind) if kind != "metadataset"]
    if not isinstance(declared, Mapping) or declared.get("kind") not in kinds:
        raise ConfigError(
            f"{where}: source is {declared!r:.100}; expected a mapping with a kind of {', '.join(kinds)}."
        )
    unknown = sorted(set(declared) - _KEYS)
    if unknown:
        raise ConfigError(f"{where}: source has the unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}.")
    for name in _KEYS - {"kind"}:
        value = declared.get(name)
        if value is not None and not (isinstance(value, str) and is_inside(value)):
            raise ConfigError(f"{where}: source.{name} is {value!r:.100}; expected a path below {root}.")
    if declared["kind"] == "llava":
        if not declared.get("json"):
            raise ConfigError(f"{where}: source of kind llava needs json, the file of its entries.")
        images = join_url(root, declared.get("images") or ".")
        return Source(kind="llava", path=join_url(root, declared["json"]), root=root, images=images)
    return Source(kind=declared["kind"], path=root, root=root, files=declared.get("files"))


def _folder_kind(root: str) -> SourceKind:
    if meta_path(root, FOLDER_INDEX).is_file():
        return "folder"
    if any(file_exists(join_url(root, name)) for name in (SAVED_DATASET, SAVED_DATASETS)):
        return "arrow"
    found: dict[str, str] = {}
    archive = packed = None
    for name in _some_names(root):
        found.setdefault(os.path.splitext(name)[1].lower(), name)  # noqa: PTH122 - many names
        archive = archive or (name if name.lower().endswith(_ARCHIVES) else None)
        packed = packed or (name if name.lower().endswith(_PACKED) else None)
    if packed is not None:
        raise DatasetError(
            f"{redacted(root)}: holds {packed}; records are read in any order, so they cannot be packed. Unpack it."
        )
    if archive is not None or not found:
        held = f"holds {archive}" if archive else "holds no files"
        raise DatasetError(f"{redacted(root)}: the data set is not prepared ({held}); run `{mending_command(root)}`.")
    for ending in _SHARDED:
        if ending in found:
            return ENDINGS[ending]
    if is_url(root):
        return "folder"
    entries = next((path for path in sorted(Path(root).glob("*.json")) if _is_list(path)), None)
    if entries is not None:
        raise DatasetError(
            f"{root}: holds {entries.name}, a JSON list, as LLaVA's data sets are. Give the path {entries} to read its "
            "entries with their images, or declare the folder as one of files, with `source: {kind: folder}` in "
            f"{MAIN_FOLDER}/{DATASET_YAML}."
        )
    return "folder"


def _is_list(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _some_names(root: str) -> Iterator[str]:
    """Names of files below a folder, not of all where there are very many."""
    if is_url(root):
        below = (relative_to(url, root) for url in open_store(root).list(root))
        yield from islice(
            (name for name in below if not any(one.startswith(".") for one in name.split("/"))), _LOOKED_AT
        )
        return
    left = _LOOKED_AT
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != MAIN_FOLDER and not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118
        left -= len(names)
        if left < 0:
            return


def other_source(path: str | os.PathLike[str], *, config_name: str = DATASET_YAML) -> Source | None:
    """The source at a path, where it is neither shards nor a mix; ``None`` also where it is nothing known."""
    try:
        source = find_source(path, config_name=config_name)
    except DatasetError:
        return None
    return None if source.kind in ("webdataset", "metadataset") else source
