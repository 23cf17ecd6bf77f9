"""The stage that a data set of a user's own is in the engine's pipeline.

Each lane has a copy of the user's object, in which the engine's data sets are replaced by streams of that lane. Its
state is what the object's ``save_state`` gives, made plain; going on is ``restore_state`` and a new ``__iter__``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.iter_map import IterMap
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.pipeline.restore import BatchKey, key_of, listed_key, plain_key, restore
from omniloom.data.pipeline.seeding import CALLS, ITER_MAP
from omniloom.data.pipeline.stream import Item, State, describe
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, ItemKey, PackKey, SampleKey, first_sample
from omniloom.energon.adapters.plain_state import of_plain, plain
from omniloom.energon.adapters.savable import SavableDataset
from omniloom.errors import ConfigError, StateError

OWN_FIELDS = ("own", "passes", "given")
"""What of the state of a lane of such a stage goes on in the next lap."""

_BETWEEN = ITER_MAP + CALLS
"""Number of the call in which a user's object draws without a sample."""

_PLACED: ContextVar[Callable[[Any], Any] | None] = ContextVar("omniloom_placed", default=None)


@contextmanager
def placing(place: Callable[[Any], Any]) -> Iterator[None]:
    """Copies of a user's object that are made within have something else in place of the data sets that it holds."""
    token = _PLACED.set(place)
    try:
        yield
    finally:
        _PLACED.reset(token)


def placed(dataset: Any) -> Any:
    """What stands in a copy of a user's object for a data set in it; it itself where nobody puts something there."""
    place = _PLACED.get()
    return dataset if place is None else place(dataset)


def copied(own: SavableDataset[Any], place: Callable[[Any], Any]) -> Any:
    """A copy of a user's object, with something else in place of the data sets that it holds."""
    try:
        with placing(place):
            return copy.deepcopy(own)
    except (TypeError, copy.Error) as error:
        raise ConfigError(
            f"a {type(own).__name__} cannot be copied, and each lane needs a copy: {error}. Make what cannot be copied "
            "(open files, locks, generators) in __iter__, or leave it out in __deepcopy__ and __getstate__"
        ) from error


class Within(SavableDataset[Any]):
    """Stands in a user's object for one of the engine's data sets, until a lane is opened.

    Attributes:
        number: which of them.
        leaves: positions of its leaves among those of all.
    """

    def __init__(self, number: int, leaves: range, worker_config: Any, lengths: Sequence[int]) -> None:
        super().__init__(worker_config)
        self.number, self.leaves, self.lengths = number, leaves, tuple(lengths)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return placed(self)

    def moved(self, by: int) -> Within:
        """The same, whose leaves lie so many positions further on."""
        leaves = range(self.leaves.start + by, self.leaves.stop + by)
        return Within(self.number, leaves, self.worker_config, self.lengths)

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Values of a worker in a pass."""
        number = self.worker_config.rank_worker_id() if worker_idx is None else worker_idx
        return self.lengths[number % len(self.lengths)]

    def can_restore_sample(self) -> bool:
        """Always."""
        return True


class LiveDataset(SavableDataset[Any]):
    """One of the engine's data sets within a user's object, in one lane.

    Args:
        within: what it stands for.
        pipeline: its pipeline.
        lane: the lane; ``None``: it only makes samples again.
        desk: what the process keeps at hand.
        took: called with the key of each value that is taken.
    """

    def __init__(
        self, within: Within, pipeline: Any, lane: Lane | None, desk: Desk | None, took: Callable[[ItemKey], None]
    ) -> None:
        super().__init__(within.worker_config)
        self._within, self._pipeline, self._lane, self._desk, self._took = within, pipeline, lane, desk, took
        self._lap = 0 if lane is None else lane.lap
        self.has_ended = False
        self._stream: Any = None
        if lane is not None:
            self._open_lap()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        while not self.has_ended:
            try:
                key, value = next(self._stream)
            except StopIteration:
                self.has_ended = True
                return
            if key is not UNIT_END:
                self._took(key)
                yield value

    def begin_lap(self) -> None:
        """Where it has ended, begin its next pass; a data set of a user's own in it goes on from its state."""
        if self.has_ended:
            before = self._stream.state_dict()
            self._lap += 1
            self._open_lap()
            if "own" in before:
                self._stream.load_state_dict({name: before[name] for name in OWN_FIELDS})

    def _open_lap(self) -> None:
        if self._lane is None:
            raise StateError("a data set within one of your own makes samples again here, and is not gone through")
        self._stream = self._pipeline.open(replace(self._lane, lap=self._lap), self._desk)
        self.has_ended = False

    def save_state(self) -> dict[str, Any]:
        """Its place in its lane."""
        return {"stream": self._stream.state_dict(), "lap": self._lap, "ended": self.has_ended}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go to a saved place."""
        self._lap = state["lap"]
        self._open_lap()
        self._stream.load_state_dict(state["stream"])
        self.has_ended = state["ended"]

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Values of a worker in a pass."""
        return self._within.len_worker(worker_idx)

    def worker_has_samples(self) -> bool:
        """Whether there is anything to give."""
        return any(leaf.rows for leaf in make_of(self._pipeline).source.leaves)  # type: ignore[attr-defined]

    def can_restore_sample(self) -> bool:
        """Always."""
        return True

    def gave(self, restore_key: Sequence[Any]) -> bool:
        """Whether a key is that of a sample, pack or batch of this data set."""
        first: Any = restore_key
        while first and not isinstance(first[0], int):
            first = next((one for one in first if isinstance(one, tuple | list)), ())
        return bool(first) and first[0] in self._within.leaves

    def restore_sample(self, restore_key: Sequence[Any]) -> Any:
        """The value of a key, made again. What the user's object draws then is what it drew."""
        leaves = len(make_of(self._pipeline).leaves)
        made = restore(self._pipeline, restore_key, leaves=leaves)
        key = key_of(restore_key, leaves=leaves)
        self._took(key.items[0] if isinstance(key, BatchKey) else key)
        return made


@dataclass(frozen=True)
class OwnStage(IterMap):
    """A data set of a user's own.

    Attributes:
        source: the pipeline of the data set within, with a plan that says how often the user's object is gone through;
            of several, and of none, only a `Make` that knows their leaves.
        function: the user's object, with `Within` where it holds the engine's data sets.
        inner: the pipelines of the data sets within; of one alone only its plan is taken.
        first_leaf: position of its first leaf among all.
    """

    inner: tuple[Any, ...] = ()
    first_leaf: int = 0
    makes: ClassVar[Any] = (SampleKey, PackKey, BatchKey)

    def open(self, lane: Lane, desk: Desk) -> OwnStream:  # type: ignore[override]
        """The values of one lane."""
        return OwnStream(self, lane, desk)

    @property
    def object_of_user(self) -> SavableDataset[Any]:
        """The user's object, as it was described."""
        own: SavableDataset[Any] = self.function  # type: ignore[assignment]
        return own

    @property
    def leaves(self) -> Any:
        """The leaves of all data sets within."""
        return make_of(self).leaves

    @property
    def seeds(self) -> Any:
        """The seeds of their samples."""
        return make_of(self).seeds

    @property
    def pipelines(self) -> tuple[Any, ...]:
        """The pipelines of the data sets within, each over its own plan."""
        if len(self.inner) != 1:
            return self.inner
        return (_over(self.source, make_of(self.inner[0]).source),)  # its buffers may be those of a saved state

    def moved(self, move: Callable[[Any], Any], by: int) -> OwnStage:
        """The same stage whose leaves lie so many positions further on.

        Args:
            move: does so with a pipeline.
            by: how many.
        """

        def further(within: Any) -> Any:
            return within.moved(by) if isinstance(within, Within) else within

        own: Any = copied(self.object_of_user, further)
        inner = tuple(move(one) for one in self.inner)
        return OwnStage(move(self.source), own, inner, self.first_leaf + by)

    def object(self, lane: Lane | None, desk: Desk | None, took: Callable[[ItemKey], None]) -> tuple[Any, Any]:
        """A copy of the user's object with live data sets in it, and these."""
        pipelines, lives = self.pipelines, {}

        def live(within: Any) -> Any:
            if not isinstance(within, Within):
                return within
            if within.number not in lives:
                lives[within.number] = LiveDataset(within, pipelines[within.number], lane, desk, took)
            return lives[within.number]

        own = copied(self.object_of_user, live)
        return own, lives.values()

    def make(self, key: Any) -> Any:
        """The value of a key, made anew by the object's ``restore_sample``."""
        own, _ = self.object(None, None, lambda taken: self.seeds.plant(first_sample(taken), ITER_MAP))
        own.assert_can_restore()
        return own.restore_sample(plain_key(key))

    def __str__(self) -> str:
        return describe(self)


class OwnStream(Iterator[Item]):
    """The values of one lane."""

    def __init__(self, stage: OwnStage, lane: Lane, desk: Desk) -> None:
        self._stage, self._lane = stage, lane.index
        self._seeds = make_of(stage).seeds
        self._has_within = bool(stage.inner)
        self._where = type(stage.function).__name__
        self._passes = _passes(make_of(stage).source)
        self._pass = 0  # passes that have ended
        self._given = 0  # values of the running one
        self._is_over = False
        self._fresh: list[ItemKey] = []  # taken since the last value
        self._takes_again = False  # what the next value is made of was taken before the saved place
        self._key: ItemKey = SampleKey(stage.first_leaf, 0, 0)
        self._object, self._lives = stage.object(lane, desk, self._took)
        self._values: Iterator[Any] | None = None

    def state_dict(self) -> State:
        """The state of the user's object, the passes that have ended, and what the last value was made of."""
        own = plain(self._object.save_state(), where=f"the state of {self._where}")
        over = {"over": True} if self._is_over else {}
        key = {"key": listed_key(self._key)} if self._given and self._has_within else {}
        return {"own": own, "passes": self._pass, "given": self._given, **key, **over}

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        if "own" not in state:
            raise StateError(f"{self._where}: the state of a data set of another kind found; start a new run")
        self._object.restore_state(of_plain(state["own"]))
        self._pass, self._given = state["passes"], state["given"]
        self._values, self._fresh, self._is_over = None, [], state.get("over", False)
        self._takes_again = bool(getattr(self._object, "takes_again", False))
        if "key" in state:
            self._key = key_of(state["key"], leaves=len(self._stage.leaves))  # type: ignore[assignment]

    def __next__(self) -> Item:
        while not self._is_over:
            if self._values is None:
                for live in self._lives if not self._given else ():  # else a saved place within a pass
                    live.begin_lap()
                self._values = iter(self._object)
            # By what the state knows of: what is drawn before a sample within is taken, or with none within.
            self._seeds.plant(SampleKey(self._stage.first_leaf, self._pass, self._given, self._lane), _BETWEEN)
            try:
                value = next(self._values)
            except StopIteration:
                self._end_pass()
                continue
            self._given += 1
            return self._key_of(value), value
        raise StopIteration

    def remake(self, key: Any) -> Item | None:
        """The value of a key that came before, made anew."""
        return key, self._stage.make(key)

    def _end_pass(self) -> None:
        """A pass has ended; the lap, too, where it was its last one, or gave nothing."""
        self._values = None
        self._pass += 1
        given, self._given = self._given, 0
        self._is_over = not given or (self._passes is not None and self._pass % self._passes == 0)

    def _took(self, key: ItemKey) -> None:
        self._fresh.append(key)
        self._seeds.plant(first_sample(key), ITER_MAP)

    def _key_of(self, value: Any) -> ItemKey:
        """What a value was made of: by its own restore key where it has one of ours, else what was taken for it."""
        fresh, self._fresh = ([] if self._takes_again else self._fresh), []
        self._takes_again = False
        if not self._has_within:
            return SampleKey(self._stage.first_leaf, self._pass, self._given - 1)
        known = value.get("__restore_key__") if isinstance(value, dict) else getattr(value, "__restore_key__", None)
        if known:
            try:
                found = key_of(known, leaves=len(self._stage.leaves))
                self._key = found.items[0] if isinstance(found, BatchKey) else found
                return self._key
            except StateError:
                pass  # it is of another form: what was taken tells
        if fresh:
            self._key = fresh[0]
        return self._key


def _over(stage: Any, plan: Any) -> Any:
    return replace(stage, source=plan if isinstance(stage, Make) else _over(stage.source, plan))


def _passes(plan: Any) -> int | None:
    """How often a user's object is gone through in a lap; ``None``: as long as it gives something."""
    while hasattr(plan, "plan"):  # one of several, whose leaves are shifted
        plan = plan.plan
    if isinstance(plan, InOrder):
        if plan.units is not None:
            raise ConfigError("a part of a pass over a data set of your own cannot be said; use LimitDataset")
        return plan.passes
    return 1
