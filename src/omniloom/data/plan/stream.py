"""The stream of one lane's sample keys: blocks of draws, worked out when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from omniloom.data.plan.blend import Blend
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import LeafOrder
from omniloom.data.plan.permute import Int64
from omniloom.data.sample import SampleKey

if TYPE_CHECKING:
    from omniloom.data.plan.plan import Plan

State = dict[str, Any]


class LeafStream:
    """The rows that one leaf gives to one lane, buffered a chunk at a time."""

    def __init__(self, order: LeafOrder, lane: int, rows_until_end: int | None) -> None:
        self._order = order
        self._lane = lane
        self.rows_until_end = rows_until_end
        self.drawn = 0
        self._epochs: Int64 = np.zeros(0, dtype=np.int64)
        self._rows: Int64 = self._epochs

    def seek(self, drawn: int) -> None:
        """Go to the row that comes after ``drawn`` rows."""
        self.drawn = drawn
        self._epochs = self._rows = self._rows[:0]

    def left(self, wanted: int) -> int:
        """How many of ``wanted`` rows there are before the end."""
        return wanted if self.rows_until_end is None else min(wanted, self.rows_until_end - self.drawn)

    def take(self, count: int) -> tuple[Int64, Int64]:
        """Epochs and rows of the next ``count`` draws."""
        if count > len(self._rows):
            self._fill(count)
        taken = self._epochs[:count], self._rows[:count]
        self._epochs, self._rows = self._epochs[count:], self._rows[count:]
        self.drawn += count
        return taken

    def _fill(self, count: int) -> None:
        epochs, rows, held = [self._epochs], [self._rows], len(self._rows)
        while held < count:
            more_epochs, more_rows = self._order.chunk(self._lane, self.drawn + held)
            epochs.append(more_epochs)
            rows.append(more_rows)
            held += len(more_rows)
        self._epochs, self._rows = np.concatenate(epochs), np.concatenate(rows)


class PlanStream(Iterator[SampleKey]):
    """The sample keys of one lane."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self._plan = plan
        self._lane = lane
        self._lap = lane.lap
        self._leaves = {
            i: LeafStream(plan.order(i, lane.count), lane.index, plan.rows_until_end(i, lane)) for i in plan.drawn_from
        }
        self._blended: list[int] = []
        start = plan.start_cursors(lane)
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
        state: State = {"index": self._index, "cursors": self._cursors}
        if self._base:
            state["base"] = self._base
        if self._block_lap:
            state["lap"] = self._block_lap
        return state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._begin_lap(self._lane.lap + state.get("lap", 0))
        self._go_to(cursors=state["cursors"], base=state.get("base", {}), index=state["index"])

    def cursors(self) -> dict[str, int]:
        """Rows drawn from each leaf so far, by leaf name; leaves that gave none are left out."""
        drawn = dict(self._cursors)
        keys = self._draw() if self._keys is None else self._keys
        for key in keys[: self._index]:
            name = self._plan.leaves[key.dataset].name
            drawn[name] = drawn.get(name, 0) + 1
        return drawn

    def carried(self) -> State:
        """What of the state, cursors aside, a stream under other weights goes on with."""
        return {"lap": self._lap - self._lane.lap} if self._lap > self._lane.lap else {}

    def _cursors_after_block(self) -> dict[str, int]:
        """As `cursors`, where all of the running block is drawn."""
        drawn = dict(self._cursors)
        drawn.update((self._plan.leaves[i].name, rows) for i in self._blended if (rows := self._leaves[i].drawn))
        return drawn

    def _next_block(self) -> None:
        cursors = self._cursors_after_block()
        self._go_to(cursors=cursors, base=cursors if self._leaf_ended else self._base, index=0)

    def _go_to(self, *, cursors: Mapping[str, int], base: Mapping[str, int], index: int) -> None:
        """Go to a place in the block that starts where the leaves had given ``cursors``; nothing is drawn yet."""
        self._cursors, self._base, self._index = cursors, base, index
        self._block_lap = self._lap - self._lane.lap
        self._keys: list[SampleKey] | None = None

    def _begin_lap(self, lap: int) -> None:
        """Let the leaves go on to their ends of a lap; the first one of a stream is its lane's."""
        if lap == self._lap:
            return
        self._lap = lap
        for i, leaf in self._leaves.items():
            leaf.rows_until_end = self._plan.rows_until_end(i, replace(self._lane, lap=lap))

    def _alive(self) -> list[int]:
        """Positions of the leaves that have rows left. Where none has, a plan that repeats begins its next lap."""
        alive = [i for i, leaf in self._leaves.items() if leaf.left(1)]
        while not alive and self._plan.repeats and self._leaves:
            self._begin_lap(self._lap + 1)
            alive = [i for i, leaf in self._leaves.items() if leaf.left(1)]
        return alive

    def _draw(self) -> list[SampleKey]:
        """Work out the keys of the running block; none where all leaves have ended."""
        for i, leaf in self._leaves.items():
            drawn = self._cursors.get(self._plan.leaves[i].name, 0)
            if drawn != leaf.drawn:
                leaf.seek(drawn)
        self._blend_leaves(self._alive())
        keys = self._draw_block() if self._blended else []
        self._leaf_ended = any(not self._leaves[i].left(1) for i in self._blended)
        self._keys = keys
        return keys

    def _blend_leaves(self, alive: list[int]) -> None:
        if alive and alive != self._blended:
            weights = [self._plan.leaves[i].weight for i in alive]
            self._blend = Blend(weights, lane=self._lane.index, seed=self._plan.seed)
        self._blended = alive

    def _draw_block(self) -> list[SampleKey]:
        streams = [self._leaves[i] for i in self._blended]
        return self._keys_of(
            [stream.left(count) for stream, count in zip(streams, self._block_counts(streams), strict=True)]
        )

    def _block_counts(self, streams: Sequence[LeafStream]) -> list[int]:
        """How many draws of the block come from each leaf that is blended, were they all long enough."""
        names = [self._plan.leaves[i].name for i in self._blended]
        since_base = [stream.drawn - self._base.get(name, 0) for stream, name in zip(streams, names, strict=True)]
        return self._blend.block_counts(since_base)

    def _keys_of(self, counts: Sequence[int]) -> list[SampleKey]:
        """The keys of a block with so many draws of each leaf that is blended."""
        streams = [self._leaves[i] for i in self._blended]
        serial = sum(stream.drawn for stream in streams)
        drawn = [stream.take(count) for stream, count in zip(streams, counts, strict=True) if count]
        if len(streams) == 1:
            epochs, rows = drawn[0]
            datasets: Iterator[int] = repeat(self._blended[0], len(rows))
        else:
            order = self._blend.order(counts, serial)
            place = np.argsort(order, kind="stable")  # the draws of each leaf keep their own order
            epochs, rows = np.empty_like(place), np.empty_like(place)
            epochs[place] = np.concatenate([pair[0] for pair in drawn])
            rows[place] = np.concatenate([pair[1] for pair in drawn])
            datasets = iter(np.asarray(self._blended)[order].tolist())
        return list(map(SampleKey, datasets, epochs.tolist(), rows.tolist()))
