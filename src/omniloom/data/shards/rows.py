"""`Rows`: what every kind of source is to the loader, a list of samples that can be read in any order."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from omniloom.data.sample import RawSample
from omniloom.errors import ConfigError, SkipSample


class Rows(Protocol):
    """The samples of a source, by row.

    Reading a row costs no more than its own bytes and a bounded rest, whatever the order, and memory does not grow
    with the number of rows read. Rows are pickled as the place they are read from and opened there again.
    """

    def __len__(self) -> int:
        """Number of rows; excluded ones count."""

    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row.

        Raises:
            SkipSample: the row is left out on purpose, such as one that a split excludes.
            SampleError: this row cannot be read.
            ShardError: its shard is not what its index says.
        """

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard of a row, and its first byte and the byte after its last, where it has a range; never raises."""

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row, media named for their kind; nothing where it cannot be read."""


@dataclass(frozen=True)
class SubRows:
    """A range of other rows.

    Attributes:
        rows: the rows it is of.
        start: first row.
        stop: row after the last one.

    Raises:
        ConfigError: the range does not lie within the rows.
    """

    rows: Rows
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= len(self.rows):
            raise ConfigError(
                f"rows {self.start:,} to {self.stop:,} of {self.rows!r} asked for; it has {len(self.rows):,} rows"
            )

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row. Raises as the rows' own `read`."""
        return self.rows.read(row + self.start)

    @property
    def is_far(self) -> bool:
        """Whether they lie in a store."""
        return bool(getattr(self.rows, "is_far", False))

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers without a request; asked only of rows in a store."""
        return bool(self.rows.knows_places(row + self.start))  # type: ignore[attr-defined]

    def opened_by(self, row: int) -> Hashable:
        """What has to be open before the places of a row are known; asked only of rows in a store."""
        opened: Hashable = self.rows.opened_by(row + self.start)  # type: ignore[attr-defined]
        return opened

    def places(self, row: int) -> Sequence[tuple[str, int, int]]:
        """The ranges that reading a row asks for; asked only of rows in a store."""
        found: Sequence[tuple[str, int, int]] = self.rows.places(row + self.start)  # type: ignore[attr-defined]
        return found

    @property
    def brings(self) -> bool:
        """Whether `bring` does anything; asked only of rows in a store."""
        return bool(getattr(self.rows, "brings", False))

    @property
    def brought_at_a_time(self) -> int:
        """How many rows, or blocks of them, are brought at a time; asked only of rows that bring."""
        return int(self.rows.brought_at_a_time)  # type: ignore[attr-defined]

    def bring(self, row: int) -> None:
        """Fetch what a row needs before it is read; asked only of rows in a store that bring."""
        self.rows.bring(row + self.start)  # type: ignore[attr-defined]

    def make_ready(self, row: int) -> None:
        """Open and check what a row lies in; asked only of rows in a store."""
        self.rows.make_ready(row + self.start)  # type: ignore[attr-defined]

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard and byte range of a row; never raises."""
        return self.rows.origin(row + self.start)

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row of all."""
        return self.rows.parts_of_first_row()


def first_row(rows: Rows) -> int:
    """Which row of the whole source the first one of a range, or of a range of a range, is."""
    return rows.start + first_row(rows.rows) if isinstance(rows, SubRows) else 0


class RowFile(NamedTuple):
    """A file that holds rows.

    Attributes:
        name: its name, relative to the data set.
        path: where it is.
        rows: how many it holds, excluded ones included.
        excluded: rows that are not to be yielded, by their number in the file, as text.
    """

    name: str
    path: str
    rows: int
    excluded: frozenset[str] = frozenset()


class FileRows(ABC):
    """Rows of several files, laid end to end; the common part of sources whose files are not tar archives.

    Args:
        files: the files, in the order of the rows.
    """

    @abstractmethod
    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row."""

    @abstractmethod
    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """File and byte range of a row; never raises."""

    @abstractmethod
    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row."""

    def __init__(self, files: Sequence[RowFile]) -> None:
        self.files = tuple(files)
        self._ends = list(accumulate(file.rows for file in self.files))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"{type(self).__name__}({self.files[0].path!r}{more})"

    def find(self, row: int) -> tuple[int, int]:
        """Number of the file of a row, and the row in it.

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"{self!r}: there is no row {row:,}; it has {len(self):,} rows")
        number = bisect_right(self._ends, row)
        return number, row - self._ends[number] + self.files[number].rows

    def find_included(self, row: int) -> tuple[int, int]:
        """As `find`. Raises SkipSample for rows that a split excludes."""
        number, file_row = self.find(row)
        excluded = self.files[number].excluded
        if excluded and str(file_row) in excluded:
            raise SkipSample("excluded")
        return number, file_row

    def key_of(self, number: int, file_row: int) -> str:
        """Key of a row: its number, and the file's name without suffix before it where there are several files."""
        if len(self.files) == 1:
            return str(file_row)
        return f"{PurePosixPath(self.files[number].name).with_suffix('')}/{file_row}"

    def row_of(self, key: str) -> int:
        """The row of a key that `key_of` gives. Raises KeyError."""
        folder, _, text = key.rpartition("/")
        number = self._numbers.get("" if len(self.files) == 1 else folder, -1) if text.isdecimal() else -1
        if number < 0 or int(text) >= self.files[number].rows or (folder and len(self.files) == 1):
            raise KeyError(key)
        return self._ends[number] - self.files[number].rows + int(text)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        if len(self.files) == 1:
            return {"": 0}
        return {str(PurePosixPath(file.name).with_suffix("")): number for number, file in enumerate(self.files)}
