"""The memory of a conversion: which shards are finished, and what had been read and counted by then.

A file of JSON lines in the output folder. The first line says what is converted and how; each further line stands for
one finished shard; the last says that everything is done. A line that was cut by a kill counts as not written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from omniloom.errors import ConfigError

JOURNAL_NAME = "convert_journal.jsonl"
FORMAT = 1


class Mark(NamedTuple):
    """State after a finished shard (or at the very end, with an empty shard name).

    Attributes:
        shard: name of the shard.
        size_bytes: size of its file.
        samples: samples in it.
        entries: entries of the input read so far, those left out included.
        report_bytes: size of the report file.
        counts: everything counted so far.
    """

    shard: str
    size_bytes: int
    samples: int
    entries: int
    report_bytes: int
    counts: Mapping[str, Any]


class Journal:
    """The journal of one output folder, locked against a second conversion into the same folder.

    Args:
        out: the output folder, which exists.
        task: what is converted and how; all of it must agree for a conversion to go on.

    Attributes:
        shards: marks of the finished shards, in order.
        end: mark of the end; ``None`` while the conversion is not finished.

    Raises:
        ConfigError: the folder holds the conversion of something else, or another process is at work in it.
    """

    def __init__(self, out: Path, *, task: Mapping[str, Any]) -> None:
        self._path = out / JOURNAL_NAME
        self._file = self._path.open("a+b")
        self._lock(out)
        self.shards: list[Mark] = []
        self.end: Mark | None = None
        self._load(out, {"format": FORMAT, **task})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def last(self) -> Mark:
        """Where to go on: the last finished shard's mark, or one that stands for the beginning."""
        return self.shards[-1] if self.shards else Mark("", 0, 0, 0, 0, {})

    def append(self, mark: Mark) -> None:
        """Record a finished shard, or the end; on disk when this returns."""
        self._write(mark._asdict())
        if mark.shard:
            self.shards.append(mark)
        else:
            self.end = mark

    def keep_only(self, count: int) -> None:
        """Forget all but the first ``count`` shards, and the end."""
        header = self._read_lines()[0]
        del self.shards[count:]
        self.end = None
        self._file.truncate(0)
        self._write(header)
        for mark in self.shards:
            self._write(mark._asdict())

    def _lock(self, out: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{out}: another conversion is writing there. Wait for it, or choose another --out."
            ) from None
        except OSError:
            pass  # a file system without locks

    def _load(self, out: Path, wanted: dict[str, Any]) -> None:
        lines = self._read_lines()
        if not lines:
            self._file.truncate(0)
            self._write(wanted)
            return
        for name, value in wanted.items():
            if lines[0].get(name) != value:
                raise ConfigError(
                    f"{out}: holds the conversion of another input or with other options: {name} was "
                    f"{lines[0].get(name)!r}, now {value!r}. Choose another --out, or start anew with --overwrite."
                )
        for line in lines[1:]:
            mark = Mark(**line)
            if mark.shard:
                self.shards.append(mark)
            else:
                self.end = mark

    def _read_lines(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        lines, sound_bytes = [], 0
        for raw in self._file.read().splitlines(keepends=True):
            try:
                line = json.loads(raw)
            except ValueError:
                break
            if not raw.endswith(b"\n"):
                break
            lines.append(line)
            sound_bytes += len(raw)
        self._file.truncate(sound_bytes)
        return lines

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(f"{json.dumps(line)}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())
