"""Where a sidecar is made that belongs elsewhere: a folder of this machine, from which it goes to its place.

A data set in a store gets its sidecar made here and uploaded; one that must not be written to gets a folder of its own
for it. What is finished stays here until it is uploaded, so that an interrupted run goes on where it was. In the store
the marks of a run on a disk hold as well: a mark stands there while files are put in place, and ``.info.json`` is the
last of them; each object is there whole or as it was before.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omniloom.data.index.layout import (
    COMMIT_MARK,
    DATABASE,
    INFO_JSON,
    MAIN_FOLDER,
    PARTS_FOLDER,
    PLACE_JSON,
    WORK_FOLDER,
    parts_path,
)
from omniloom.data.index.mirror import refresh, renew
from omniloom.data.index.place import encode_place
from omniloom.data.index.scanning import ScanDone
from omniloom.data.index.sidecar import Elsewhere
from omniloom.data.shards.tar_index import tar_index_path
from omniloom.errors import StorageError
from omniloom.storage.files import remove_file, replace_file, storage_error
from omniloom.storage.node_copy import StoredFile, copy_here, copy_there, node_cache
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, redacted, relative_to

_THREADS = 16
_PARTIAL_TABLES = f"{MAIN_FOLDER}/{WORK_FOLDER}/{PARTS_FOLDER}"
_TABLES = f"{MAIN_FOLDER}/{PARTS_FOLDER}"


@dataclass(frozen=True)
class Stage:
    """A sidecar in the making.

    Attributes:
        target: the folder, a path or URL, that it belongs to.
        shards: the folder of the shards.
        folder: the folder of this machine in which it is made.
        listing: names and sizes of what the target holds, where it lies in a store.
    """

    target: str
    shards: str
    folder: Path
    listing: Mapping[str, int] = field(default_factory=dict)

    def elsewhere(self) -> Elsewhere:
        """What the builder of the sidecar has to know."""
        return Elsewhere(
            name=redacted(self.target),
            shard_path=self.shard_path,
            old_tables=self._old_tables,
            in_store=is_url(self.shards),
        )

    def shard_path(self, shard: str) -> str:
        """Path or URL of a shard."""
        return join_url(self.shards, shard)

    def publish(self, done: Sequence[ScanDone], *, all_indexes: bool) -> None:
        """Put a finished sidecar where it belongs.

        Args:
            done: the scans that it was made of.
            all_indexes: upload also what the store is known to have.

        Raises:
            StorageError: the store cannot be written to. Run again: what is finished is not made again.
        """
        if self.target != self.shards:
            replace_file(self.folder / MAIN_FOLDER / PLACE_JSON, encode_place(self.shards))
        if not is_url(self.target):
            return
        store = open_store(self.target)
        mark = join_url(self.target, f"{MAIN_FOLDER}/{WORK_FOLDER}/{COMMIT_MARK}")
        store.write(mark, b"")
        self._upload_shards(done, all_indexes=all_indexes)
        self._upload_texts()
        kept = {parts_path(_TABLES, one.shard) for one in done}
        for name in self.listing:
            old = name.startswith(f"{_TABLES}/") and name not in kept
            if old or name.startswith(f"{MAIN_FOLDER}/{WORK_FOLDER}/"):
                store.delete(join_url(self.target, name))
        store.delete(mark)
        renew(self.target)

    def leave(self, table: Path, shard: str) -> None:
        """Upload the scan of a shard for whoever finishes the sidecar."""
        copy_there(table, join_url(self.target, parts_path(_PARTIAL_TABLES, shard)))

    def _upload_shards(self, done: Sequence[ScanDone], *, all_indexes: bool) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - local sets need none

        def upload(one: ScanDone) -> None:
            # The index first: a table in the store says that its index is there.
            for name in (tar_index_path(one.shard), parts_path(_TABLES, one.shard)):
                copy_there(self.folder / name, join_url(self.target, name))

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(upload, [one for one in done if all_indexes or not one.in_store]))

    def _upload_texts(self) -> None:
        meta = self.folder / MAIN_FOLDER
        names = sorted(path.name for path in meta.iterdir() if path.is_file())
        if DATABASE not in names:
            open_store(self.target).delete(join_url(self.target, f"{MAIN_FOLDER}/{DATABASE}"))
        for name in sorted(names, key=(INFO_JSON,).__contains__):
            copy_there(meta / name, join_url(self.target, f"{MAIN_FOLDER}/{name}"))

    def _old_tables(self, shard: str) -> tuple[StoredFile, ...]:
        names = (parts_path(_PARTIAL_TABLES, shard), parts_path(_TABLES, shard))
        fetched = self.folder / MAIN_FOLDER / WORK_FOLDER / "fetched"
        return tuple(
            StoredFile(join_url(self.target, name), str(fetched / str(number) / name))
            for number, name in enumerate(names)
            if name in self.listing
        )


def needs_stage(root: str, target: str) -> bool:
    """Whether a sidecar is made elsewhere than beside its shards."""
    return target != root or is_url(root)


@contextlib.contextmanager
def open_stage(root: str, target: str, *, with_database: bool) -> Iterator[Stage]:
    """Get ready to make the sidecar of the shards in ``root`` that belongs to ``target``.

    Args:
        root: folder of the shards, a path or URL.
        target: folder of the sidecar.
        with_database: whether the former key database is needed, which holds what is known of media.

    Raises:
        StorageError: a store cannot be asked, or the disk is full.
    """
    if not is_url(target):
        folder = Path(target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error("make the folder", folder, error) from error
        yield Stage(target, root, folder)
        return
    folder = node_cache("stages", hashlib.sha256(target.encode()).hexdigest()[:24])
    meta = folder / MAIN_FOLDER
    meta.mkdir(parents=True, exist_ok=True)
    listing = {relative_to(entry.url, target): entry.size_bytes for entry in open_store(target).scan(target)}
    for path in meta.iterdir():
        if path.is_file():
            remove_file(path)
    for path in (refresh(target) / MAIN_FOLDER).iterdir():
        if path.is_file() and path.name != DATABASE:
            shutil.copyfile(path, meta / path.name)
    if with_database and f"{MAIN_FOLDER}/{DATABASE}" in listing:
        copy_here(join_url(target, f"{MAIN_FOLDER}/{DATABASE}"), meta / DATABASE)
    yield Stage(target, root, folder, listing)
    # All of it is where it belongs; what is kept here would only be asked for again by another run of the same kind.
    with contextlib.suppress(OSError, StorageError):
        shutil.rmtree(folder)
