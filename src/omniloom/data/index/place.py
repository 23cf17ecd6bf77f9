"""Where the pieces of a data set lie: its sidecar, the indexes of its shards, and the shards themselves.

All three are one folder as a rule. They part where the data set lies in a store, whose indexes are kept on this
machine, and where its shards must not be written beside: then the sidecar is a folder of its own, which names the
shards' folder in ``.nv-meta/place.json`` and is the path by which the data set is known.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, PARTS_FOLDER, PLACE_JSON, meta_name, meta_path, parts_path
from omniloom.data.shards.tar_index import ENTRY_BYTES, tar_index_path
from omniloom.errors import DatasetError
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.open import is_local, local_path, open_store
from omniloom.storage.urls import is_url, join_url, without_secrets


class DatasetPlace(NamedTuple):
    """Where a data set lies.

    Attributes:
        root: as it is known: the folder of its sidecar.
        shards: the folder of its shards.
        kept: the folder of this machine that holds the sidecar, or its copy.
    """

    root: str
    shards: str
    kept: str

    @property
    def is_plain(self) -> bool:
        """Whether everything lies in one folder of this machine."""
        return self.shards == self.root == self.kept

    def shard(self, name: str) -> str:
        """Path or URL of a shard."""
        return join_url(self.shards, name) if is_url(self.shards) else f"{self.shards}/{name}"

    def index_of(self, name: str, samples: int) -> StoredFile | None:
        """The index of a shard of so many samples; ``None`` where it lies beside the shard."""
        if self.is_plain:
            return None
        return self.file(tar_index_path(name))._replace(size_bytes=ENTRY_BYTES * (samples + 1))

    def parts_table(self, name: str) -> str | StoredFile:
        """The parts table of a shard."""
        table = parts_path(f"{MAIN_FOLDER}/{PARTS_FOLDER}", name)
        return f"{self.root}/{table}" if self.is_plain else self.file(table)

    def file(self, name: str) -> StoredFile:
        """A file below the sidecar's folder."""
        where = join_url(self.root, name) if is_url(self.root) else f"{self.root}/{name}"
        return StoredFile(where, f"{self.kept}/{name}")


def normal_root(root: str | os.PathLike[str]) -> str:
    """A path or URL of a data set as all code knows it: no slash at the end, a file's URL as its path."""
    text = os.fspath(root)
    if not is_url(text):
        return text
    if is_local(text):
        return local_path(text)
    bare, mark, query = text.partition("?")
    return f"{bare.rstrip('/')}{mark}{query}"


def absolute_root(root: str | os.PathLike[str]) -> str:
    """The same, a path made absolute."""
    text = normal_root(root)
    return text if is_url(text) else os.fspath(Path(text).absolute())


def place_of(root: str | os.PathLike[str]) -> DatasetPlace:
    """Where the pieces of a data set lie.

    Raises:
        DatasetError: ``place.json`` is damaged.
        StorageError: its store cannot be asked.
    """
    text = normal_root(root)
    kept = str(meta_path(text).parent)
    told = meta_path(text, PLACE_JSON)
    if not told.is_file():
        return DatasetPlace(text, text, kept if is_url(text) else text)
    try:
        shards = json.loads(told.read_bytes())["shards"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f'{meta_name(text, PLACE_JSON)}: damaged ({error!r}); expected {{"shards": FOLDER}}. Prepare the data set '
            "again with --meta-dir."
        ) from error
    if not isinstance(shards, str) or not shards:
        raise DatasetError(f"{meta_name(text, PLACE_JSON)}: shards is {shards!r:.80}; expected a path or URL.")
    return DatasetPlace(text, normal_root(shards), kept if is_url(text) else text)


def has_database(root: str | os.PathLike[str]) -> bool:
    """Whether a data set has a key database, here or in its store."""
    file = place_of(root).file(f"{MAIN_FOLDER}/{DATABASE}")
    return Path(file.path).is_file() or (is_url(file.url) and open_store(file.url).exists(file.url))


def encode_place(shards: str) -> str:
    """Content of ``place.json``; secrets of a URL are not kept."""
    return json.dumps({"shards": without_secrets(shards)}, indent=2)
