"""Blending by low discrepancy: which leaf each draw of a lane comes from.

Draws come in blocks. At the end of every block the count of each leaf is its share rounded down or
rounded up, so within one of it, however rare the leaf and however long the run; within a block the
order is shuffled. Which leaves are rounded up is settled by earliest deadline first: leaf ``i``
must have had its ``c``-th draw when its share reaches ``c``. That the deadlines can always be kept
is the theorem of Tijdeman ("The chairman assignment problem", Discrete Mathematics 32, 1980).
Arithmetic is in integers, so nothing drifts.

A lane's clock does not start at nought but somewhere in the period of the rarest leaf, elsewhere for
each lane, so that a rare leaf does not come on all lanes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniloom.data.plan.permute import Int64, derive_key, hash_positions, mix_key

BLOCK_DRAWS = 256
"""Draws in a block."""

_GOLDEN = 0.6180339887498949
_SHARE_SCALE = 1 << 48


class Blend:
    """How the draws of one lane are divided among leaves, while the set of leaves stays the same.

    Args:
        weights: weights of the leaves, positive; only their ratios matter.
        lane: index of the lane.
        seed: seed of the run.
    """

    def __init__(self, weights: Sequence[float], *, lane: int, seed: int) -> None:
        total = float(sum(weights))
        self._shares = np.array([max(1, round(weight / total * _SHARE_SCALE)) for weight in weights], dtype=np.int64)
        self._whole = int(self._shares.sum())
        self._order_key = mix_key(derive_key("blend", seed), lane)
        period = self._whole / int(self._shares.min())
        self._start_draws = int(lane * _GOLDEN % 1.0 * period) if len(weights) > 1 else 0
        self._draws, self._floors, self._rests = self._share_of(self._start_draws)
        self._start_counts = self._round(self._start_draws, np.zeros(len(weights), dtype=np.int64))

    def block_counts(self, drawn: Sequence[int] | Int64) -> Int64:
        """How many draws of the next block come from each leaf.

        Args:
            drawn: draws of each leaf in the blocks before, since the set of leaves is what it is.
        """
        if len(drawn) == 1:
            return np.array([BLOCK_DRAWS])
        counts = self._start_counts + np.asarray(drawn, dtype=np.int64)
        return self._round(int(counts.sum()) + BLOCK_DRAWS, counts) - counts

    def start_owed(self) -> list[float]:
        """What each leaf is owed, in samples, by where the lane's clock starts; the sum is 0."""
        return [
            self._start_draws * share / self._whole - count
            for share, count in zip(self._shares.tolist(), self._start_counts.tolist(), strict=True)
        ]

    def order(self, counts: Int64, serial: int) -> Int64:
        """Leaf of each draw of a block with these counts, shuffled by a serial number of the block."""
        leaves = np.repeat(np.arange(len(counts)), counts)
        key = mix_key(self._order_key, serial)
        return leaves[np.argsort(hash_positions(np.arange(len(leaves), dtype=np.uint64), key), kind="stable")]

    def _round(self, draws: int, before: Int64) -> Int64:
        """Counts of all leaves after ``draws`` draws, none below what it was before."""
        if 0 < draws - self._draws <= BLOCK_DRAWS:  # below 2 ** 58: a step never leaves int64
            more, self._rests = np.divmod(self._rests + (draws - self._draws) * self._shares, self._whole)
            self._floors, self._draws = self._floors + more, draws
        elif draws != self._draws:
            self._draws, self._floors, self._rests = self._share_of(draws)
        counts: Int64 = np.maximum(before, self._floors)
        missing = draws - int(counts.sum())
        if missing > 0:
            waiting = np.flatnonzero((before <= self._floors) & (self._rests > 0))
            deadlines = -((self._rests[waiting] - self._whole) // self._shares[waiting])
            counts[waiting[np.argsort(deadlines, kind="stable")[:missing]]] += 1
        return counts

    def _share_of(self, draws: int) -> tuple[int, Int64, Int64]:
        """The draws, and the share of each leaf in them: whole draws, and what is left over in parts of `_whole`."""
        shares = [divmod(draws * share, self._whole) for share in self._shares.tolist()]  # too long for int64
        floors, rests = zip(*shares, strict=True)
        return draws, np.array(floors, dtype=np.int64), np.array(rests, dtype=np.int64)
