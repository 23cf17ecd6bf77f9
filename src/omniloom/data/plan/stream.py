"""The stream of one lane's sample keys: blocks of draws, worked out when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from omniloom.data.plan.blend import Blend
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.leaf_rows import LeafRows
from omniloom.data.plan.permute import Int64
from omniloom.data.sample import SampleKey

if TYPE_CHECKING:
    from omniloom.data.plan.plan import Plan

State = dict[str, Any]

NEVER = np.iinfo(np.int64).max
"""Rows until the end of a leaf that has none."""

_as_key = partial(tuple.__new__, SampleKey)


class PlanStream(Iterator[SampleKey]):
    """The sample keys of one lane."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self._plan = plan
        self._lane = lane
        self._lap = lane.lap
        self._names = [leaf.name for leaf in plan.leaves]
        self._drawn_from = np.array(plan.drawn_from, dtype=np.int64)
        orders = dict.fromkeys(range(len(plan.leaves))) | {i: plan.order(i, lane.count) for i in plan.drawn_from}
        self._leaves = LeafRows(list(orders.values()), lane.index)
        self._ends = self._ends_of(self._lap)
        self._blended = self._drawn_from[:0]
        start = self._by_leaf(plan.start_cursors(lane))
        self._go_to(cursors=start, base=start, index=0)

    def __next__(self) -> SampleKey:
        keys = self._keys
        if keys is None:
            keys = self._draw()
        while self._index >= len(keys):
            if not keys:
                raise StopIteration
            self._next_block()
            keys = self._draw()
        key = keys[self._index]
        self._index += 1
        return key

    def peek(self, count: int) -> list[SampleKey]:
        """Keys that come next, without drawing them: as many of ``count`` as the running block holds."""
        keys = self._draw() if self._keys is None else self._keys
        return keys[self._index : self._index + count]

    def state_dict(self) -> State:
        """Where the lane is. Its mappings are shared by all states of one block: do not change them.

        ``cursors``: rows that each leaf had given before the running block; ``index``: draws of the
        block that are done; ``base``, where a leaf has ended: the cursors when the last one did; ``lap``, where
        the mix has begun anew: how often it had before the block.
        """
        if not self._block_state:
            self._block_state["cursors"] = self._by_name(self._cursors)
            if self._base.any():
                self._block_state["base"] = self._by_name(self._base)
            if self._block_lap:
                self._block_state["lap"] = self._block_lap
        return {"index": self._index, **self._block_state}

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._begin_lap(self._lane.lap + state.get("lap", 0))
        cursors, base = self._by_leaf(state["cursors"]), self._by_leaf(state.get("base", {}))
        self._go_to(cursors=cursors, base=base, index=state["index"])

    def cursors(self) -> dict[str, int]:
        """Rows drawn from each leaf so far, by leaf name; leaves that gave none are left out."""
        return self._by_name(self._cursors + self._drawn_of_block())

    def carried(self) -> State:
        """What of the state, cursors aside, a stream under other weights goes on with."""
        return {"lap": self._lap - self._lane.lap} if self._lap > self._lane.lap else {}

    def _drawn_of_block(self) -> Int64:
        """Draws of the running block that are done, by leaf."""
        keys = self._draw() if self._keys is None else self._keys
        return np.bincount([key.dataset for key in keys[: self._index]], minlength=len(self._names))

    def _by_leaf(self, mapping: Mapping[str, int]) -> Int64:
        return np.array([mapping.get(name, 0) for name in self._names], dtype=np.int64)

    def _by_name(self, values: Int64) -> dict[str, int]:
        return {name: value for name, value in zip(self._names, values.tolist(), strict=True) if value}

    def _next_block(self) -> None:
        cursors = self._leaves.drawn
        self._go_to(cursors=cursors, base=cursors if self._leaf_ended else self._base, index=0)

    def _go_to(self, *, cursors: Int64, base: Int64, index: int) -> None:
        """Go to a place in the block that starts where the leaves had given ``cursors``; nothing is drawn yet."""
        self._cursors, self._base, self._index = cursors, base, index
        self._block_lap = self._lap - self._lane.lap
        self._block_state: State = {}
        self._keys: list[SampleKey] | None = None

    def _begin_lap(self, lap: int) -> None:
        """Let the leaves go on to their ends of a lap; the first one of a stream is its lane's."""
        if lap != self._lap:
            self._lap, self._ends = lap, self._ends_of(lap)

    def _ends_of(self, lap: int) -> Int64:
        """Rows that each leaf has given when a lap ends."""
        ends = np.zeros(len(self._names), dtype=np.int64)
        for i in self._plan.drawn_from:
            end = self._plan.rows_until_end(i, replace(self._lane, lap=lap))
            ends[i] = NEVER if end is None else end
        return ends

    def _alive(self) -> Int64:
        """Positions of the leaves that have rows left. Where none has, a plan that repeats begins its next lap."""
        alive = np.flatnonzero(self._ends > self._leaves.drawn)
        while not len(alive) and self._plan.repeats and len(self._drawn_from):
            self._begin_lap(self._lap + 1)
            alive = np.flatnonzero(self._ends > self._leaves.drawn)
        return alive

    def _draw(self) -> list[SampleKey]:
        """Work out the keys of the running block; none where all leaves have ended."""
        self._leaves.seek(self._cursors)
        self._blend_leaves(self._alive())
        keys = self._draw_block() if len(self._blended) else []
        blended = self._blended
        self._leaf_ended = bool((self._ends[blended] <= self._leaves.drawn[blended]).any())
        self._keys = keys
        return keys

    def _blend_leaves(self, alive: Int64) -> None:
        if len(alive) and not np.array_equal(alive, self._blended):
            weights = [self._plan.leaves[i].weight for i in alive.tolist()]
            self._blend = Blend(weights, lane=self._lane.index, seed=self._plan.seed)
        self._blended = alive

    def _draw_block(self) -> list[SampleKey]:
        return self._keys_of(self._up_to_ends(self._block_counts()))

    def _up_to_ends(self, counts: Int64) -> Int64:
        """Counts by leaf that is blended, as far as there are rows."""
        blended = self._blended
        left: Int64 = self._ends[blended] - self._leaves.drawn[blended]
        return np.minimum(counts, left)

    def _block_counts(self) -> Int64:
        """How many draws of the block come from each leaf that is blended, were they all long enough."""
        return self._blend.block_counts((self._cursors - self._base)[self._blended])

    def _keys_of(self, counts: Int64) -> list[SampleKey]:
        """The keys of a block with so many draws of each leaf that is blended."""
        blended = self._blended
        serial = int(self._leaves.drawn[blended].sum())
        all_counts = np.zeros(len(self._names), dtype=np.int64)
        all_counts[blended] = counts
        leaves, epochs, rows = self._leaves.take(all_counts)
        if len(blended) > 1:
            order = self._blend.order(counts, serial)
            place = np.argsort(order, kind="stable")  # the draws of each leaf keep their own order
            back = np.empty_like(place)
            back[place] = np.arange(len(place))
            leaves, epochs, rows = leaves[back], epochs[back], rows[back]
        return list(map(_as_key, zip(leaves.tolist(), epochs.tolist(), rows.tolist(), repeat(0), strict=False)))
