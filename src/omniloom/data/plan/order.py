"""The order of one leaf's rows in a lane: dealt whole each epoch, shuffled at two scales, in O(1) memory.

The rows of a leaf are one list across shard borders. An epoch cuts it into runs of ``run_rows``
neighbours, orders the runs by a keyed permutation, and deals the result to the lanes. A lane
takes its section in blocks of ``block_rows`` and shuffles the rows of a block by another keyed
permutation. Runs keep reads long; blocks are what a shuffle buffer would be, but of integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniloom.data.plan.counts import check_at_least
from omniloom.data.plan.lane import Deal
from omniloom.data.plan.permute import Int64, Permutation, derive_key, hash_positions, mix_key

DEFAULT_RUN_ROWS = 64
"""Neighbours that stay together where nothing else is asked for."""

RUNS_A_SECTION = 128
"""Runs that a lane's share of an epoch holds at least: in a small leaf, neighbours matter less than mixing."""

RUNS_MIXED = 16
"""Runs that a block holds at least: Energon reads from 16 slices at once (`parallel_shard_iters`)."""

CHUNK_ROWS = 256
"""Rows that are worked out at a time."""


@dataclass(frozen=True)
class Shuffle:
    """How strongly rows are mixed.

    Attributes:
        runs: shuffle runs of neighbours over the whole leaf, anew each epoch.
        run_rows: neighbours kept together in a run, at most.
        block_rows: rows of a lane that are shuffled among themselves; 1 keeps them in order.
        epochs_together: epochs that are shuffled as if they were one.
        with_replacement: draw runs at random instead of dealing each once.
    """

    runs: bool = False
    run_rows: int = DEFAULT_RUN_ROWS
    block_rows: int = 1
    epochs_together: int = 1
    with_replacement: bool = False

    @classmethod
    def from_energon(
        cls,
        *,
        shuffle_buffer_size: int | None,
        max_samples_per_sequence: int | None,
        parallel_shard_iters: int | None,
        shuffle_over_epochs_multiplier: int | None,
    ) -> Shuffle:
        """Energon's four settings as runs and blocks; never a weaker shuffle than they ask for.

        Raises:
            ConfigError: one of them cannot be.
        """
        check_at_least(0, "shuffle_buffer_size", shuffle_buffer_size)
        check_at_least(0, "max_samples_per_sequence", max_samples_per_sequence)
        check_at_least(0, "parallel_shard_iters", parallel_shard_iters)
        if shuffle_over_epochs_multiplier != -1:
            check_at_least(1, "shuffle_over_epochs_multiplier", shuffle_over_epochs_multiplier)
        if shuffle_over_epochs_multiplier is None:
            return cls(block_rows=max(1, shuffle_buffer_size or 1))
        parallel = RUNS_MIXED if parallel_shard_iters is None else parallel_shard_iters
        run_rows = max(1, min(DEFAULT_RUN_ROWS, max_samples_per_sequence or DEFAULT_RUN_ROWS))
        mixed = parallel * run_rows if parallel > 1 else 1
        buffered = shuffle_buffer_size or 1
        # A buffer of n lets a row go n or more rows astray, a block of n fewer: twice as many keep neighbours as
        # rarely together. Integers are cheap.
        return cls(
            runs=True,
            run_rows=run_rows,
            block_rows=mixed if buffered <= 1 else 2 * buffered + mixed,
            epochs_together=max(1, shuffle_over_epochs_multiplier),
            with_replacement=shuffle_over_epochs_multiplier == -1,
        )


class LeafOrder:
    """Which row of a leaf a lane draws next. Everything follows from the arguments; there is no state.

    Args:
        name: the leaf's stable name in the mix; seeds follow it, not its position.
        rows: rows of the leaf, at least 1.
        lanes: lanes of the run.
        seed: seed of the run.
        shuffle: how strongly rows are mixed.
    """

    def __init__(self, name: str, *, rows: int, lanes: int, seed: int, shuffle: Shuffle) -> None:
        self.name = name
        self.rows = rows
        self.shuffle = shuffle
        self._key = derive_key("order", seed, name)
        self._dealt_rows = rows * shuffle.epochs_together
        self.deal = Deal(self._dealt_rows, lanes, self._key % lanes)
        self._run_rows = max(1, min(shuffle.run_rows, rows // (lanes * RUNS_A_SECTION)))

    def chunk(self, lane: int, drawn: int) -> tuple[Int64, Int64]:
        """The rows that follow after ``drawn`` rows, a chunk of at least one and at most `CHUNK_ROWS`.

        Returns:
            epochs and rows, int64 arrays of one length. A chunk never crosses a block or an epoch.
        """
        epoch, offset = self.deal.locate(lane, drawn)
        start, stop = self.deal.section(lane, epoch)
        block, within = divmod(offset, self.shuffle.block_rows)
        block_start = start + block * self.shuffle.block_rows
        block_size = min(self.shuffle.block_rows, stop - block_start)
        positions = np.arange(within, min(within + CHUNK_ROWS, block_size))
        if block_size == 1 < stop - start:  # rows in order: the chunk spans blocks of one row
            positions = np.arange(min(CHUNK_ROWS, stop - start - offset))
        else:
            key = mix_key(mix_key(mix_key(self._key, 1 + epoch), lane), block)
            positions = Permutation(block_size, key)(positions)
        dealt = self._rows_at(epoch, block_start + positions)
        epochs: Int64
        rows: Int64
        epochs, rows = np.divmod(dealt, self.rows)
        return epochs + epoch * self.shuffle.epochs_together, rows

    def _rows_at(self, epoch: int, positions: Int64) -> Int64:
        if not self.shuffle.runs:
            return positions
        key = mix_key(self._key, -1 - epoch)
        if self.shuffle.with_replacement:
            slots, within = np.divmod(positions, self._run_rows)
            starts = hash_positions(slots.astype(np.uint64), key) % np.uint64(self._dealt_rows)
            drawn: Int64 = (starts.astype(np.int64) + within) % self._dealt_rows
            return drawn
        return self._rows_of_runs(Permutation(-(-self._dealt_rows // self._run_rows), key), positions)

    def _rows_of_runs(self, runs: Permutation, positions: Int64) -> Int64:
        """Rows at positions of the runs laid end to end. The last run may be short, wherever it comes."""
        missing = -self._dealt_rows % self._run_rows
        if missing:
            short_slot = int(runs.inverse(np.array([runs.size - 1]))[0])
            after_short = positions >= (short_slot + 1) * self._run_rows - missing
            positions = positions + np.where(after_short, missing, 0)
        slots, within = np.divmod(positions, self._run_rows)
        rows: Int64 = runs(slots) * self._run_rows + within
        return rows
