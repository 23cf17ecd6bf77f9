"""The sidecar of a data set in a store, kept on this machine.

The small files of ``.nv-meta`` are brought here when a data set is opened; ``index.sqlite``, the indexes of shards and
their parts tables when they are first asked for. All of it lies in a folder that is named for one indexing of the data
set: when it is indexed anew, another folder begins, so that no index is ever read with the shards of another one. The
processes of a machine share it: one of them asks the store, the others see that it has just been done.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from omniloom.data.index.layout import (
    COMMIT_MARK,
    DATABASE,
    INFO_JSON,
    INFO_YAML,
    MAIN_FOLDER,
    MEDIA_PARTIAL,
    SIDECAR_NAMES,
    UUID_FILE,
    WORK_FOLDER,
)
from omniloom.errors import StorageError
from omniloom.storage.cache_folder import alone_in
from omniloom.storage.files import remove_file, replace_file
from omniloom.storage.node_copy import StoredFile, copy_here, node_cache
from omniloom.storage.open import open_store
from omniloom.storage.store import Stat
from omniloom.storage.urls import join_url, name_of

FRESH_VARIABLE = "OMNILOOM_SIDECAR_SECONDS"
FRESH_SECONDS = 10.0
"""How long one process of a machine may rely on what another one has just looked up."""

CURRENT = "current.json"
_ON_DEMAND = frozenset((DATABASE, MEDIA_PARTIAL))
_ABANDONED_SECONDS = 14 * 86_400
_THREADS = 8
_folders: dict[str, Path] = {}


def mirror_folder(url: str) -> Path:
    """The folder of this machine that holds the sidecar of a data set in a store, as it was when it was opened.

    Raises:
        StorageError: the store cannot be asked.
    """
    return _folders.get(url) or refresh(url)


def refresh(url: str) -> Path:
    """See that the sidecar that is kept here is the one in the store; gives its folder.

    Raises:
        StorageError: the store cannot be asked, or the disk is full.
    """
    place = node_cache("sets", hashlib.sha256(url.encode()).hexdigest()[:24])
    with alone_in(place):
        current = _read_current(place)
        if current is None or time.time() - current[1] > fresh_seconds():
            current = _update(url, place), time.time()
            replace_file(place / CURRENT, json.dumps({"url": _bare(url), "folder": current[0], "checked": current[1]}))
    _folders[url] = place / current[0]
    return _folders[url]


def renew(url: str) -> None:
    """Look the sidecar up at its next use: it has just been written."""
    _folders.pop(url, None)
    remove_file(node_cache("sets", hashlib.sha256(url.encode()).hexdigest()[:24]) / CURRENT)


def stored_file(url: str, *names: str) -> StoredFile:
    """A file of a data set in a store, or of its sidecar, that is brought here when it is needed."""
    return StoredFile(join_url(url, "/".join(names)), str(mirror_folder(url).joinpath(*names)))


def is_stored(url: str, *names: str) -> bool:
    """Whether there is such a file, here or in the store."""
    file = stored_file(url, *names)
    return Path(file.path).is_file() or open_store(url).exists(file.url)


def adopt(url: str, folder: str) -> None:
    """Take the folder that another process of this machine has seen to, without asking the store."""
    if url not in _folders and Path(folder).is_dir():
        _folders[url] = Path(folder)


def _update(url: str, place: Path) -> str:
    """Bring what is new of the small files here; gives the name of the folder."""
    with ThreadPoolExecutor(_THREADS) as threads:
        there, folders = _listed(url, threads)
        identity = json.dumps([[name, _tag(there.get(name))] for name in (INFO_JSON, INFO_YAML, UUID_FILE, DATABASE)])
        tags = {name: _tag(stat) for name, stat in there.items() if name not in _ON_DEMAND}
        folder = hashlib.sha256(identity.encode()).hexdigest()[:16]
        kept = place / folder / MAIN_FOLDER
        known = _read_tags(place / folder)
        new = [name for name, tag in tags.items() if tag == "" or known.get(name) != tag or not (kept / name).is_file()]
        list(threads.map(lambda name: _bring(url, name, kept / name, there[name]), new))
    kept.mkdir(parents=True, exist_ok=True)
    for path in kept.iterdir():
        if path.is_file() and path.name not in tags and path.name not in _ON_DEMAND:
            remove_file(path)
    mark = join_url(url, f"{MAIN_FOLDER}/{WORK_FOLDER}/{COMMIT_MARK}")
    if WORK_FOLDER in folders and open_store(url).exists(mark):
        replace_file(kept / WORK_FOLDER / COMMIT_MARK, "")
    else:
        remove_file(kept / WORK_FOLDER / COMMIT_MARK)
    replace_file(place / folder / "tags.json", json.dumps(tags))
    _remove_abandoned(place, folder)
    return folder


def _listed(url: str, threads: ThreadPoolExecutor) -> tuple[dict[str, Stat], tuple[str, ...]]:
    """The files of ``.nv-meta`` and its folders, by one listing; file by file where the store lists nothing."""
    store, where = open_store(url), join_url(url, MAIN_FOLDER)
    try:
        entries, folders = store.entries(where)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return {}, ()
        found = threads.map(lambda name: _look_at(url, name), SIDECAR_NAMES)
        there = {name: stat for name, stat in zip(SIDECAR_NAMES, found, strict=True) if stat is not None}
        return there, ()
    return {name_of(entry.url): Stat(entry.size_bytes, entry.etag) for entry in entries}, folders


def _look_at(url: str, name: str) -> Stat | None:
    try:
        return open_store(url).stat(join_url(url, f"{MAIN_FOLDER}/{name}"))
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def _bring(url: str, name: str, path: Path, stat: Stat) -> None:
    copy_here(join_url(url, f"{MAIN_FOLDER}/{name}"), path, size_bytes=stat.size_bytes)


def _tag(stat: Stat | None) -> str | None:
    """What tells states of a file apart, empty where the store tells nothing; ``None`` where there is no file."""
    if stat is None:
        return None
    return f"{stat.size_bytes} {stat.etag}" if stat.etag else ""


def _read_current(place: Path) -> tuple[str, float] | None:
    try:
        found = json.loads((place / CURRENT).read_bytes())
        folder, checked = str(found["folder"]), float(found["checked"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (folder, checked) if (place / folder).is_dir() and checked <= time.time() else None


def _read_tags(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / "tags.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove_abandoned(place: Path, folder: str) -> None:
    """Remove what is kept of former indexings that nobody has looked at for two weeks."""
    for path in place.iterdir():
        if path.is_dir() and path.name != folder:
            with contextlib.suppress(OSError):
                if time.time() - (path / "tags.json").stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def fresh_seconds() -> float:
    """How long one process of a machine may rely on what another one has just looked up."""
    try:
        return float(os.environ.get(FRESH_VARIABLE, FRESH_SECONDS))
    except ValueError:
        return FRESH_SECONDS


def _bare(url: str) -> str:
    return url.partition("?")[0]
