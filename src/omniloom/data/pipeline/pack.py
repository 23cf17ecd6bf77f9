"""Pack: samples are collected in a window, chosen into packs, and each pack is made when its turn comes.

A window's state is where it began and how many packs of it are used up; restoring makes the window
again. No sample is ever part of a state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultLine, Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.stream import Item, State, Stream, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, SampleKey
from omniloom.errors import SkipSample

Group = list[Item]


@dataclass(frozen=True)
class Pack:
    """Packs of samples.

    Attributes:
        source: the stage that makes the samples.
        window_samples: samples among which packs are chosen.
        select: gets the samples of a window, gives lists of those that belong together. What it leaves out is
            counted as ``not-selected``.
        pack: makes one value of the samples of a pack; a generator function may give several.
        postencode: applied to each sample of a pack when the pack's turn comes, or ``None``.
    """

    source: Make
    window_samples: int
    select: Callable[[list[Any]], list[list[Any]]]
    pack: Callable[[list[Any]], Any]
    postencode: Callable[[Any], Any] | None = None

    def open(self, lane: Lane, desk: Desk) -> PackStream:
        """The packs of one lane."""
        return PackStream(self, lane, desk)

    def __str__(self) -> str:
        return describe(self)


class PackStream(Iterator[Item]):
    """The packs of one lane."""

    def __init__(self, pack: Pack, lane: Lane, desk: Desk) -> None:
        self._pack = pack
        self._desk = desk
        self._seeds = pack.source.seeds
        self._samples: Stream = pack.source.open(lane, desk)
        self._faults = FaultLine(desk.policy)
        self._gives_many = inspect.isgeneratorfunction(pack.pack)
        self._begin(self._samples.state_dict())

    def _begin(self, state: State) -> None:
        self._window_state = state
        self._groups: list[Group] = []
        self._filled = False
        self._ends_unit = False
        self._group = -1  # the one that is being made
        self._made: Iterator[Item] = iter(())
        self._taken = 0  # of what the group gives

    def state_dict(self) -> State:
        """Where the window began (the source's state then), packs used up, and parts taken of the running one."""
        if not self._filled:
            return self._window_state
        if self._gives_many:
            return {**self._window_state, "packs": self._group, "pack_part": self._taken}
        return {**self._window_state, "packs": self._group + 1}

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place: the samples of the window are made again, its used packs are not."""
        self._samples.load_state_dict(state)
        self._begin(self._samples.state_dict())
        if "packs" in state:
            self._fill()
            self._group = state["packs"] - 1
            for _ in range(state.get("pack_part", 0)):
                next(self, None)

    def __next__(self) -> Item:
        while True:
            item = next(self._made, None)
            if item is not None:
                self._taken += 1
                return item
            if not self._filled:
                self._fill()
            self._group, self._taken = self._group + 1, 0
            if self._group < len(self._groups):
                self._made = self._packs_of(self._groups[self._group])
                continue
            ends_unit = self._ends_unit
            self._begin(self._samples.state_dict())
            if ends_unit:
                return UNIT_END, None

    def _fill(self) -> None:
        """Collect a window and choose its packs. Raises StopIteration at the end of the source."""
        window: list[Item] = []
        while len(window) < self._pack.window_samples:
            try:
                item = next(self._samples)
            except StopIteration:
                if not window:
                    raise
                break
            if item[0] is UNIT_END:
                self._ends_unit = True
                break
            window.append(item)
        self._groups = self._choose(window) if window else []
        self._filled = True

    def _choose(self, window: list[Item]) -> list[Group]:
        """The packs of a window. A selector that fails loses the window, counted."""
        samples = [sample for _, sample in window]
        try:
            self._seeds.plant(window[0][0], seeding.SELECT)
            chosen = self._pack.select(samples)
        except Exception as error:
            self._fail(window, error, "select_samples_to_pack")
            return []
        keys = {id(sample): key for key, sample in window}
        groups = [[(keys.get(id(sample), window[0][0]), sample) for sample in group] for group in chosen]
        selected = {id(sample) for group in chosen for sample in group}
        for key, sample in window:
            if id(sample) not in selected and len(selected) < len(window):
                self._desk.tally.leaf(key.dataset).take_back("not-selected")
        return groups

    def _packs_of(self, group: Group) -> Iterator[Item]:
        call = "postencode_sample"
        ready: Group = []
        for key, sample in group:
            try:
                ready.append((key, self._postencoded(key, sample)))
            except SkipSample as skip:
                self._desk.tally.leaf(key.dataset).take_back(str(skip) or "SkipSample")
            except Exception as error:
                self._fail([(key, sample)], error, call)
        if not ready:
            return
        try:
            self._desk.take_in_hand(*ready[0][0])
            self._seeds.plant(ready[0][0], seeding.PACK)
            made = self._pack.pack([sample for _, sample in ready])
            if self._gives_many:
                yield from ((ready[0][0], value) for value in made)
            else:
                yield ready[0][0], made
            self._faults.success()
        except SkipSample as skip:
            for key, _ in ready:
                self._desk.tally.leaf(key.dataset).take_back(str(skip) or "SkipSample")
        except Exception as error:
            self._fail(ready, error, "pack_selected_samples")

    def _postencoded(self, key: SampleKey, sample: Any) -> Any:
        if self._pack.postencode is None:
            return sample
        self._desk.take_in_hand(*key)
        self._seeds.plant(key, seeding.POSTENCODE)
        return self._pack.postencode(sample)

    def _fail(self, items: Group, error: Exception, call: str) -> None:
        key = items[0][0]
        leaf = self._pack.source.leaves[key.dataset]
        reason = self._faults.failure(error, key=key, call=call, origin=Origin(leaf.name), sample=items[0][1])
        for key, _ in items:
            self._desk.tally.leaf(key.dataset).take_back(reason)
