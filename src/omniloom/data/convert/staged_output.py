"""A conversion whose output belongs in a store: made in a folder of this machine, then put in its place.

The folder is the conversion's memory as well: one that was stopped goes on there, and an upload that broke off sends
only what the store does not have yet. In the store a mark stands while files are put in place, and ``.info.json`` is
the last of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from omniloom.data.convert.journal import JOURNAL_NAME
from omniloom.data.index.layout import COMMIT_MARK, INFO_JSON, MAIN_FOLDER, WORK_FOLDER
from omniloom.data.index.mirror import renew
from omniloom.errors import ConfigError
from omniloom.storage.files import replace_file
from omniloom.storage.node_copy import copy_there, node_cache
from omniloom.storage.open import is_local, local_path, open_store
from omniloom.storage.urls import is_url, join_url, redacted, relative_to

_SENT = "uploaded.json"
_THREADS = 4
_MARK = f"{MAIN_FOLDER}/{WORK_FOLDER}/{COMMIT_MARK}"


@contextlib.contextmanager
def staged_output(place: str, *, overwrite: bool = False) -> Iterator[Path]:
    """The folder to convert into; what lies there afterwards goes to ``place``, where that is a store.

    Args:
        place: a folder, by path or URL.
        overwrite: replace what the store has there.

    Raises:
        ConfigError: the store has archives there, and it was not this machine's conversion that left them.
        StorageError: the store cannot be written to. Run again: what was made and sent is kept.
    """
    if not is_url(place) or is_local(place):
        yield Path(local_path(place) if is_url(place) else place)
        return
    folder = node_cache("converted", hashlib.sha256(place.encode()).hexdigest()[:24])
    sent = _read_sent(folder)
    there = {relative_to(entry.url, place): entry.size_bytes for entry in open_store(place).scan(place)}
    foreign = next((name for name in sorted(there) if name.endswith(".tar") and name not in sent), None)
    if foreign is not None and not overwrite:
        raise ConfigError(
            f"{redacted(place)}: holds {foreign} and perhaps more, which no conversion of this machine is writing. "
            "Choose an empty folder as --out, or replace it with --overwrite."
        )
    yield folder
    _publish(folder, place, sent=sent, there=there)
    shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, place: str, *, sent: dict[str, list[int]], there: dict[str, int]) -> None:
    store = open_store(place)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names = [name for name in names if name != _SENT and not name.startswith(f"{MAIN_FOLDER}/{WORK_FOLDER}/")]
    store.write(join_url(place, _MARK), b"")

    def send(name: str) -> tuple[str, list[int]]:
        path = folder / name
        state = [path.stat().st_size, path.stat().st_mtime_ns]
        if sent.get(name) != state or there.get(name) != state[0]:
            copy_there(path, join_url(place, name))
        return name, state

    last = f"{MAIN_FOLDER}/{INFO_JSON}"
    with ThreadPoolExecutor(_THREADS) as threads:
        for name, state in threads.map(send, [name for name in names if name not in (last, JOURNAL_NAME)]):
            sent[name] = state
            if name.endswith(".tar"):
                replace_file(folder / _SENT, json.dumps(sent))
    for name in there:
        if name not in names and name != _MARK:
            store.delete(join_url(place, name))
    send(JOURNAL_NAME)
    send(last)
    store.delete(join_url(place, _MARK))
    renew(place)


def _read_sent(folder: Path) -> dict[str, list[int]]:
    """Size and time of the files that were uploaded."""
    try:
        found = json.loads((folder / _SENT).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
