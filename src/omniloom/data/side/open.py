"""From what a mix says under ``aux`` to a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import DATABASE, meta_path
from omniloom.data.side.store import SideStore
from omniloom.data.side.stores import JsonlFileStore, SystemFileStore, WebdatasetFileStore
from omniloom.errors import ConfigError

FILES_SCHEME = "filesystem"
_FORMS = "a path of a prepared data set, a .jsonl file, filesystem://FOLDER, or {path: ...} or {fs_path: ...}"


def open_side_store(
    reference: str | Mapping[str, Any], *, relative_to: str | os.PathLike[str] | None = None
) -> SideStore:
    """The store that a reference names.

    =========================== ====================================================================
    ``images``, ``/data/img``   a prepared data set with its key database: parts by full name
    ``labels.jsonl``            records by number
    ``filesystem://images``     files of a folder by relative name; ``filesystem:///data/images``
    ``{path: ...}``             the same as the text
    ``{fs_path: ...}``          files of a folder
    =========================== ====================================================================

    Args:
        reference: what the mix says.
        relative_to: folder that relative paths start from; ``None``: the working folder.

    Raises:
        ConfigError: a reference of no known form, or a path at which there is no store.
        DatasetError: a data set without a key database.
    """
    base = Path(relative_to or ".").absolute()
    if isinstance(reference, Mapping):
        return _open_mapping(reference, base)
    if not isinstance(reference, str) or not reference:
        raise ConfigError(f"aux: {reference!r:.100} found; expected {_FORMS}.")
    scheme, colon, rest = reference.partition("://")
    if not colon:
        return _open_path(base / reference)
    if scheme == FILES_SCHEME:
        return _files(base / rest, reference)
    raise ConfigError(
        f"aux: {reference}: stores by URL are not read yet; expected {_FORMS}. Copy it to a disk, or mount it."
    )


def _open_mapping(reference: Mapping[str, Any], base: Path) -> SideStore:
    if set(reference) == {"path"} and isinstance(reference["path"], str):
        return open_side_store(reference["path"], relative_to=base)
    if set(reference) == {"fs_path"} and isinstance(reference["fs_path"], str):
        return _files(base / reference["fs_path"], reference["fs_path"])
    raise ConfigError(f"aux: {dict(reference)!r:.100} found; expected {_FORMS}.")


def _open_path(path: Path) -> SideStore:
    if path.suffix == ".jsonl":
        return JsonlFileStore(path)
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"aux: {path} is a mix; a store is one data set. Name the data set itself.")
    if is_prepared(path):
        return WebdatasetFileStore(path)
    if meta_path(path, DATABASE).is_file():
        return SystemFileStore(path)  # a folder of files whose media were looked at
    if path.is_dir():
        raise ConfigError(
            f"aux: {path} is not prepared. Run `omniloom prepare {path}`, or name it filesystem://{path} to read its "
            "files as they are."
        )
    raise ConfigError(f"aux: {path}: there is nothing; expected {_FORMS}.")


def _files(path: Path, reference: str) -> SystemFileStore:
    if not path.is_dir():
        raise ConfigError(f"aux: {reference}: {path} is no folder.")
    return SystemFileStore(path)
