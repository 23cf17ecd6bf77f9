"""The entries of a JSON array or a JSONL file, one after the other, in memory that does not grow with the file.

A JSON array of gigabytes is not loaded whole: its elements are parsed one by one out of a sliding window of text.
In JSONL a broken line is one bad entry. In an array nothing can be trusted after the first syntax error, so it ends
the reading.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from omniloom.data.media.json_part import parse_strict_json
from omniloom.errors import ConfigError, DatasetError, SampleError

CHUNK_BYTES = 1 << 20
_WHITESPACE = " \t\r\n"
_CUT_TOKEN = 16  # longer than what is left of a number or an escape that the end of the window cut
_UTF16_OR_32_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class RawEntry(NamedTuple):
    """One element of the input, parsed or with the reason why it is of no use.

    Attributes:
        position: where it stands among all entries, from 0; blank lines do not count.
        line: line of the file on which the entry starts, from 1.
        value: what the JSON says; ``None`` where ``reason`` is set.
        reason: short word for counting, such as ``syntax``, see `parse_strict_json`; ``None`` for a sound entry.
        detail: what was found; empty for a sound entry.
        bytes_read: how much of the file had been read when this entry came out, for progress.
    """

    position: int
    line: int
    value: Any
    reason: str | None
    detail: str
    bytes_read: int


def read_entries(path: Path) -> Iterator[RawEntry]:
    """Yield the entries of a JSON array or of a JSONL file, whichever ``path`` holds.

    Raises:
        DatasetError: the file is empty, not UTF-8, neither form, or an array with a syntax error.
    """
    with path.open("rb") as file:
        start = file.read(4096)
        if start.startswith(_UTF16_OR_32_MARKS):
            raise DatasetError(
                f"{path}: encoded as UTF-16 or UTF-32, expected UTF-8. Convert it with `iconv -t UTF-8`."
            )
        file.seek(len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0)
        first = start.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        if not first:
            raise DatasetError(f"{path}: holds no entries. Expected a JSON list, or one JSON object a line.")
        if first == b"[" and path.suffix != ".jsonl":
            yield from _ArrayReader(path, file)
        elif first == b"{" or path.suffix == ".jsonl":
            yield from _read_lines(path, file)
        else:
            raise DatasetError(
                f"{path}: starts with {first!r}. Expected '[' of a JSON list, or '{{' of one JSON object a line."
            )


def load_json(path: Path) -> Any:
    """The content of a JSON file. Raises DatasetError where it is none, ConfigError where there is no file."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Expected the data set's JSON.")
    try:
        return parse_strict_json(path.read_bytes())
    except SampleError as error:
        raise DatasetError(f"{path}: {error}") from error


def _read_lines(path: Path, file: BinaryIO) -> Iterator[RawEntry]:
    position = 0
    for number, raw in enumerate(file, start=1):
        line = raw.strip(b" \t\r\n\0")
        if line:
            value, reason, detail = _parse(line)
            yield RawEntry(position, number, value, reason, detail, file.tell())
            position += 1
    if position == 0:
        raise DatasetError(f"{path}: holds no entries. Expected one JSON object a line.")


def _parse(data: bytes) -> tuple[Any, str | None, str]:
    try:
        return parse_strict_json(data), None, ""
    except SampleError as error:
        return None, error.reason, str(error)


class _WatchedDecoder:
    """Parses one value out of a longer text, and notes whether it holds what strict reading refuses."""

    def __init__(self) -> None:
        self._is_suspect = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=self._constant, parse_float=self._float
        )

    def decode(self, text: str, start: int) -> tuple[Any, int, bool]:
        """Value that starts at ``start``, where it stops, and whether it has to be read strictly."""
        self._is_suspect = False
        value, stop = self._decoder.raw_decode(text, start)
        escaped = text.find("\\u", start, stop) >= 0 and "\\ud" in text[start:stop].lower()
        return value, stop, self._is_suspect or escaped

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        self._is_suspect |= len(mapping) != len(pairs)
        return mapping

    def _constant(self, text: str) -> None:
        self._is_suspect = True

    def _float(self, text: str) -> float:
        number = float(text)
        self._is_suspect |= math.isinf(number)
        return number


class _ArrayReader:
    """Elements of one big JSON array, parsed out of a window of text that slides over the file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = _WatchedDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def __iter__(self) -> Iterator[RawEntry]:
        self._take("[", "a JSON list")
        if self._peek() == "]":
            raise DatasetError(f"{self._path}: an empty JSON list; there is nothing to convert.")
        position = 0
        while True:
            self._peek()
            line = self._line
            value, reason, detail = self._element()
            yield RawEntry(position, line, value, reason, detail, self._file.tell())
            position += 1
            if self._peek() == "]":
                self._at += 1
                if self._peek():
                    raise self._error("text after the end of the list", self._at)
                return
            self._take(",", "',' or ']' after an entry")

    def _element(self) -> tuple[Any, str | None, str]:
        while True:
            try:
                value, stop, is_suspect = self._json.decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error) or not self._read_more():
                    raise self._error(error.msg, error.pos) from None
                continue
            except (RecursionError, ValueError) as error:  # ValueError: a whole number of thousands of digits
                what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise self._error(what, self._at) from None
            if stop > len(self._text) - _CUT_TOKEN and self._read_more():
                continue  # a number could go on in the next chunk
            element = self._text[self._at : stop] if is_suspect else ""
            self._move_to(stop)
            return _parse(element.encode("utf-8")) if is_suspect else (value, None, "")

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        # Of tokens cut by the window, the longest that is complained about at its start is a pair of escapes for one
        # character; but a string without its closing quote is complained about at its opening one, however long it is.
        return error.pos > len(self._text) - _CUT_TOKEN or error.msg.startswith("Unterminated string")

    def _peek(self) -> str:
        """Next character that is not whitespace; empty at the end of the file."""
        while True:
            stop = self._at
            while stop < len(self._text) and self._text[stop] in _WHITESPACE:
                stop += 1
            self._move_to(stop)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def _take(self, wanted: str, what: str) -> None:
        if self._peek() != wanted:
            found = repr(self._text[self._at]) if self._at < len(self._text) else "the end of the file"
            raise self._error(f"expected {what}, found {found}", self._at)
        self._at += 1

    def _move_to(self, stop: int) -> None:
        self._line += self._text.count("\n", self._at, stop)
        self._at = stop

    def _read_more(self) -> bool:
        """Append to the window at least as much as it still holds; ``False`` at the end of the file."""
        if self._ended:
            return False
        rest = self._text[self._at :]
        raw = self._file.read(max(CHUNK_BYTES, len(rest)))
        self._ended = not raw
        try:
            more = self._utf8.decode(raw, final=self._ended)
        except UnicodeDecodeError as error:
            byte = self._file.tell() - len(raw) + error.start
            raise DatasetError(
                f"{self._path}: byte {byte} is not UTF-8. Convert the file with `iconv -t UTF-8`."
            ) from None
        if self._ended and not more:
            return False  # positions found in the window stay true
        self._text, self._at = rest + more, 0
        return True

    def _error(self, what: str, at: int) -> DatasetError:
        line = self._line + self._text.count("\n", self._at, at)
        return DatasetError(
            f"{self._path}: line {line}: {what}. Expected a JSON list of entries. "
            "Mend the file there and run the same command with --overwrite."
        )
