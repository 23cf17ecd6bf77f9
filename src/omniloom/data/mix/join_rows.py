"""`JoinRows`: rows of several sources side by side, as the index of a join says."""

from __future__ import annotations

from typing import Any

import numpy as np

from omniloom.data.plan.permute import Int64
from omniloom.data.sample import RawSample
from omniloom.data.shards.rows import Rows


class JoinedRaw(RawSample):
    """What was read for a joined row; its parts are those of all sources, the place of each before its name.

    Attributes:
        columns: row and parts in each source; ``None`` where it has no partner.
    """

    columns: tuple[tuple[int, RawSample] | None, ...]

    def __new__(cls, columns: tuple[tuple[int, RawSample] | None, ...]) -> JoinedRaw:
        """Of what was read in each source, the primary first."""
        primary = next(column for column in columns if column is not None)[1]
        parts = {
            f"{place}/{name}": data
            for place, column in enumerate(columns)
            if column is not None
            for name, data in column[1].parts.items()
        }
        made = super().__new__(cls, primary.name, primary.shard, parts)
        made.columns = columns
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        """For pickling."""
        return (self.columns,)


class JoinRows:
    """Rows of several sources side by side.

    It is sent to a worker as its sources' places and that of its index.

    Args:
        columns: the sources, the primary first.
        path: the index, an ``.npy`` file of int64 (rows, columns), -1 where there is no partner.
    """

    def __init__(self, columns: tuple[Rows, ...], path: str) -> None:
        self.columns = columns
        self.path = path
        self._lines: Int64 | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lines": None}

    def __repr__(self) -> str:
        return f"JoinRows({', '.join(map(repr, self.columns))})"

    @property
    def lines(self) -> Int64:
        """The index, mapped from its file."""
        if self._lines is None:
            self._lines = np.load(self.path, mmap_mode="r")
        return self._lines

    def __len__(self) -> int:
        return int(self.lines.shape[0])

    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row, of all sources."""
        return JoinedRaw(
            tuple(
                None if one < 0 else (one, source.read(one))
                for source, one in zip(self.columns, self.lines[row].tolist(), strict=True)
            )
        )

    @property
    def is_far(self) -> bool:
        """Whether any source lies in a store."""
        return any(getattr(source, "is_far", False) for source in self.columns)

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers without a request."""
        return all(source.knows_places(one) for source, one in self._far_columns(row))

    def opened_by(self, row: int) -> tuple[Any, ...]:
        """What has to be open before the places of a row are known."""
        return tuple((id(source), source.opened_by(one)) for source, one in self._far_columns(row))

    def places(self, row: int) -> list[tuple[str, int, int]]:
        """The ranges that reading a row asks for in the sources that lie in a store."""
        return [place for source, one in self._far_columns(row) for place in source.places(one)]

    def make_ready(self, row: int) -> None:
        """Open and check what a row lies in."""
        for source, one in self._far_columns(row):
            if not getattr(source, "brings", False):
                source.make_ready(one)

    @property
    def brings(self) -> bool:
        """Whether any source has its rows read as a whole before they are due."""
        return any(getattr(source, "brings", False) for source in self.columns)

    @property
    def brought_at_a_time(self) -> int:
        """How many rows are brought at a time: as few as any source takes."""
        return min(int(getattr(one, "brought_at_a_time", 1)) for one in self.columns if getattr(one, "brings", False))

    def bring(self, row: int) -> None:
        """Fetch what a row needs of such sources."""
        for source, one in self._far_columns(row):
            if getattr(source, "brings", False):
                source.bring(one)

    def _far_columns(self, row: int) -> list[tuple[Any, int]]:
        pairs = zip(self.columns, self.lines[row].tolist(), strict=True)
        return [(source, one) for source, one in pairs if one >= 0 and getattr(source, "is_far", False)]

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard and byte range of the primary's row; never raises."""
        return self.columns[0].origin(int(self.lines[row, 0]))

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row of each source."""
        return frozenset().union(*(source.parts_of_first_row() for source in self.columns))
