"""Group: values are collected by what they have in common, and each group that is full becomes a batch.

The state is the source's and the keys of the values that wait in groups, in the order in which they
came; restoring makes them again. No value is ever part of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple

from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.batch import CallLine, batch_again
from omniloom.data.pipeline.calls import Call, gives_many
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.make import make_of
from omniloom.data.pipeline.restore import BatchKey, key_of, listed_key
from omniloom.data.pipeline.stream import Item, RemakingStream, State, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, ItemKey
from omniloom.errors import ConfigError


@dataclass(frozen=True)
class Group:
    """Batches of values that belong together.

    Attributes:
        source: the stage that gives the values.
        criterion: gives of a value its group, and the number of values that make a batch of that group, or ``None``.
        size: number of values in a batch of any group; ``None``: the criterion says it.
        calls: what is done with the list of values, one call after the other; no generator functions.
        drop_last: leave out batches that are not full where the data ends.
        most_waiting: values that wait at most; then the group of the oldest is handed on as it is. ``None``: any
            number.
    """

    source: Any
    criterion: Callable[[Any], tuple[Hashable, int | None]]
    size: int | None
    calls: tuple[Call, ...]
    drop_last: bool = False
    most_waiting: int | None = None
    makes: ClassVar[type] = BatchKey

    def __post_init__(self) -> None:
        if gives_many(self.calls):
            raise ConfigError("grouping does not go with a `batch` or `encode_batch` that is a generator function")

    def open(self, lane: Lane, desk: Desk) -> GroupStream:
        """The batches of one lane."""
        return GroupStream(self, lane, desk)

    def make(self, key: BatchKey) -> Any:
        """The batch of some keys, made anew."""
        return batch_again(self.calls, self, key)

    def __str__(self) -> str:
        return describe(self)


class _Waiting(NamedTuple):
    number: int
    key: ItemKey
    value: Any


class GroupStream(Iterator[Item]):
    """The batches of one lane."""

    def __init__(self, group: Group, lane: Lane, desk: Desk) -> None:
        self._group = group
        self._make = make_of(group)
        self._source: RemakingStream = group.source.open(lane, desk)
        self._batch = CallLine(group, group.calls, desk)
        self._criterion = CallLine(group, (("batch_group_criterion", seeding.GROUP, group.criterion),), desk)
        self._begin("")

    def _begin(self, over: str) -> None:
        self._over = over  # what has come to its end: "unit" or "all"
        self._numbers = count()
        self._groups: dict[Hashable, list[_Waiting]] = {}  # the group whose first value has waited longest comes first
        self._sizes: dict[Hashable, int] = {}  # values in a batch of each of them
        self._waiting: dict[int, list[Any]] = {}  # keys of all that wait, in plain form, in the order of their coming

    def state_dict(self) -> State:
        """The source's state, and the keys of the values that wait."""
        state = self._source.state_dict()
        if self._over == "unit":
            state = {**state, "group_over": "unit"}
        return {**state, "waiting": list(self._waiting.values())} if self._waiting else state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place: the values that wait are made again."""
        self._source.load_state_dict(state)
        self._begin(state.get("group_over", ""))
        for plain in state.get("waiting", ()):
            item = self._source.remake(key_of(plain, leaves=len(self._make.leaves)))
            if item is not None:
                self._add(item[0], item[1])

    def __next__(self) -> Item:
        while True:
            batch = self._collect()
            if batch is None:
                return UNIT_END, None
            keys: list[ItemKey] = [one.key for one in batch]
            done, value = self._batch.call(keys, [one.value for one in batch])
            if done:
                return keys[0], value

    def _collect(self) -> list[_Waiting] | None:
        """The values of the next batch; ``None`` where a unit ends. Raises StopIteration at the end of the source."""
        while not self._over:
            try:
                key, value = next(self._source)
            except StopIteration:
                self._over = "all"
                break
            if key is UNIT_END:
                self._over = "unit"
                break
            full = self._add(key, value)
            if full:
                return self._take(full[0])
            if self._group.most_waiting is not None and len(self._waiting) > self._group.most_waiting:
                return self._take(next(iter(self._groups)))
        while self._groups:
            rest = self._take(next(iter(self._groups)))
            if not self._group.drop_last:
                return rest
            self._batch.leave_out([one.key for one in rest], "drop-last")
        over = self._over
        self._begin("")
        if over == "unit":
            return None
        raise StopIteration

    def _add(self, key: ItemKey, value: Any) -> tuple[Hashable, ...]:
        """Put a value into its group; gives the group where that makes it full, else nothing."""
        done, said = self._criterion.call([key], value)
        if not done:
            return ()
        group, size = self._of(said)
        waiting = self._groups.setdefault(group, [])
        one = _Waiting(next(self._numbers), key, value)
        waiting.append(one)
        self._sizes[group] = size
        self._waiting[one.number] = listed_key(key)
        return (group,) if len(waiting) >= size else ()

    def _of(self, said: Any) -> tuple[Hashable, int]:
        if not isinstance(said, tuple) or len(said) != 2:
            raise ConfigError(f"batch_group_criterion gave {said!r}; (group, batch size or None) expected")
        group, own = said
        if (own is None) == (self._group.size is None):
            raise ConfigError(
                f"batch_group_criterion gave the batch size {own!r}, and batch_size={self._group.size!r}; exactly one "
                "of the two says how large the batches of a group are, and the other is None"
            )
        size = self._group.size if own is None else own
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"batch_group_criterion gave the batch size {size!r}; at least 1 expected")
        try:
            hash(group)
        except TypeError as error:
            raise ConfigError(f"batch_group_criterion gave the group {group!r:.80}; {error}") from None
        return group, size

    def _take(self, group: Hashable) -> list[_Waiting]:
        waiting, size = self._groups.pop(group), self._sizes.pop(group)
        taken, rest = waiting[:size], waiting[size:]
        if rest:  # as many can wait where a state was saved with larger batches
            self._groups[group], self._sizes[group] = rest, size
        for one in taken:
            del self._waiting[one.number]
        return taken
