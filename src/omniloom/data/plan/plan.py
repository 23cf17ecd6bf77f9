"""The plan: which sample comes next. It handles integers and never opens a file.

`Plan` is a frozen description; `Plan.open` gives the stream of one lane. The state of a lane is how many
rows each leaf had given when the running block of draws began, and how far it is into that block.
Everything else is worked out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np

from omniloom.data.plan.blend import Blend
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import LeafOrder, Shuffle
from omniloom.data.plan.permute import Int64
from omniloom.data.sample import SampleKey
from omniloom.errors import ConfigError

State = dict[str, Any]


@dataclass(frozen=True)
class Leaf:
    """A data set as the plan sees it.

    Attributes:
        name: stable name in the mix; seeds and saved cursors go by it.
        rows: how many rows it has.
        weight: its weight in the blend; only ratios matter.
        passes: how often it is gone through before it ends; ``None`` for ever.
    """

    name: str
    rows: int
    weight: float = 1.0
    passes: int | None = None


@dataclass(frozen=True)
class Plan:
    """A blend of leaves, dealt to lanes and shuffled.

    Attributes:
        leaves: the leaves, in the order of the mix. Leaves without rows are left out of the draw.
        shuffle: how strongly rows are mixed.
        seed: seed of the run.
    """

    leaves: tuple[Leaf, ...]
    shuffle: Shuffle = field(default_factory=Shuffle)
    seed: int = 0

    def __post_init__(self) -> None:
        names = [leaf.name for leaf in self.leaves]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ConfigError(f"leaves need names of their own; used twice: {', '.join(twice)}")
        for leaf in self.leaves:
            if leaf.weight < 0 or not np.isfinite(leaf.weight):
                raise ConfigError(f"leaf {leaf.name!r}: weight {leaf.weight} found, a number >= 0 expected")

    @property
    def drawn_from(self) -> list[int]:
        """Positions of the leaves that can give rows at all."""
        return [i for i, leaf in enumerate(self.leaves) if leaf.rows > 0 and leaf.weight > 0 and leaf.passes != 0]

    @property
    def endless(self) -> bool:
        """Whether some leaf never ends."""
        return any(self.leaves[i].passes is None for i in self.drawn_from)

    def open(self, lane: Lane) -> PlanStream:
        """The stream of sample keys of one lane."""
        return PlanStream(self, lane)

    def order(self, index: int, lanes: int) -> LeafOrder:
        """The order of one leaf. A leaf that ends is dealt pass by pass, each row once a pass."""
        leaf, shuffle = self.leaves[index], self.shuffle
        if leaf.passes is not None:
            shuffle = replace(shuffle, epochs_together=1, with_replacement=False)
        return LeafOrder(leaf.name, rows=leaf.rows, lanes=lanes, seed=self.seed, shuffle=shuffle)

    def lane_rows(self, lane: Lane) -> int | None:
        """Rows that a lane draws in one lap; ``None`` when it has no end."""
        if self.endless:
            return None
        start = self.start_cursors(lane)
        return sum((self.rows_until_end(i, lane) or 0) for i in self.drawn_from) - sum(start.values())

    def rows_until_end(self, index: int, lane: Lane) -> int | None:
        """Rows that one leaf has given to a lane when its lap ends; ``None`` for ever."""
        passes = self.leaves[index].passes
        return None if passes is None else self.order(index, lane.count).deal.dealt(lane.index, passes * (lane.lap + 1))

    def start_cursors(self, lane: Lane) -> dict[str, int]:
        """Rows that the leaves that end had given to a lane in the laps before this one."""
        if not lane.lap:
            return {}
        laps_before = replace(lane, lap=lane.lap - 1)
        return {
            self.leaves[i].name: rows for i in self.drawn_from if (rows := self.rows_until_end(i, laps_before) or 0)
        }


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
            cursors = self.cursors()
            self._go_to(cursors=cursors, base=cursors if self._leaf_ended else self._base, index=0)
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
        block that are done; ``base``, where a leaf has ended: the cursors when the last one did.
        """
        state: State = {"index": self._index, "cursors": self._cursors}
        return state | {"base": self._base} if self._base else state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._go_to(cursors=state["cursors"], base=state.get("base", {}), index=state["index"])

    def cursors(self) -> dict[str, int]:
        """Rows drawn from each leaf so far, by leaf name; leaves that gave none are left out."""
        drawn = dict(self._cursors)
        keys = self._draw() if self._keys is None else self._keys
        for key in keys[: self._index]:
            name = self._plan.leaves[key.dataset].name
            drawn[name] = drawn.get(name, 0) + 1
        return drawn

    def _go_to(self, *, cursors: Mapping[str, int], base: Mapping[str, int], index: int) -> None:
        """Go to a place in the block that starts where the leaves had given ``cursors``; nothing is drawn yet."""
        self._cursors, self._base, self._index = cursors, base, index
        self._keys: list[SampleKey] | None = None

    def _draw(self) -> list[SampleKey]:
        """Work out the keys of the running block; none where all leaves have ended."""
        for i, leaf in self._leaves.items():
            drawn = self._cursors.get(self._plan.leaves[i].name, 0)
            if drawn != leaf.drawn:
                leaf.seek(drawn)
        self._blend_leaves([i for i, leaf in self._leaves.items() if leaf.left(1)])
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
        names = [self._plan.leaves[i].name for i in self._blended]
        serial = sum(stream.drawn for stream in streams)
        since_base = [stream.drawn - self._base.get(name, 0) for stream, name in zip(streams, names, strict=True)]
        counts = [
            stream.left(count) for stream, count in zip(streams, self._blend.block_counts(since_base), strict=True)
        ]
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
