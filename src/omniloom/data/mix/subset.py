"""Subsets: a range of a data set's rows, in rows or in shares, and how ranges of several levels go together.

The inner range comes first, and the outer one is a range of what is left of it. Borders are Energon's, to the
rounding of its floating point, so that a subset holds the same rows in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omniloom.data.mix.place import Place
from omniloom.errors import ConfigError

_EXPECTED = 'two numbers such as [100, 200] or [100, end], or two shares such as ["25%", "75%"]'


@dataclass(frozen=True)
class Subset:
    """A range of rows: first an absolute one, then a share of what that leaves.

    Attributes:
        share: (start, stop) from 0 to 1.
        rows: (start, stop) in rows before the share is taken; ``None`` as stop: the end; ``None``: all rows.
    """

    share: tuple[float, float] = (0.0, 1.0)
    rows: tuple[int, int | None] | None = None

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"[{self.rows[0]}:{'' if self.rows[1] is None else self.rows[1]}]"
        return (
            rows
            if rows and self.share == (0.0, 1.0)
            else f"{rows}[{100 * self.share[0]:.10g}%:{100 * self.share[1]:.10g}%]"
        )

    @classmethod
    def parse(cls, value: Any, *, place: Place) -> Subset:
        """Read a range: ``[100, 200]``, ``[100, "end"]``, ``["25%", "75%"]``, ``["25%", "end"]``.

        Raises:
            ConfigError: it is none of these, or ends before it starts.
        """
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
            raise ConfigError(f"{place}: range {value!r} found; expected {_EXPECTED}")
        start, stop = value
        if _is_whole(start) and (_is_whole(stop) or _is_end(stop)):
            stop_row = None if _is_end(stop) else stop
            if start < 0 or (stop_row is not None and stop_row < start):
                raise ConfigError(f"{place}: range {list(value)} found; expected 0 <= start <= end")
            return cls(rows=(start, stop_row))
        first, last = _share(start), 1.0 if _is_end(stop) else _share(stop)
        if first is None or last is None or not 0 <= first <= last <= 1:
            raise ConfigError(f"{place}: range {list(value)} found; expected {_EXPECTED}, from 0% to 100%, in order")
        return cls(share=(first, last))

    def within(self, outer: Subset | None, *, place: Place) -> Subset:
        """The range that is left when the outer one is taken of this one.

        Raises:
            ConfigError: the outer one counts rows, which only the innermost may.
        """
        if outer is None:
            return self
        if outer.rows is not None:
            raise ConfigError(
                f"{place}: a range in rows stands above another range. Only the range next to the data set may count "
                "rows; use shares such as 50% above it."
            )
        start, stop = self.share
        whole = stop - start
        return Subset((start + outer.share[0] * whole, start + outer.share[1] * whole), self.rows)

    def of(self, total_rows: int, *, where: str) -> tuple[int, int]:
        """First row and the row after the last one, of a data set with so many rows.

        Raises:
            ConfigError: the range goes beyond the rows.
        """
        start, stop = self.rows or (0, None)
        stop = total_rows if stop is None else stop
        if not start <= stop <= total_rows:
            raise ConfigError(f"{where}: rows [{start}, {stop}) asked for, but there are {total_rows}")
        left = stop - start
        return start + int(left * self.share[0]), start + int(left * self.share[1])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_end(value: Any) -> bool:
    return isinstance(value, str) and value.strip() == "end"


def _share(value: Any) -> float | None:
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    try:
        return float(value.strip().removesuffix("%")) / 100.0
    except ValueError:
        return None
