"""Whether every shard of a data set and its index are there, before a run relies on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from omniloom.data.index.info import Info
from omniloom.data.index.layout import mending_command
from omniloom.data.index.omniloom_json import OmniloomInfo
from omniloom.data.index.place import DatasetPlace
from omniloom.data.shards.tar_index import samples_in_bytes, tar_index_path
from omniloom.errors import DatasetError, StorageError
from omniloom.storage.cache_folder import alone_in
from omniloom.storage.open import open_store
from omniloom.storage.store import Stat
from omniloom.storage.urls import is_url, redacted, relative_to

if TYPE_CHECKING:
    from omniloom.data.index.shard_states import ShardStates

_NAMES_SHOWN = 3
_ASKED_AT_MOST = 64
_THREADS = 16


def check_shards(place: DatasetPlace, names: Collection[str], info: Info, known: OmniloomInfo | None) -> None:
    """See that shards and indexes are there, and that indexes are as long as ``.info.json`` says.

    Each folder of a disk is listed once. A store is listed once as a whole, by one process of a machine; one that
    lists nothing is asked for a few.

    Args:
        place: where the data set lies.
        names: the shards.
        info: how many samples they hold.
        known: what is known of the shards, where omniloom indexed them.

    Raises:
        DatasetError: something is missing, or an index has another length.
    """
    if not is_url(place.shards) and not is_url(place.root):
        _check(place, names, info, _missing_on_disk(place.shards, names), _LocalSizes(place))
        return
    states = shard_states(place, known)
    with contextlib.nullcontext() if states is None else alone_in(states.folder):  # the others wait for the first
        if states is not None and states.is_fresh():
            return
        stats = _listed_stats(place, names)
        if stats is None:
            _ask_for_some(place, names)
            return
        missing = [name for name in names if name not in stats]
        _check(place, names, info, missing, {name: stat.size_bytes for name, stat in stats.items()})
        if states is not None and all(name in stats for name in info.shard_counts):
            states.note_listing(known.shards if known else {}, {name: stats[name] for name in info.shard_counts})


def _check(
    place: DatasetPlace, names: Collection[str], info: Info, missing: list[str], sizes: _Sizes | Mapping[str, int]
) -> None:
    if missing:
        where = f"{redacted(place.shards)}: {listed(missing)} of .info.json missing"
        on_disk = "" if is_url(place.shards) else " on disk"
        raise DatasetError(
            f"{where}{on_disk}. Bring them back, or run `omniloom prepare {redacted(place.root)}` on what is there."
        )
    for name in names:
        index = tar_index_path(name)
        size_bytes = sizes.get(index)
        path = f"{redacted(place.root)}/{index}"
        if size_bytes is None:
            raise DatasetError(f"{path}: there is no index of the shard. Make it: `{mending_command(place.root)}`.")
        found = samples_in_bytes(size_bytes, path=path)
        if found != info.shard_counts[name]:
            raise DatasetError(
                f"{path}: lists {found:,} samples, but .info.json says {info.shard_counts[name]:,}. The index or the "
                f"shard was changed alone; run `omniloom prepare {redacted(place.root)}` again."
            )


def shard_states(place: DatasetPlace, known: OmniloomInfo | None) -> ShardStates | None:
    """What this machine knows of shards in a store; ``None`` where they lie on it."""
    if not is_url(place.shards):
        return None
    from omniloom.data.index.shard_states import ShardStates  # noqa: PLC0415 - local sets need no store

    return ShardStates.of(place, known.index_uuid if known else "")


def listed(names: list[str]) -> str:
    """Some shards by name, and how many there are."""
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"{'shard' if len(names) == 1 else f'{len(names):,} shards:'} {shown}{more}"


class _Sizes(Protocol):
    def get(self, name: str, /) -> int | None: ...


class _LocalSizes:
    """Sizes of indexes, looked at one by one."""

    def __init__(self, place: DatasetPlace) -> None:
        self._root = place.root

    def get(self, name: str, /) -> int | None:
        """Size of a file; ``None`` where there is none."""
        try:
            return os.stat(f"{self._root}/{name}").st_size  # noqa: PTH116 - there may be many thousands
        except OSError:
            return None


def _listed_stats(place: DatasetPlace, names: Collection[str]) -> Mapping[str, Stat] | None:
    """Sizes and ETags of shards and indexes by name; ``None`` where the store lists nothing."""
    stats: dict[str, Stat] = {}
    for folder in {place.root, place.shards}:
        try:
            for entry in open_store(folder).scan(folder):
                stats[relative_to(entry.url, folder)] = Stat(entry.size_bytes, entry.etag)
        except StorageError:
            return None
    return stats if any(name in stats for name in names) or not names else None


def _ask_for_some(place: DatasetPlace, names: Collection[str]) -> None:
    every = max(1, len(names) // _ASKED_AT_MOST)
    asked = list(names)[::every]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and rarely needed

    store = open_store(place.shards)
    with ThreadPoolExecutor(_THREADS) as threads:
        there = threads.map(lambda name: store.exists(place.shard(name)), asked)
        missing = [name for name, found in zip(asked, there, strict=True) if not found]
    if missing:
        raise DatasetError(
            f"{redacted(place.shards)}: {listed(missing)} of .info.json missing. Bring them back, or run "
            f"`omniloom prepare {redacted(place.root)}` on what is there."
        )


def _missing_on_disk(root: str, names: Collection[str]) -> list[str]:
    """Names of shards that are not there; each folder is listed once, which is quicker than to ask for each file."""
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        folders.setdefault(folder, set()).add(base)
    missing = []
    for folder, bases in folders.items():
        try:
            present = set(os.listdir(f"{root}/{folder}"))  # noqa: PTH208
        except OSError:
            present = set()
        missing += [f"{folder}/{base}" if folder else base for base in sorted(bases - present)]
    return missing
