"""Data sets of a user's own, with an iteration and a state of their own: what they derive from.

`own_stage` makes them stages of the engine's pipeline, which saves and restores what they say their state is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, ClassVar, Generic, TypeVar

from omniloom.errors import ConfigError, StateError

T_co = TypeVar("T_co", covariant=True)
T_in_co = TypeVar("T_in_co", covariant=True)


class Savable(ABC):
    """What has a state that can be saved and restored."""

    @abstractmethod
    def save_state(self) -> Any:
        """Its state: plain values, bytes, tensors and arrays, and lists, tuples and dicts of them."""

    @abstractmethod
    def restore_state(self, state: Any) -> None:
        """Go to a saved state."""


class SavableDataset(Savable, Generic[T_co]):
    """A data set: one of the engine's, or one of a user's own.

    A class of a user's own has an ``__iter__`` that gives values, and keeps all that it goes on from in attributes
    that ``_savable_fields`` names. It is gone on with by restoring these and calling ``__iter__`` anew; each lane of a
    run has a copy of the object. Its other attributes have to be such that `copy.deepcopy` and pickle take them.

    Args:
        worker_config: rank, world and workers.
    """

    _savable_fields: ClassVar[tuple[str, ...]] = ()
    worker_config: Any

    def __init__(self, worker_config: Any) -> None:
        self.worker_config = worker_config

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __len__(self) -> int:
        """Values of this rank in a pass; an estimate where it skips some or gives several for one."""
        return self.len_rank()

    def len_rank(self) -> int:
        """The same as ``len``."""
        return sum(self.len_worker(number) for number in range(max(1, self.worker_config.num_workers)))

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Values of a worker in a pass.

        Args:
            worker_idx: its number; ``None``: the running worker.
        """
        raise NotImplementedError(f"{type(self).__name__} has no len_worker")

    def save_state(self) -> dict[str, Any]:
        """What ``_savable_fields`` names, by name, and the name of the class."""
        state: dict[str, Any] = {"__class__": type(self).__name__}
        for name in self._savable_fields:
            value = getattr(self, name)
            state[name] = value.save_state() if isinstance(value, Savable) else deepcopy(value)
        return state

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take over what `save_state` gave. Raises StateError where it is of another class or lacks something."""
        own = type(self).__name__
        if state.get("__class__") != own:
            raise StateError(f"the state of a {state.get('__class__')} found, that of a {own} expected")
        missing = [name for name in self._savable_fields if name not in state]
        if missing:
            raise StateError(f"{own}: the state lacks {', '.join(missing)}; it has {', '.join(sorted(state))}")
        for name in self._savable_fields:
            value = getattr(self, name)
            if isinstance(value, Savable):
                value.restore_state(state[name])
            else:
                setattr(self, name, deepcopy(state[name]))

    def reset_state_own(self) -> None:
        """Go back to the begin, without the data sets within; for those who call it: the engine takes new copies."""

    def reset_state_deep(self) -> None:
        """The same with all data sets within."""
        self.reset_state_own()

    def worker_has_samples(self) -> bool:
        """Whether there is anything to give."""
        return True

    def config(self) -> dict[str, Any]:
        """What it is made of, as plain values."""
        return {"type": type(self).__qualname__}

    @staticmethod
    def _function_config(function: Any) -> str:
        """The full name of a function."""
        return f"{getattr(function, '__module__', '<unknown>')}.{getattr(function, '__qualname__', '<unknown>')}"

    def can_restore_sample(self) -> bool:
        """Whether single samples can be made again by their key."""
        return False

    def assert_can_restore(self) -> None:
        """Raise StateError where they cannot."""
        if not self.can_restore_sample():
            raise StateError(f"{type(self).__name__} cannot make single samples again: it has no restore_sample")

    def restore_sample(self, restore_key: Sequence[Any]) -> Any:
        """The sample of a key, made again."""
        raise NotImplementedError(f"{type(self).__name__} has no restore_sample")


class BaseWrapperDataset(SavableDataset[T_co], Generic[T_in_co, T_co]):
    """A data set of a user's own that is made of others.

    Args:
        datasets: one, or several.
        worker_config: that of all of them.
    """

    datasets: tuple[SavableDataset[T_in_co], ...]

    def __init__(
        self, datasets: SavableDataset[T_in_co] | Iterable[SavableDataset[T_in_co]], *, worker_config: Any
    ) -> None:
        super().__init__(worker_config=worker_config)
        self.datasets = (datasets,) if isinstance(datasets, SavableDataset) else tuple(datasets)
        for one in self.datasets:
            if one.worker_config != worker_config:
                raise ConfigError(
                    f"{type(self).__name__}: its worker_config and that of a {type(one).__name__} within differ: "
                    f"{worker_config} and {one.worker_config}"
                )

    @property
    def dataset(self) -> SavableDataset[T_in_co]:
        """The one data set within. Raises ConfigError where there are several."""
        if len(self.datasets) != 1:
            raise ConfigError(f"{type(self).__name__} has {len(self.datasets)} data sets within; say which one")
        return self.datasets[0]

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Values of a worker in a pass: as many as the data sets within give together."""
        return sum(one.len_worker(worker_idx) for one in self.datasets)

    def save_state(self) -> dict[str, Any]:
        """The states of the data sets within, and its own."""
        return {"datasets": [one.save_state() for one in self.datasets], **super().save_state()}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take over what `save_state` gave."""
        found = state.get("datasets", ())
        if len(found) != len(self.datasets):
            raise StateError(
                f"{type(self).__name__}: the state is of {len(found)} data sets within; {len(self.datasets)} are here"
            )
        for one, saved in zip(self.datasets, found, strict=True):
            one.restore_state(saved)
        super().restore_state(state)

    def reset_state_deep(self) -> None:
        """Go back to the begin with all data sets within."""
        for one in self.datasets:
            one.reset_state_deep()
        self.reset_state_own()

    def worker_has_samples(self) -> bool:
        """Whether one within has anything to give."""
        return any(one.worker_has_samples() for one in self.datasets)

    def config(self) -> dict[str, Any]:
        """What it is made of, as plain values."""
        within = [one.config() for one in self.datasets]
        return {**super().config(), **({"dataset": within[0]} if len(within) == 1 else {"datasets": within})}

    def can_restore_sample(self) -> bool:
        """Whether those within can."""
        return all(one.can_restore_sample() for one in self.datasets)

    def assert_can_restore(self) -> None:
        """Raise StateError where one within cannot make samples again."""
        for one in self.datasets:
            one.assert_can_restore()

    def restore_sample(self, restore_key: Sequence[Any]) -> Any:
        """The sample of a key, made again by the data set within that gave it."""
        if len(self.datasets) == 1:
            return self.datasets[0].restore_sample(restore_key)
        if len(restore_key) > 2 and restore_key[0] == type(self).__name__:
            return self.datasets[restore_key[1]].restore_sample(restore_key[2:])
        for one in self.datasets:
            if getattr(one, "gave", lambda _key: False)(restore_key):
                return one.restore_sample(restore_key)
        raise StateError(f"{type(self).__name__}: {tuple(restore_key)!r} names a sample of none of its data sets")

    def _find_wrapped_dataset(self, cls: type[Any]) -> Any:
        """The outermost data set within that is of a class; ``None`` where none is."""
        for one in self.datasets:
            found = one if isinstance(one, cls) else None
            if found is None and isinstance(one, BaseWrapperDataset):
                found = one._find_wrapped_dataset(cls)
            if found is not None:
                return found
        return None


class SampleIndex(Savable):
    """Counts the values of a data set of a user's own.

    Args:
        worker_config: rank, world and workers.
        src: whose it is.
    """

    def __init__(self, worker_config: Any, *, src: Any) -> None:
        self.worker_config = worker_config
        self.src = src
        self.current_idx = 0

    def get_next(self) -> int:
        """The next number."""
        self.current_idx += 1
        return self.current_idx - 1

    @contextmanager
    def ctx(self, sample_idx: int | None = None) -> Iterator[int]:
        """A number for the length of a ``with``: the next one, or one that is given."""
        yield self.get_next() if sample_idx is None else sample_idx

    def iter_ctx(self, it: Iterable[Any], sample_idx: int | None = None) -> Iterator[tuple[int, Any]]:
        """Values with their numbers; one that is given stands for all."""
        for value in it:
            yield (self.get_next() if sample_idx is None else sample_idx), value

    def save_state(self) -> int:
        """How many numbers were given."""
        return self.current_idx

    def restore_state(self, state: int | None) -> None:
        """Go on after so many numbers; ``None``: from the first one."""
        self.current_idx = state or 0


def get_sample_restore_key(sample: Any) -> Any:
    """The restore key of a sample or batch, an object or a dict; ``None`` where it has none."""
    if isinstance(sample, dict):
        return sample.get("__restore_key__")
    return getattr(sample, "__restore_key__", None)
