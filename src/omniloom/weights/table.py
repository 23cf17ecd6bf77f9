"""The table that says what another form calls each of our tensors, and what must happen to it; read both ways.

A family's table is a list of rows, written once per layer with ``{layer}`` in the names and repeated::

    table = Table(
        (
            Row("language_model.embed_tokens.weight", "model.embed_tokens.weight"),
            *repeated(
                (Row("language_model.layers.{layer}.mlp.up_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"),),
                layer=32,
            ),
        ),
        ignored=("model.layers.*.self_attn.rotary_emb.inv_freq",),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
    )

Every name of either side has one place: a row, the copies, or the ignored patterns. What has none is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from omniloom.errors import WeightsError
from omniloom.weights.changes import Change, Same

_SAME = Same()


@dataclass(frozen=True)
class Row:
    """One tensor of theirs and the tensors of ours that it is made of.

    Attributes:
        ours: our names, in the order in which the change takes them; a single name may be given as a string.
        theirs: their name.
        change: what makes theirs out of ours.
    """

    ours: tuple[str, ...] | str
    theirs: str
    change: Change = _SAME

    def __post_init__(self) -> None:
        if isinstance(self.ours, str):
            object.__setattr__(self, "ours", (self.ours,))

    @property
    def our_names(self) -> tuple[str, ...]:
        """Our names, always as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    def filled(self, **values: object) -> Row:
        """The row with ``{name}`` in its names replaced by values."""
        return Row(tuple(name.format(**values) for name in self.our_names), self.theirs.format(**values), self.change)


class Place(NamedTuple):
    """Where one of our tensors is found: its row, and which of the row's tensors it is."""

    row: Row
    part: int


def repeated(rows: Iterable[Row], **counts: int) -> tuple[Row, ...]:
    """Rows for each number of a range: ``repeated(rows, layer=32)`` fills ``{layer}`` with 0 to 31.

    Raises:
        ValueError: not exactly one range is given.
    """
    if len(counts) != 1:
        raise ValueError(f"repeated() takes one range by its name, not {list(counts)}")
    ((name, count),) = counts.items()
    rows = tuple(rows)
    return tuple(row.filled(**{name: number}) for number in range(count) for row in rows)


def with_prefix(rows: Iterable[Row], *, ours: str = "", theirs: str = "") -> tuple[Row, ...]:
    """The rows with something put before every name, so that a tower's table serves inside a larger model."""
    return tuple(Row(tuple(ours + name for name in row.our_names), theirs + row.theirs, row.change) for row in rows)


@dataclass(frozen=True)
class Table:
    """Rows, and what else may lie among their tensors.

    Attributes:
        rows: one for each tensor of theirs that holds weights of ours.
        ignored: patterns (``*`` for anything) of their names that hold no weights: buffers, TE's extra state.
        copies: their names that may be there as well and must then equal another of theirs bit by bit: a tied head.
        unplaced: our names for which their form has no tensor, such as CLIP's last norm in Megatron's towers.
    """

    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unplaced: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for side, names in (
            ("ours", [name for row in self.rows for name in row.our_names]),
            ("theirs", [row.theirs for row in self.rows]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise WeightsError(f"a table names {twice[0]!r} twice among {side}")

    @cached_property
    def by_ours(self) -> Mapping[str, Place]:
        """For each name of ours, where it is found."""
        return MappingProxyType(
            {name: Place(row, part) for row in self.rows for part, name in enumerate(row.our_names)}
        )

    @cached_property
    def by_theirs(self) -> Mapping[str, Row]:
        """For each name of theirs, its row."""
        return MappingProxyType({row.theirs: row for row in self.rows})

    def is_ignored(self, name: str) -> bool:
        """Whether a name of theirs holds no weights."""
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    def joined(self, *others: Table) -> Table:
        """One table out of several, for a model out of several parts."""
        tables = (self, *others)
        return Table(
            rows=tuple(row for table in tables for row in table.rows),
            ignored=tuple(pattern for table in tables for pattern in table.ignored),
            copies=MappingProxyType({name: of for table in tables for name, of in table.copies.items()}),
            unplaced=tuple(name for table in tables for name in table.unplaced),
        )

    def prefixed(self, *, ours: str = "", theirs: str = "") -> Table:
        """The table with something put before every name of either side."""
        return replace(
            self,
            rows=with_prefix(self.rows, ours=ours, theirs=theirs),
            ignored=tuple(theirs + pattern for pattern in self.ignored),
            copies=MappingProxyType({theirs + name: theirs + of for name, of in self.copies.items()}),
            unplaced=tuple(ours + name for name in self.unplaced),
        )

    def left_over(self, theirs: Iterable[str]) -> tuple[list[str], list[str]]:
        """Names without a place.

        Args:
            theirs: all names that their form holds.

        Returns:
            Names of theirs that no row takes, and names of theirs that rows need and that are not there.
        """
        there = set(theirs)
        known = self.by_theirs.keys() | self.copies.keys()
        unknown = sorted(name for name in there - known if not self.is_ignored(name))
        return unknown, sorted(self.by_theirs.keys() - there)
