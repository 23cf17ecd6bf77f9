"""From what a mix says under ``aux`` to a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, meta_path
from omniloom.data.index.place import absolute_root
from omniloom.data.side.store import SideStore
from omniloom.data.side.stores import JsonlFileStore, SystemFileStore, WebdatasetFileStore
from omniloom.errors import ConfigError
from omniloom.storage.files import folder_exists
from omniloom.storage.urls import is_url, name_of, redacted, resolve_url

FILES_SCHEME = "filesystem"
_FORMS = "a path of a prepared data set, a .jsonl file, filesystem://FOLDER, or {path: ...} or {fs_path: ...}"


def open_side_store(
    reference: str | Mapping[str, Any], *, relative_to: str | os.PathLike[str] | None = None
) -> SideStore:
    """The store that a reference names.

    =========================== ===============================================================================
    ``images``, ``/data/img``   a prepared data set with its key database: parts by full name
    ``labels.jsonl``            records by number
    ``filesystem://images``     files of a folder by relative name; ``filesystem:///data/images``
    ``s3://bucket/images``      any of these in a store; files of a folder as ``filesystem+s3://bucket/images``
    ``{path: ...}``             the same as the text
    ``{fs_path: ...}``          files of a folder
    =========================== ===============================================================================

    Args:
        reference: what the mix says.
        relative_to: folder that relative paths start from; ``None``: the working folder.

    Raises:
        ConfigError: a reference of no known form, or a path at which there is no store.
        DatasetError: a data set without a key database.
    """
    base = absolute_root(relative_to or ".")
    if isinstance(reference, Mapping):
        return _open_mapping(reference, base)
    if not isinstance(reference, str) or not reference:
        raise ConfigError(f"aux: {reference!r:.100} found; expected {_FORMS}.")
    kind, colon, rest = reference.partition("://")
    if colon and kind == FILES_SCHEME:
        return _files(_below(base, rest), reference)
    if colon and kind.startswith(f"{FILES_SCHEME}+"):
        return _files(f"{kind.partition('+')[2]}://{rest}", reference)
    return _open_path(_below(base, reference))


def _below(base: str, path: str) -> str:
    """A path or URL, seen from a folder."""
    return absolute_root(path if path.startswith("/") else resolve_url(base, path))


def _open_mapping(reference: Mapping[str, Any], base: str) -> SideStore:
    if set(reference) == {"path"} and isinstance(reference["path"], str):
        return open_side_store(reference["path"], relative_to=base)
    if set(reference) == {"fs_path"} and isinstance(reference["fs_path"], str):
        return _files(_below(base, reference["fs_path"]), reference["fs_path"])
    raise ConfigError(f"aux: {dict(reference)!r:.100} found; expected {_FORMS}.")


def _open_path(path: str) -> SideStore:
    ending = os.path.splitext(name_of(path))[1]  # noqa: PTH122 - also of URLs
    if ending == ".jsonl":
        return JsonlFileStore(path)
    if ending in (".yaml", ".yml"):
        raise ConfigError(f"aux: {path} is a mix; a store is one data set. Name the data set itself.")
    if is_url(path):
        from omniloom.data.index.mirror import is_stored, refresh  # noqa: PLC0415 - local sets need no store

        refresh(path)
        has_database = not is_prepared(path) and is_stored(path, MAIN_FOLDER, DATABASE)
    else:
        has_database = meta_path(path, DATABASE).is_file()
    if is_prepared(path):
        return WebdatasetFileStore(path)
    if has_database:
        return SystemFileStore(path)  # a folder of files whose media were looked at
    shown = redacted(path)
    if folder_exists(path):
        raise ConfigError(
            f"aux: {shown} is not prepared. Run `omniloom prepare {shown}`, or name it filesystem://{shown} to read "
            "its files as they are."
        )
    raise ConfigError(f"aux: {shown}: there is nothing; expected {_FORMS}.")


def _files(path: str, reference: str) -> SystemFileStore:
    if not folder_exists(path):
        raise ConfigError(f"aux: {redacted(reference)}: {redacted(path)} is no folder.")
    return SystemFileStore(path)
