"""Rows of a store that are gone through one after the other: fetched in long ranges, or brought, before their turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omniloom.data.pipeline.read_ahead import AheadBudget, Place
from omniloom.errors import OmniloomError
from omniloom.storage.spool import SPOOL

BATCH_BYTES = 16 << 20
"""Bytes of the rows whose ranges are asked for together, while the batch before is used."""

BATCH_ROWS = 256

_Batch = list[tuple[int, Sequence[Place]]]


def rows_fetched_ahead(leaf: Any, rows: range) -> Iterator[int]:
    """Rows of a leaf in order, as given; what reading them asks a store for is on its way or here when they come.

    Args:
        leaf: rows and what reads them (see `Leaf`); where they lie on this machine nothing is fetched.
        rows: rows to go through.
    """
    far = getattr(leaf, "far_rows", None)
    if far is None:
        yield from rows
    elif getattr(far, "brings", False):
        budget = AheadBudget(BATCH_BYTES)
        for row in rows[:BATCH_ROWS]:
            budget.bring(far, row, 0)
        for number, row in enumerate(rows):
            yield row
            for coming in rows[number + BATCH_ROWS : number + BATCH_ROWS + 1]:
                budget.bring(far, coming, 0)
    else:
        yield from _by_ranges(far, rows)


def _by_ranges(far: Any, rows: range) -> Iterator[int]:
    wanted: list[Place] = []
    try:
        before: _Batch = []
        for batch in _batches(far, rows):
            places = [place for _, some in batch for place in some]
            wanted += places
            SPOOL.want(places)
            for place in places:
                SPOOL.ask_for(place)
            yield from _in_turn(before, wanted)
            before = batch
        yield from _in_turn(before, wanted)
    finally:
        SPOOL.let_go(wanted)


def _in_turn(batch: _Batch, wanted: list[Place]) -> Iterator[int]:
    for row, places in batch:
        yield row
        SPOOL.let_go(places)
        del wanted[: len(places)]


def _batches(far: Any, rows: range) -> Iterator[_Batch]:
    batch: _Batch = []
    size_bytes = 0
    for row in rows:
        try:
            places = far.places(row)
        except OmniloomError:
            places = ()  # what is wrong shows when the row is read
        more = sum(stop - start for _, start, stop in places)
        if batch and (size_bytes + more > BATCH_BYTES or len(batch) >= BATCH_ROWS):
            yield batch
            batch, size_bytes = [], 0
        batch.append((row, places if more <= BATCH_BYTES else ()))
        size_bytes += more
    if batch:
        yield batch
