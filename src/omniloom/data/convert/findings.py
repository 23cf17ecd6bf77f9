"""What a conversion has to report: every finding as a line of a file, and counts of everything.

The counts and the length of the file are saved with each finished shard, so that a conversion that was stopped goes
on with the same file as one that was not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LEFT_OUT = "left-out"
KEPT = "kept"


@dataclass
class Counts:
    """Everything that is counted; a plain dict of it goes into the journal.

    Attributes:
        entries: entries read, good or bad.
        samples: samples written.
        images: images written.
        payload_bytes: bytes of all parts written.
        questions: samples that are one image, one question, one answer.
        left_out: entries that gave no sample, by reason.
        kept: entries that gave a sample although something was odd, by reason.
        shapes: entries by the shape of a field, such as ``image: list``.
        image_parts: images by the name of their part, without a number before it.
    """

    entries: int = 0
    samples: int = 0
    images: int = 0
    payload_bytes: int = 0
    questions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    image_parts: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """All counts as JSON has them, names sorted."""
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }

    def add(self, other: Counts) -> None:
        """Add what was counted elsewhere."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Counts out of what `to_json` gave."""
        values: dict[str, Any] = {n: Counter(v) if isinstance(v, dict) else v for n, v in saved.items()}
        return cls(**values)


class Findings:
    """Appends findings to a JSONL file and counts them.

    Args:
        path: the report file.
        size_bytes: how much of an existing file is kept.
        counts: counts that belong to what is kept.
    """

    def __init__(self, path: Path, *, size_bytes: int, counts: Counts) -> None:
        self.counts = counts
        self._file = path.open("ab")
        # A report that someone removed does not undo the shards that are finished; it is just shorter.
        size_bytes = min(size_bytes, self._file.tell())
        self._file.truncate(size_bytes)
        self._file.seek(size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def left_out(self, where: dict[str, Any], reason: str, detail: str) -> None:
        """An entry gives no sample."""
        self.counts.left_out[reason] += 1
        self._write(where, LEFT_OUT, reason, detail)

    def kept(self, where: dict[str, Any], reason: str, detail: str) -> None:
        """An entry gives a sample, but something about it should be known."""
        self.counts.kept[reason] += 1
        self._write(where, KEPT, reason, detail)

    def flush(self) -> int:
        """Bring everything to disk; returns the size of the file in bytes."""
        self._file.flush()
        return self._file.tell()

    def _write(self, where: dict[str, Any], outcome: str, reason: str, detail: str) -> None:
        line = json.dumps({**where, "outcome": outcome, "reason": reason, "detail": detail})
        self._file.write(f"{line}\n".encode())
