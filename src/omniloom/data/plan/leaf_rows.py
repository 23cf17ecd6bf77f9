"""The rows that all leaves of a plan give to one lane, worked out a chunk at a time and held in one table.

A block of draws takes a few rows of each of a hundred leaves; one table serves them all at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniloom.data.plan.blend import BLOCK_DRAWS
from omniloom.data.plan.order import CHUNK_ROWS, LeafOrder
from omniloom.data.plan.permute import Int64

_WIDTH = BLOCK_DRAWS + CHUNK_ROWS
"""Rows held of a leaf at most: fewer than a block asks for are left when a chunk comes."""


class LeafRows:
    """The rows that come next of each leaf, as ``epoch * rows + row``.

    Attributes:
        drawn: int64, rows that each leaf has given so far.

    Args:
        orders: the order of each leaf; ``None`` for one that is never drawn from.
        lane: index of the lane.
    """

    def __init__(self, orders: Sequence[LeafOrder | None], lane: int) -> None:
        count = len(orders)
        self.drawn: Int64 = np.zeros(count, dtype=np.int64)
        self._orders = orders
        self._lane = lane
        self._rows = np.array([order.rows if order is not None else 1 for order in orders], dtype=np.int64)
        self._table = np.empty((count, _WIDTH), dtype=np.int64)
        self._corners = np.arange(count) * _WIDTH
        self._starts = np.zeros(count, dtype=np.int64)  # of what is held
        self._held = np.zeros(count, dtype=np.int64)

    def seek(self, drawn: Int64) -> None:
        """Go to the rows that come after ``drawn`` rows of each leaf."""
        elsewhere = drawn != self.drawn
        if elsewhere.any():
            self._held[elsewhere] = 0
            self.drawn = drawn.copy()

    def take(self, counts: Int64) -> tuple[Int64, Int64, Int64]:
        """The next rows, so many of each leaf (at most `BLOCK_DRAWS`).

        Returns:
            leaves, epochs and rows, leaf by leaf.
        """
        for leaf in np.flatnonzero(counts > self._held).tolist():
            self._fill(leaf, int(counts[leaf]))
        leaves = np.repeat(np.arange(len(counts)), counts)
        before = np.cumsum(counts) - counts
        places = np.arange(len(leaves)) + (self._corners + self._starts - before)[leaves]
        epochs, rows = np.divmod(self._table.ravel()[places], self._rows[leaves])
        self._starts += counts
        self._held -= counts
        self.drawn = self.drawn + counts
        return leaves, epochs, rows

    def _fill(self, leaf: int, count: int) -> None:
        order = self._orders[leaf]
        if order is None:
            raise ValueError(f"leaf {leaf} is not drawn from")
        table, start, held = self._table[leaf], int(self._starts[leaf]), int(self._held[leaf])
        table[:held] = table[start : start + held].copy()
        drawn = int(self.drawn[leaf])
        while held < count:
            epochs, rows = order.chunk(self._lane, drawn + held)
            table[held : held + len(rows)] = epochs * order.rows + rows
            held += len(rows)
        self._starts[leaf], self._held[leaf] = 0, held
