"""Pack: samples are collected in a window, chosen into packs, and each pack is made when its turn comes.

A window's state is where it began, which samples waited from the one before (by key), and how many
packs of it are used up; restoring makes the window again. No sample is ever part of a state.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, ClassVar

from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.calls import whole
from omniloom.data.pipeline.decode_ahead import decode
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultLine, Origin, tolerance_of
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.restore import key_of, with_restore_key
from omniloom.data.pipeline.selection import Selection
from omniloom.data.pipeline.stream import Item, RemakingStream, State, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, PackKey, SampleKey
from omniloom.errors import FatalSampleError, SampleError, SkipSample

logger = logging.getLogger("omniloom")

SampleItem = tuple[SampleKey, Any]

MOST_WAITING = 1_024
"""A window grows to so many samples at most (or to `Pack.window_samples`) to find a pack in them."""


@dataclass(frozen=True)
class Pack:
    """Packs of samples.

    Attributes:
        source: the stage that makes the samples.
        window_samples: samples among which packs are chosen.
        select: gets the samples of a window, gives a `Selection`, or just the lists of samples that belong together.
            Where it takes ``last``, it is told whether nothing more will come to pack the samples with.
        pack: makes one value of the samples of a pack; a generator function may give several.
        postencode: applied to each sample of a pack when the pack's turn comes, or ``None``.
        settings: what else the choice of packs hangs on, in words; where a saved state has others, its window is packed
            anew.
    """

    source: Make
    window_samples: int
    select: Callable[..., Selection | Sequence[Sequence[Any]]]
    pack: Callable[[list[Any]], Any]
    postencode: Callable[[Any], Any] | None = None
    settings: str = ""
    makes: ClassVar[tuple[type, ...]] = (SampleKey, PackKey)

    def open(self, lane: Lane, desk: Desk) -> PackStream:
        """The packs of one lane."""
        return PackStream(self, lane, desk)

    def make(self, key: SampleKey | PackKey) -> Any:
        """The pack of some samples, or a sample as it goes into its pack, made anew.

        Raises:
            IndexError: the packer gives fewer packs.
            Exception: what user code raises.
        """
        if isinstance(key, SampleKey):
            return self.postencoded(key, self.source.make(key))
        samples = [self.postencoded(one, self.source.make(one)) for one in key.samples]
        for part, made in enumerate(self.packed(key.samples[0], samples)):
            if part == key.part:
                return with_restore_key(made, key)
        raise IndexError(f"{key.samples[0]} gives no pack {key.part}")

    @property
    def gives_many(self) -> bool:
        """Whether the samples of one pack may give several."""
        return inspect.isgeneratorfunction(self.pack)

    def postencoded(self, key: SampleKey, sample: Any) -> Any:
        """The sample as it goes into its pack."""
        if self.postencode is None:
            return sample
        self.source.seeds.plant(key, seeding.POSTENCODE)
        return whole(self.postencode(sample), call="postencode_sample")

    def packed(self, key: SampleKey, samples: list[Any]) -> Iterator[Any]:
        """What the packer makes of the samples of a pack, the first of which has this key."""
        self.source.seeds.plant(key, seeding.PACK)
        made = self.pack(samples)
        if self.gives_many:
            yield from self.source.seeds.parts(key, seeding.PACK, made)
        else:
            yield whole(made, call="pack_selected_samples")

    def __str__(self) -> str:
        return describe(self)


class PackStream(Iterator[Item]):
    """The packs of one lane.

    While the packs of a window are given out, samples of the next one are read, as many as each pack used up: so no
    pack has to wait for a whole window.
    """

    def __init__(self, pack: Pack, lane: Lane, desk: Desk) -> None:
        self._pack = pack
        self._desk = desk
        self._seeds = pack.source.seeds
        self._samples: RemakingStream = pack.source.open(lane, desk)
        self._faults = FaultLine(desk.policy, _tolerances(pack))
        self._says_last = "last" in inspect.signature(pack.select).parameters
        self._over = ""  # what has come to its end: "unit" or "all"
        self._without_packs = 0  # windows in a row
        self._begin(self._samples.state_dict(), [], [])

    def _begin(self, place: State, waiting: list[SampleItem], fresh: list[SampleItem]) -> None:
        """Begin a window, whose own samples start at a place of the source; some of them were read already."""
        self._place: State = {**place, "again": [list(key) for key, _ in waiting]} if waiting else place
        self._window = [*waiting, *fresh]
        self._fresh: list[SampleItem] = []  # read for the window after this one
        self._waiting: list[SampleItem] = []
        self._groups: list[list[SampleItem]] = []
        self._filled = False
        self._group = -1  # the one that is being made
        self._made: Iterator[Item] = iter(())
        self._taken = 0  # of what the group gives

    def state_dict(self) -> State:
        """Where the window began, the keys that waited for it, packs used up, and parts taken of the running one."""
        if not self._filled:
            return self._place
        if self._pack.gives_many:
            return {**self._place, "packs": self._group, "pack_part": self._taken}
        return {**self._place, "packs": self._group + 1}

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place: the samples of the window are made again, its used packs are not."""
        self._samples.load_state_dict(state)
        self._over = state.get("pack_over", "")
        leaves = len(self._pack.source.leaves)
        place = _with_end(self._samples.state_dict(), self._over)
        keys = [key_of(plain, leaves=leaves) for plain in state.get("again", ())]
        waiting: list[Any] = [item for key in keys if (item := self._samples.remake(key)) is not None]
        self._begin(place, waiting, [])
        if "packs" in state:
            self._fill()
            self._use_up(state["packs"])
            if state.get("pack_part") and self._group + 1 < len(self._groups):
                self._begin_group()
                for _ in islice(self._made, state["pack_part"]):
                    self._taken += 1

    def remake(self, key: Any) -> Item | None:
        """The pack of a key that came before; ``None``, counted, where it cannot be made now."""
        items = [self._samples.remake(one) for one in key.samples]
        group: list[Any] = [item for item in items if item is not None]
        return next((item for item in self._packs_of(group) if item[0] == key), None)

    def __next__(self) -> Item:
        while True:
            item = next(self._made, None)
            if item is not None:
                self._taken += 1
                return item
            if not self._filled:
                self._fill()
            if self._group + 1 < len(self._groups):
                self._begin_group()
            elif self._waiting or self._fresh or not self._over:
                self._begin(self._next_place, self._waiting, self._fresh)
            else:
                over, self._over = self._over, ""
                self._begin(self._samples.state_dict(), [], [])
                if over == "unit":
                    return UNIT_END, None
                raise StopIteration

    def _begin_group(self) -> None:
        """Begin to make the packs of the next group."""
        self._group, self._taken = self._group + 1, 0
        group, self._groups[self._group] = self._groups[self._group], []
        self._made = self._packs_of(group)
        self._decode_ahead(self._group + 1)
        self._read_for_next(len(group))

    def _decode_ahead(self, group: int) -> None:
        """Let threads decode what the samples of a pack that comes soon have undecoded."""
        threads = self._desk.threads
        if threads is not None and self._pack.source.ahead and group < len(self._groups):
            for _, sample in self._groups[group]:
                threads.submit(decode, sample)

    def _use_up(self, packs: int) -> None:
        """Go to a pack of the window, as if those before had been given out."""
        for group in self._groups[:packs]:
            self._read_for_next(len(group))
        self._group = packs - 1

    def _read(self, samples: list[SampleItem], count: int) -> None:
        """Read on until there are so many samples, or the source is at an end."""
        while len(samples) < count and not self._over:
            try:
                key, sample = next(self._samples)
            except StopIteration:
                self._over = "all"
                return
            if key is UNIT_END:
                self._over = "unit"
                return
            samples.append((key, sample))  # type: ignore[arg-type]

    def _read_for_next(self, used: int) -> None:
        most = max(0, self._pack.window_samples - len(self._waiting))
        self._read(self._fresh, min(most, len(self._fresh) + used))

    def _fill(self) -> None:
        """Collect a window and choose its packs. A window in which nothing can be chosen yet grows."""
        size = self._pack.window_samples
        limit = max(size, MOST_WAITING)
        self._read(self._window, size)
        while self._window:
            last = bool(self._over) or len(self._window) >= limit
            selection = self._select(self._window, last=last)
            if last or selection is None or selection.moves(self._window):
                self._accept(selection)
                break
            held = len(self._window)
            self._read(self._window, min(limit, held + max(size, held // 4)))
            if not self._over:
                _tell_of_growth(size)
        self._window, self._filled = [], True
        self._decode_ahead(0)
        self._next_place = _with_end(self._samples.state_dict(), self._over)

    def _select(self, window: list[SampleItem], *, last: bool) -> Selection | None:
        """What the selector says of a window. A selector that fails loses the window, counted: ``None``."""
        samples = [sample for _, sample in window]
        try:
            self._seeds.plant(window[0][0], seeding.SELECT)
            chosen = self._pack.select(samples, last=last) if self._says_last else self._pack.select(samples)
        except Exception as error:
            self._fail(window, error, "select_samples_to_pack")
            return None
        return chosen if isinstance(chosen, Selection) else Selection(chosen)

    def _accept(self, selection: Selection | None) -> None:
        """Take a selection: its packs, those that wait, and the counts of those that are left out."""
        window = self._window
        if selection is None:
            return
        places = _Places(window)
        self._groups = [[places.take(one) for one in group] for group in selection.packs if group]
        waiting = [places.take(one) for one in selection.again]
        if not selection.moves(window):  # nothing more can be read: do without the oldest half, at the end without all
            lost = len(waiting) if self._over else (len(waiting) + 1) // 2
            waiting, dropped = waiting[lost:], waiting[:lost]
            self._leave_out(dropped, "not-selected")
        self._waiting = waiting
        for sample, error in selection.failed:
            self._fail([places.take(sample)], error, "select_samples_to_pack")
        for reason, samples in selection.left_out.items():
            self._leave_out([places.take(sample) for sample in samples], reason)
        self._leave_out(places.untaken(), "not-selected")
        self._without_packs = 0 if self._groups else self._without_packs + 1
        if 0 < self._faults.in_a_row("select_samples_to_pack") <= self._without_packs:
            raise FatalSampleError(
                f"select_samples_to_pack chose nothing in {self._without_packs} windows in a row; the last one had "
                f"{len(window)} samples.\n  Enlarge packing_buffer_size, or look at why it leaves all of them out.",
                reason="not-selected",
            )

    def _leave_out(self, items: list[SampleItem], reason: str) -> None:
        for key, _ in items:
            self._desk.tally.leaf(key.dataset).take_back(reason)

    def _packs_of(self, group: list[SampleItem]) -> Iterator[Item]:
        ready: list[SampleItem] = []
        for key, sample in group:
            try:
                ready.append((key, self._postencoded(key, sample)))
            except SkipSample as skip:
                self._leave_out([(key, sample)], str(skip) or "SkipSample")
            except Exception as error:
                self._fail([(key, sample)], error, "postencode_sample")
        if not ready:
            return
        keys = tuple(key for key, _ in ready)
        part = 0
        try:
            self._take_late(keys[0])
            for made in self._pack.packed(keys[0], [sample for _, sample in ready]):
                self._faults.success()
                pack_key = PackKey(keys, part)
                yield pack_key, with_restore_key(made, pack_key)
                part += 1
        except SkipSample as skip:
            self._leave_out([] if part else ready, str(skip) or "SkipSample")
        except Exception as error:
            self._fail(ready, error, "pack_selected_samples", gave_some=part > 0)

    def _postencoded(self, key: SampleKey, sample: Any) -> Any:
        if self._pack.postencode is None:
            return sample
        self._take_late(key)
        return self._pack.postencoded(key, sample)

    def _take_late(self, key: SampleKey) -> None:
        """Say that a sample of a window is worked on; its number is another than when it was made for the window.

        Raises:
            SampleError: that killed the worker twice.
        """
        late = key._replace(part=-1 - key.part)
        self._desk.take_in_hand(*late)
        if late in self._desk.poisoned:
            raise SampleError(f"row {key.row} killed its worker twice and is left alone", reason="killed-worker")

    def _fail(self, items: list[SampleItem], error: Exception, call: str, *, gave_some: bool = False) -> None:
        key = items[0][0]
        leaf = self._pack.source.leaves[key.dataset]
        reason = self._faults.failure(error, key=key, call=call, origin=Origin(leaf.name), sample=items[0][1])
        self._leave_out([] if gave_some else items, reason)


class _Places:
    """Finds the keys of the samples that a selector names: by identity, and of like ones in their order."""

    def __init__(self, window: list[SampleItem]) -> None:
        self._window = window
        self._taken = [False] * len(window)
        self._by_id: dict[int, list[int]] = {}
        for place, (_, sample) in enumerate(window):
            self._by_id.setdefault(id(sample), []).append(place)

    def take(self, sample: Any) -> SampleItem:
        """The sample with its key; one that is not of the window goes by the key of the first that is."""
        places = self._by_id.get(id(sample))
        if places is None:
            return self._window[0][0], sample
        place = places.pop(0) if len(places) > 1 else places[0]
        self._taken[place] = True
        return self._window[place]

    def untaken(self) -> list[SampleItem]:
        """The samples that were not named."""
        return [item for item, taken in zip(self._window, self._taken, strict=True) if not taken]


@cache
def _tell_of_growth(window_samples: int) -> None:
    """Log, once in a process, that windows of this size do not do."""
    logger.warning(
        "packing windows of %d samples a lane are too small to choose a pack from; they grow to what it takes, at most "
        "%d. With a larger packing_buffer_size, or fewer lanes, they need not.", window_samples, MOST_WAITING,
    )  # fmt: skip


def _with_end(place: State, over: str) -> State:
    """A place of the source, where it stands behind the end of a unit whose samples have not all been packed."""
    return {**place, "pack_over": over} if over == "unit" else place


def _tolerances(pack: Pack) -> dict[str, int | None]:
    return {
        "select_samples_to_pack": tolerance_of(pack.select),
        "postencode_sample": tolerance_of(pack.postencode),
        "pack_selected_samples": tolerance_of(pack.pack),
    }
