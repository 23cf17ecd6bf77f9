"""References to values of stores, read when somebody looks at them; under Energon's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from omniloom.data.sample import SourceInfo
from omniloom.data.side.store import FileStore, add_source_info

T = TypeVar("T")


class Lazy(ABC, Generic[T]):
    """A value of a store that is read when it is first asked for. Two of the same store and name are equal.

    Attributes:
        ds: the store; ``None`` where the value comes from elsewhere.
        fname: the name in the store.
        pool: the pool that gave it; ``None`` where none did.
    """

    def __init__(self, *, ds: FileStore[Any] | None, fname: str, pool: CachePool | None) -> None:
        self.ds = ds
        self.fname = fname
        self.pool = pool

    @abstractmethod
    def get(self, sample: Any = None) -> T:
        """The value; where it came from is added to the sources of ``sample``."""

    def __hash__(self) -> int:
        return hash((id(self.ds), self.fname))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lazy) and self.ds is other.ds and self.fname == other.fname

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fname!r})"


class DirectLazy(Lazy[T]):
    """Reads from the store at its first use, and keeps the value."""

    def __init__(self, *, ds: FileStore[T], fname: str, pool: CachePool | None = None) -> None:
        super().__init__(ds=ds, fname=fname, pool=pool)
        self._store = ds
        self._data: tuple[T, SourceInfo] | None = None

    def get(self, sample: Any = None) -> T:
        """The value; where it came from is added to the sources of ``sample``."""
        if self._data is None:
            self._data = self._store[self.fname]
        add_source_info(sample, self._data[1])
        return self._data[0]


class MockLazy(Lazy[T]):
    """Stands for what a function gives, which is called at each use.

    Args:
        fname: a name, which the function is called with.
        get_fn: the function.
    """

    def __init__(self, fname: str, get_fn: Callable[[str], T]) -> None:
        super().__init__(ds=None, fname=fname, pool=None)
        self.get_fn = get_fn

    def get(self, sample: Any = None) -> T:
        """The value. It has no source."""
        return self.get_fn(self.fname)

    def __hash__(self) -> int:
        return hash((self.fname, self.get_fn))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MockLazy) and self.fname == other.fname and self.get_fn == other.get_fn


class CachePool(ABC):
    """Keeps values at hand between the time they are asked for and the time they are used."""

    @abstractmethod
    def get(self, ds: FileStore[T], fname: str, sample: Any = None) -> T:
        """A value now; where it came from is added to the sources of ``sample``."""

    @abstractmethod
    def get_lazy(self, ds: FileStore[T], fname: str) -> Lazy[T]:
        """A reference to a value, which may be fetched from now on."""

    @abstractmethod
    def to_cache(self, data: T, name: str) -> Lazy[T]:
        """Put a value away and get a reference to it. The name is for people who look at the cache."""

    @abstractmethod
    def close(self) -> None:
        """Give up everything that is kept."""


class NoCachePool(CachePool):
    """A pool that keeps nothing: values are read when they are used."""

    def get(self, ds: FileStore[T], fname: str, sample: Any = None) -> T:
        """A value now; where it came from is added to the sources of ``sample``."""
        value: T = ds.get(fname, sample)
        return value

    def get_lazy(self, ds: FileStore[T], fname: str) -> DirectLazy[T]:
        """A reference to a value, which is read at its first use."""
        return DirectLazy(ds=ds, fname=fname, pool=self)

    def to_cache(self, data: T, name: str) -> Lazy[T]:
        """A reference to the value, which stays in memory."""
        return MockLazy(name, lambda _: data)

    def close(self) -> None:
        """There is nothing to give up."""
