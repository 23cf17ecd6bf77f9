"""`Rows`: what every kind of source is to the loader, a list of samples that can be read in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from omniloom.data.sample import RawSample
from omniloom.errors import ConfigError


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

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard and byte range of a row; never raises."""
        return self.rows.origin(row + self.start)

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row of all."""
        return self.rows.parts_of_first_row()
