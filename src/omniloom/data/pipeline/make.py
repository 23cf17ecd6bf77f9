"""Make: from a sample's key to the encoded sample. A pure function of the key; it never decides what comes next."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, ClassVar, Protocol

from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.calls import whole
from omniloom.data.pipeline.decode_ahead import decode
from omniloom.data.pipeline.desk import Desk, LeafTally
from omniloom.data.pipeline.faults import FaultLine, Origin, tolerance_of
from omniloom.data.pipeline.read_ahead import ReadAhead
from omniloom.data.pipeline.restore import with_restore_key
from omniloom.data.pipeline.seeding import KeySeeds
from omniloom.data.pipeline.stream import Item, KeyStage, KeyStream, State, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, RawSample, SampleKey
from omniloom.errors import SampleError, SkipSample


class LeafWork(Protocol):
    """What a leaf can do: read a row, and make a sample of what was read."""

    name: str

    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row."""

    def cook(self, raw: RawSample, key: SampleKey) -> Any:
        """The sample that the raw parts stand for."""

    def origin(self, row: int) -> Origin:
        """Where a row lies, for messages; never raises."""


@dataclass(frozen=True)
class Make:
    """Reads, cooks and encodes the samples that a plan names.

    Attributes:
        source: the plan.
        leaves: the work of each leaf, by position in the mix.
        encode: the user's function on one sample, or ``None``. It may be a generator function and give several
            samples, or raise `SkipSample`.
        seed: seed of the run.
        ahead: rows of a lane that are read and decoded ahead, where the desk has threads.
        cooks: by position of the leaf, the user's function on its crude samples, or ``None``; empty: there is none.
        encode_call: what messages call ``encode``.
        tokens: length of an encoded sample, where the plan wants to be told; else ``None``.
        decode_ahead: what is read ahead is decoded there, too, although nobody has looked at it yet.
    """

    source: KeyStage
    leaves: tuple[LeafWork, ...]
    encode: Callable[[Any], Any] | None = None
    seed: int = 0
    ahead: int = 0
    cooks: tuple[Callable[[Any], Any] | None, ...] = ()
    encode_call: str = "encode_sample"
    tokens: Callable[[Any], int] | None = None
    decode_ahead: bool = False
    seeds: KeySeeds = field(init=False, repr=False, compare=False)
    makes: ClassVar[type] = SampleKey

    def __post_init__(self) -> None:
        seeds = KeySeeds(tuple(leaf.name for leaf in self.leaves), self.seed)
        object.__setattr__(self, "seeds", seeds)

    def open(self, lane: Lane, desk: Desk) -> MakeStream:
        """The samples of one lane."""
        return ManyStream(self, lane, desk) if self.gives_many else MakeStream(self, lane, desk)

    def make(self, key: SampleKey) -> Any:
        """The sample of a key, made anew; with ``key.part`` the one of those that a generator gives.

        Raises:
            SkipSample: user code leaves it out.
            IndexError: the generator gives fewer samples.
        """
        leaf = self.leaves[key.dataset]
        sample = self.cooked(leaf.cook(leaf.read(key.row), key._replace(part=0)), key)
        for part, made in enumerate(self.encoded(sample, key)):
            if part == key.part:
                return made
        raise IndexError(f"row {key.row} of {leaf.name!r} gives no part {key.part}")

    @property
    def reads_far(self) -> bool:
        """Whether rows are fetched ahead from stores, so that a lane that moves leaves bytes behind."""
        return any(getattr(leaf, "far_rows", None) is not None for leaf in self.leaves)

    @property
    def gives_many(self) -> bool:
        """Whether one row may give several samples."""
        return inspect.isgeneratorfunction(self.encode)

    def encoded(self, sample: Any, key: SampleKey) -> Iterator[Any]:
        """What the encoder makes of a sample: random numbers are seeded before each result."""
        if self.encode is None:
            yield sample
            return
        self.seeds.plant(key._replace(part=0), seeding.ENCODE)
        made = self.encode(sample)
        if not self.gives_many:
            yield made
            return
        for part in count():
            self.seeds.plant(key._replace(part=part), seeding.ENCODE)
            result = next(made, _END)
            if result is _END:
                return
            yield with_restore_key(result, key._replace(part=part))

    def cooked(self, sample: Any, key: SampleKey) -> Any:
        """What the user's cook makes of a crude sample."""
        cook = self.cooks[key.dataset] if self.cooks else None
        if cook is None:
            return sample
        self.seeds.plant(key._replace(part=0), seeding.COOK)
        return cook(sample)

    def __str__(self) -> str:
        return describe(self)


class MakeStream(Iterator[Item]):
    """The encoded samples of one lane, one of each row."""

    def __init__(self, make: Make, lane: Lane, desk: Desk) -> None:
        self._make = make
        self._desk = desk
        self._keys: KeyStream = make.source.open(lane)
        self._faults = FaultLine(desk.policy, _tolerances(make))
        self._tell = _teller(make, self._keys)
        self._has_work = bool(make.cooks) or make.encode is not None or self._tell is not None
        self._call = "loading"  # what is being done, for messages
        self._ahead: dict[SampleKey, Future[tuple[int, Any]]] | None = {} if desk.threads and make.ahead else None
        self._far = ReadAhead.of(make, lane, self._keys, desk)

    def state_dict(self) -> State:
        """The plan's state."""
        return self._keys.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place. Nothing is read."""
        self._keys.load_state_dict(state)
        if self._ahead is not None:
            self._ahead.clear()
        if self._far is not None:
            self._far.restart()

    def __next__(self) -> Item:
        leaves, desk = self._make.leaves, self._desk
        while True:
            key = next(self._keys)
            if key is UNIT_END:
                return UNIT_END, None
            desk.take_in_hand(*key)
            tally = desk.tally.leaf(key[0])
            if self._far is not None:
                self._far.due(key)
            sample = None
            try:
                if self._ahead is None and not desk.poisoned:  # the usual case, with a call less
                    read_bytes, sample = _read_and_cook(leaves[key[0]], key)
                    tally.read += 1
                    tally.read_bytes += read_bytes
                else:
                    sample = self._load(key, tally)
                if self._has_work:
                    sample = self._user_work(key, sample)
            except SkipSample as skip:
                self._call = "loading"
                tally.skip(str(skip) or "SkipSample")
                continue
            except Exception as error:
                call, self._call = self._call, "loading"
                origin = leaves[key[0]].origin(key[2])
                tally.skip(self._faults.failure(error, key=key, call=call, origin=origin, sample=sample))
                continue
            self._faults.success()
            tally.yielded += 1
            return key, sample

    def _user_work(self, key: SampleKey, sample: Any) -> Any:
        """What user code makes of a sample."""
        make = self._make
        if make.cooks:
            self._call = "cook_crude_sample"
            sample = make.cooked(sample, key)
        if make.encode is not None:
            self._call = make.encode_call
            make.seeds.plant(key, seeding.ENCODE)
            sample = whole(make.encode(sample), call=make.encode_call)
        if self._tell is not None:
            self._call = "token_count"
            self._tell(key, sample)
        self._call = "loading"
        return sample

    def remake(self, key: SampleKey) -> Item | None:
        """The sample of a key that came before; ``None``, counted, where it cannot be made now."""
        keys, tell, far = self._keys, self._tell, self._far
        self._keys, self._tell, self._far = _OneKey(key), None, None
        try:
            return next(self, None)
        finally:
            self._keys, self._tell, self._far = keys, tell, far

    def _load(self, key: SampleKey, tally: LeafTally) -> Any:
        """The cooked sample of a key, read just now or ahead of time."""
        if key in self._desk.poisoned:
            raise SampleError(f"row {key.row} killed its worker twice and is left alone", reason="killed-worker")
        leaf = self._make.leaves[key[0]]
        read_bytes, sample = _read_and_cook(leaf, key) if self._ahead is None else self._load_ahead(leaf, key)
        tally.read += 1
        tally.read_bytes += read_bytes
        return sample

    def _load_ahead(self, leaf: LeafWork, key: SampleKey) -> tuple[int, Any]:
        ahead, threads = self._ahead, self._desk.threads
        if ahead is None or threads is None:
            return _read_and_cook(leaf, key)
        due = ahead.pop(key, None)
        for later in self._keys.peek(self._make.ahead):
            if later not in ahead and later is not UNIT_END:
                work = _read_cook_decode if self._make.decode_ahead else _read_and_cook
                ahead[later] = threads.submit(work, self._make.leaves[later.dataset], later)
        return _read_and_cook(leaf, key) if due is None else due.result()


class ManyStream(MakeStream):
    """The encoded samples of one lane, where a row may give several, or none."""

    def __init__(self, make: Make, lane: Lane, desk: Desk) -> None:
        super().__init__(make, lane, desk)
        self._row: Iterator[Item] = iter(())
        self._row_state: State = {}
        self._part = 0

    def state_dict(self) -> State:
        """The plan's state before the running row, and how many of its samples were taken."""
        if self._part:
            return {**self._row_state, "part": self._part}
        return super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place. Within a row, its samples are made again, as many as it gives now."""
        super().load_state_dict(state)
        self._row, self._part = iter(()), 0
        if state.get("part"):
            self._begin_row()
            for _ in islice(self._row, state["part"]):
                self._part += 1

    def __next__(self) -> Item:
        while True:
            item = next(self._row, None)
            if item is not None:
                self._part += 1
                return item
            if self._begin_row() is UNIT_END:
                return UNIT_END, None

    def _begin_row(self) -> SampleKey:
        """Draw the next key, and begin to make the samples of its row."""
        self._row_state, self._part = self._keys.state_dict(), 0
        key = next(self._keys)
        if key is not UNIT_END:
            if self._far is not None:
                self._far.due(key)
            self._row = self._samples_of(key)
        return key

    def remake(self, key: SampleKey) -> Item | None:
        """The sample of a key that came before; ``None``, counted, where it cannot be made now."""
        tell, self._tell = self._tell, None
        try:
            return next((item for item in self._samples_of(key._replace(part=0)) if item[0] == key), None)
        finally:
            self._tell = tell

    def _samples_of(self, key: SampleKey) -> Iterator[Item]:
        """The samples of a row. The generator's own draws go on from sample to sample."""
        leaf, desk = self._make.leaves[key.dataset], self._desk
        tally = desk.tally.leaf(key.dataset)
        desk.take_in_hand(*key)
        call = "loading"
        try:
            sample = self._load(key, tally)
            call = "cook_crude_sample"
            sample = self._make.cooked(sample, key)
            call = self._make.encode_call
            for part, made in enumerate(self._make.encoded(sample, key)):
                if self._tell is not None:
                    self._tell(key, made)
                self._faults.success()
                desk.tally.leaf(key.dataset).yielded += 1
                yield key._replace(part=part), made
        except SkipSample as skip:
            tally.skip(str(skip) or "SkipSample")
        except Exception as error:
            tally.skip(self._faults.failure(error, key=key, call=call, origin=leaf.origin(key.row)))


_END: Any = object()


class _OneKey(Iterator[SampleKey]):
    """A plan of one key."""

    def __init__(self, key: SampleKey) -> None:
        self._left = [key]

    def __next__(self) -> SampleKey:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def peek(self, count: int) -> list[SampleKey]:
        """Nothing comes next."""
        return []

    def state_dict(self) -> State:
        """It has no place."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """It has no place."""


def make_of(stage: Any) -> Make:
    """The stage of a pipeline that makes samples of keys."""
    while not isinstance(stage, Make):
        stage = stage.source
    return stage


def _teller(make: Make, keys: Any) -> Callable[[SampleKey, Any], None] | None:
    """Tells a plan the lengths of the samples that it drew, where it wants to know them."""
    tokens = make.tokens
    if tokens is None:
        return None
    return lambda key, sample: keys.tell(key.dataset, tokens(sample))


def _tolerances(make: Make) -> dict[str, int | None]:
    cooks = [most for cook in make.cooks if (most := tolerance_of(cook)) is not None]
    return {make.encode_call: tolerance_of(make.encode), "cook_crude_sample": min(cooks, default=None)}


def _read_and_cook(leaf: LeafWork, key: SampleKey) -> tuple[int, Any]:
    """Bytes that were read for a key, and the sample they stand for."""
    raw = leaf.read(key[2])
    read_bytes = 0
    for data in raw.parts.values():
        read_bytes += len(data)
    return read_bytes, leaf.cook(raw, key)


def _read_cook_decode(leaf: LeafWork, key: SampleKey) -> tuple[int, Any]:
    """The same, with what is decoded at the first look decoded now."""
    read_bytes, sample = _read_and_cook(leaf, key)
    decode(sample)
    return read_bytes, sample
