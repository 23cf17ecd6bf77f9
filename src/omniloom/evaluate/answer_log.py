"""The file that answers go to: whole lines of one run, one answer an item, also after kills and from several ranks."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from omniloom.errors import ConfigError
from omniloom.storage.files import replace_file

Row = Mapping[str, Any]
_MODEL, _FINGERPRINT = "model", "model_fingerprint"


class AnswerLog:
    """Answers of one run. While it is open, no other process opens it.

    Ranks beside the first write to ``<stem>-dprank=<rank>.jsonl``, which `fold` puts into the file itself.

    Args:
        output: a ``.jsonl`` file; beside it, ``<output>.model.json`` says whose answers these are.
        identity: what the answers hang on. Of one with equal ``model_fingerprint``, ``model`` may have moved.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any]) -> None:
        self._output, self._identity = output, dict(identity)
        self._side: IO[str] | None = None

    def __enter__(self) -> Self:
        """Take the file, and put into it what ranks of an earlier run have left.

        Raises:
            ConfigError: it has answers of another run, or another process writes to it.
        """
        side = self._output.with_name(f"{self._output.name}.model.json")
        side.parent.mkdir(parents=True, exist_ok=True)
        if _has_content(self._output) and not side.is_file():
            raise ConfigError(f"{self._output}: holds answers, and no {side.name} says whose. Write to another file.")
        self._side = side.open("a+", encoding="utf-8")
        try:
            self._lock(self._side)
            self._claim(self._side)
            self.fold(())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes take the file."""
        if self._side is not None:
            self._side.close()
            self._side = None

    def fold(self, order: Sequence[str]) -> None:
        """Put the answers of other ranks into the file, all of it in the order of the items' ids, and remove theirs.

        A kill at any instant loses nothing: at worst an answer is in both, and is put in once the next time.
        """
        pieces = self._pieces()
        rows = rows_there(self._output)
        before = list(rows)
        for piece in pieces:
            for name, row in rows_there(piece).items():
                rows.setdefault(name, row)
        places = {name: place for place, name in enumerate(order)}
        names = sorted(rows, key=lambda name: places.get(name, len(places)))
        if names != before:
            replace_file(self._output, "".join(line_of(rows[name]) for name in names))
        for piece in pieces:
            piece.unlink()

    def _lock(self, side: IO[str]) -> None:
        try:
            fcntl.flock(side, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{self._output}: another process is writing to it. Give each partition a file of its own."
            ) from None
        except OSError:
            pass  # a file system without locks

    def _claim(self, side: IO[str]) -> None:
        side.seek(0)
        text = side.read()
        if not _has_content(self._output) and not self._pieces():
            side.truncate(0)
            side.write(json.dumps(self._identity, indent=1))
            side.flush()
            return
        there = made_by(text, where=side.name)
        weights = there.get(_FINGERPRINT)
        moved = weights is not None and weights == self._identity.get(_FINGERPRINT)
        differing = [
            f"{key} {there.get(key)!r}, now {self._identity.get(key)!r}"
            for key in self._identity | there
            if there.get(key) != self._identity.get(key) and not (moved and key == _MODEL)
        ]
        if differing:
            raise ConfigError(
                f"{self._output}: holds answers of another run: {'; '.join(differing)}. Write to another file."
            )

    def _pieces(self) -> list[Path]:
        names = (escape(part) for part in (self._output.stem, self._output.suffix))
        return sorted(self._output.parent.glob("-dprank=*".join(names)))


def piece_of(output: Path, rank: int) -> Path:
    """Where a rank writes; the first to the file itself."""
    return output if rank == 0 else output.with_name(f"{output.stem}-dprank={rank}{output.suffix}")


def made_by(text: str, *, where: object) -> dict[str, Any]:
    """What stands beside answers of who made them; empty where nothing does. Raises ConfigError for anything else."""
    try:
        told = json.loads(text) if text.strip() else {}
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ConfigError(
            f"{where}: not what `omniloom generate` writes beside its answers: {text[:60]!r} found, a JSON object "
            "expected. Remove it together with the answers, and have them made again."
        )
    return told


def rows_there(path: Path) -> dict[str, Row]:
    """Answers in a file by id. A line that a kill cut off is taken away, so that the file goes on after whole ones.

    Raises:
        ConfigError: a whole line is none of ours.
    """
    if not path.is_file():
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    rows: dict[str, Row] = {}
    for number, line in enumerate(data[:whole].split(b"\n"), 1):
        if line:
            try:
                row = json.loads(line.decode("utf-8", "surrogatepass"))
                rows.setdefault(str(row["sample_id"]), row)
            except (ValueError, TypeError, LookupError):
                raise ConfigError(
                    f"{path}: line {number} is no answer with its sample_id: {line[:60]!r} found. Remove that line, "
                    "and the same command makes the answer again."
                ) from None
    return rows


def line_of(row: Row) -> str:
    """A row as a line of the file. Halves of characters, which are no UTF-8, are written as JSON escapes them."""
    text = json.dumps(row, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def append(path: Path, rows: Iterable[Row]) -> None:
    """Put whole lines at the end of a file, in one go."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(map(line_of, rows)))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
