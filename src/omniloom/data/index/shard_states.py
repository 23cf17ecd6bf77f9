"""Which shards in a store are still those that were indexed: found out once a machine, and kept for all its processes.

One listing tells size and ETag of every shard. Where these are what the index says, no process has to ask for the shard
again. Other shards, such as those that were indexed on a disk and uploaded since, are checked by their headers when
they are first read; the machine remembers in which state they were found good.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omniloom.data.index.mirror import fresh_seconds
from omniloom.data.index.omniloom_json import ShardMark
from omniloom.data.index.place import DatasetPlace
from omniloom.data.shards.remote_archive import states_of
from omniloom.errors import StorageError
from omniloom.storage.cache_folder import node_cache
from omniloom.storage.files import replace_file
from omniloom.storage.store import Stat
from omniloom.storage.tickets import Tickets
from omniloom.storage.urls import is_url

_STATES = "shard-states.json"
_CHECKED = "checked-shards.jsonl"
_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.02


class ShardStates:
    """What this machine knows of the shards of one indexing of a data set.

    Args:
        folder: where it is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._tickets = Tickets()
        self._checked: dict[str, str] = {}
        self._read_bytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardStates, (self.folder,)

    @classmethod
    def of(cls, place: DatasetPlace, index_uuid: str) -> ShardStates:
        """Those of a data set whose shards lie in a store."""
        if is_url(place.root):
            return cls(Path(place.kept))
        named = f"{os.fspath(Path(place.root).absolute())} {place.shards.partition('?')[0]}"
        return cls(node_cache("sets", hashlib.sha256(named.encode()).hexdigest()[:24], index_uuid or "unnamed"))

    def is_fresh(self) -> bool:
        """Whether a process of this machine listed the shards so short a time ago, and all were there."""
        found = self._read()
        return found is not None and 0 <= time.time() - float(str(found.get("listed", 0))) <= fresh_seconds()

    def note_listing(self, marks: Mapping[str, ShardMark], listed: Mapping[str, Stat]) -> None:
        """Keep what a listing of all shards told.

        Args:
            marks: by name, what the index says; of no shard where only Energon indexed them.
            listed: by name, size and ETag of each shard.
        """
        self._read_checked()
        others: dict[str, str] = {}
        for name, stat in listed.items():
            mark = marks.get(name)
            states = states_of(stat)
            if mark is None or mark.size_bytes != stat.size_bytes:
                others[name] = ""
            elif mark.etag not in states:
                checked = self._checked.get(name, "")
                others[name] = checked if checked in states else ""
        text = json.dumps({"listed": time.time(), "others": others})
        with contextlib.suppress(StorageError, OSError):  # a disk that is full costs requests, and nothing else
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / _STATES, text)

    def good_states(self, marks: Mapping[str, ShardMark]) -> Mapping[str, str]:
        """By name, the state in which a listing found each shard that was as it had been indexed or checked."""
        found = self._read()
        others = None if found is None else found.get("others")
        if not isinstance(others, dict):
            return {}
        good = {name: mark.etag for name, mark in marks.items() if mark.etag and name not in others}
        return good | {name: str(state) for name, state in others.items() if state}

    def was_checked(self, shard: str, state: str) -> bool:
        """Whether a process of this machine found this state of a shard good."""
        self._read_checked()
        return bool(state) and self._checked.get(shard) == state

    def check_once(self, shard: str, state: str, check: Callable[[], None]) -> None:
        """Check a state of a shard, unless another process of this machine is doing so and finds it good.

        Args:
            shard: its name.
            state: its state; empty where the store tells none: then everybody checks.
            check: looks at the shard; raises where it is not the one that was indexed.
        """
        if not state:
            check()
            return
        ticket = self.folder / f"checking-{hashlib.sha256(f'{shard} {state}'.encode()).hexdigest()[:24]}"
        drawn, until = False, time.monotonic() + _PATIENCE_SECONDS
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            while not (drawn := self._tickets.draw(str(ticket))) and time.monotonic() < until:
                if self.was_checked(shard, state):
                    return
                time.sleep(_POLL_SECONDS)
        try:
            if not self.was_checked(shard, state):
                check()
                self._note_checked(shard, state)
        finally:
            if drawn:
                self._tickets.give_back(str(ticket))

    def _note_checked(self, shard: str, state: str) -> None:
        line = json.dumps([shard, state]).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / _CHECKED, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _read(self) -> dict[str, object] | None:
        try:
            found = json.loads((self.folder / _STATES).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _read_checked(self) -> None:
        """Read on in the list of what was found good: other processes add to it."""
        with self._lock, contextlib.suppress(OSError), (self.folder / _CHECKED).open("rb") as file:
            file.seek(self._read_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # being written just now
                self._read_bytes += len(line)
                with contextlib.suppress(ValueError):
                    shard, state = json.loads(line)
                    self._checked[str(shard)] = str(state)
