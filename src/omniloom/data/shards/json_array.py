"""Where the objects of one big JSON list lie, found without parsing them, in memory that does not grow with the file.

The result has the form of a line index (see `line_index`): entry i lies from offset i to offset i + 1, with the comma
and the blanks that follow it; the last number is the size of the file, so the last entry has the bracket behind it.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator

import numpy as np

from omniloom.errors import DatasetError
from omniloom.storage.files import storage_error
from omniloom.storage.node_copy import kept_copy

CHUNK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def find_entries(path: str | os.PathLike[str]) -> array[int]:
    """The n + 1 offsets of the objects of a JSON list.

    Only brackets and texts are looked at: what is wrong within an object shows when it is read.

    Raises:
        DatasetError: the file is no list of objects, with the byte of the fault.
        StorageError: it cannot be read.
    """
    try:
        with kept_copy(path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise DatasetError(f"{os.fspath(path)}: an empty file. Expected a JSON list of objects.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                return _Finder(os.fspath(path), text).offsets()
    except OSError as error:
        raise storage_error("read", path, error) from error


class _Finder:
    """Walks over one file."""

    def __init__(self, path: str, text: mmap.mmap) -> None:
        self._path = path
        self._text = text

    def offsets(self) -> array[int]:
        """The n + 1 offsets."""
        start = self._blanks(len(_BOM) if self._text[:3] == _BOM else 0)
        if self._text[start : start + 1] != b"[":
            raise self._error(start, "'[' of a JSON list")
        offsets = array("Q")
        end, begin = start + 1, -1
        for position, is_begin in self._borders(start):
            if is_begin:
                self._check_between(end, position, first=not offsets)
                offsets.append(position)
                begin = position
            elif begin < 0:  # the end of the list itself
                return self._closed(offsets, end, position)
            else:
                end, begin = position + 1, -1
        what = "the end of the list" if begin < 0 else f"the end of the entry that begins at byte {begin:,}"
        raise self._error(len(self._text), what)

    def _closed(self, offsets: array[int], end: int, position: int) -> array[int]:
        if self._blanks(end) != position:
            raise self._error(self._blanks(end), "',' or ']' after an entry")
        if not offsets:
            raise DatasetError(f"{self._path}: an empty JSON list; there is nothing to read.")
        after = self._blanks(position + 1)
        if after < len(self._text):
            raise self._error(after, "the end of the file after the list")
        offsets.append(len(self._text))
        return offsets

    def _check_between(self, end: int, begin: int, *, first: bool) -> None:
        """Between two entries stands a comma, and each is an object."""
        if self._text[begin] != ord("{"):
            raise self._error(begin, "'{' of an entry")
        if self._text[end:begin].strip(_BLANKS) != (b"" if first else b","):
            raise self._error(self._blanks(end), "'{' of an entry" if first else "one ',' and the next entry")

    def _borders(self, start: int) -> Iterator[tuple[int, bool]]:
        """Where entries begin (true) and end (false), the end of the list last."""
        depth, quotes, position = 0, 0, start
        while position < len(self._text):
            stop = min(position + CHUNK_BYTES, len(self._text))
            while stop < len(self._text) and self._text[stop - 1] == _BACKSLASH:
                stop += 1  # a chunk does not end among backslashes
            data = np.frombuffer(self._text[position:stop], np.uint8)
            marks = _real_quotes(data)
            steps = _STEPS[data]
            brackets = np.flatnonzero(steps)
            outside = (np.searchsorted(marks, brackets) + quotes) % 2 == 0
            brackets = brackets[outside]
            changes = steps[brackets]
            depths = depth + np.cumsum(changes, dtype=np.int64)
            begins = (depths == 2) & (changes > 0)
            ends = (depths < 2) & (changes < 0)
            for at in np.flatnonzero(begins | ends).tolist():
                yield position + int(brackets[at]), bool(begins[at])
                if depths[at] == 0:
                    return
            depth = int(depths[-1]) if len(depths) else depth
            quotes += len(marks)
            position = stop

    def _blanks(self, position: int) -> int:
        """The next byte that is no blank."""
        while position < len(self._text) and self._text[position] in _BLANKS:
            position += 1
        return position

    def _error(self, position: int, expected: str) -> DatasetError:
        found = repr(self._text[position : position + 20]) if position < len(self._text) else "the end of the file"
        return DatasetError(f"{self._path}: byte {position:,}: {found} found, {expected} expected. Correct the JSON.")


def _real_quotes(data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of quotes that no backslash makes part of a text."""
    quotes = np.flatnonzero(data == _QUOTE)
    after_backslash = quotes[(quotes > 0) & (data[quotes - 1] == _BACKSLASH)]
    if not len(after_backslash):
        return quotes
    others = np.flatnonzero(data != _BACKSLASH)
    before = np.searchsorted(others, after_backslash) - 1  # the last byte before the run of backslashes
    run_starts = np.where(before >= 0, others[before], -1)
    odd = (after_backslash - run_starts - 1) % 2 == 1
    return np.setdiff1d(quotes, after_backslash[odd], assume_unique=True)
