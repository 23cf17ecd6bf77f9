"""Cookers: a user's functions that make samples of the dicts that undescribed ("crude") data sets give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from omniloom.data.kinds import BASE_FIELDS
from omniloom.data.sample import SourceInfo
from omniloom.errors import ConfigError

T_sample = TypeVar("T_sample")
Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def cooker(fn: Function, *, need_cache: bool = ..., need_primary: bool = ...) -> Function: ...
@overload
def cooker(fn: None = None, *, need_cache: bool = ..., need_primary: bool = ...) -> Callable[[Function], Function]: ...
def cooker(
    fn: Function | None = None, *, need_cache: bool = False, need_primary: bool = False
) -> Function | Callable[[Function], Function]:
    """Mark a function as a cooker that wants more than the sample and the stores that the mix names.

    Args:
        fn: the function; left out where the mark has arguments.
        need_cache: it takes ``cache``, the loader's cache pool.
        need_primary: it takes ``primary``, the data set itself as a store; a key that starts with a dot is that of
            the sample in hand: ``primary[".jpg"]``.
    """

    def mark(function: Function) -> Function:
        function.__cooker_need_cache__ = need_cache  # type: ignore[attr-defined]
        function.__cooker_need_primary__ = need_primary  # type: ignore[attr-defined]
        return function

    return mark if fn is None else mark(fn)


@dataclass(frozen=True)
class Cooker(Generic[T_sample]):
    """A function on crude samples, and which data sets it is for.

    Attributes:
        cook: called as ``cook(sample, **stores)``, with the stores by the names that the mix gives them.
        has_subflavors: subflavors that a data set must have, with these values; ``None``: any data set.
    """

    cook: Callable[..., T_sample]
    has_subflavors: Mapping[str, Any] | None = None

    @property
    def need_primary(self) -> bool:
        """Whether the function takes ``primary``."""
        return bool(getattr(self.cook, "__cooker_need_primary__", False))

    @property
    def need_cache(self) -> bool:
        """Whether the function takes ``cache``."""
        return bool(getattr(self.cook, "__cooker_need_cache__", False))

    def is_match(self, subflavors: Mapping[str, Any] | None) -> bool:
        """Whether it is for data sets with these subflavors."""
        found = subflavors or {}
        return all(name in found and found[name] == value for name, value in (self.has_subflavors or {}).items())


def basic_sample_keys(
    crude_sample: Mapping[str, Any], additional_source_info: Sequence[SourceInfo] = ()
) -> dict[str, Any]:
    """The base fields of a crude sample, to begin a sample with: ``TextSample(**basic_sample_keys(sample), text=...)``.

    Args:
        crude_sample: the crude sample.
        additional_source_info: added to the sources.
    """
    fields = {name: crude_sample[name] for name in BASE_FIELDS if name in crude_sample}
    if additional_source_info:
        fields["__sources__"] = (*(fields.get("__sources__") or ()), *additional_source_info)
    return fields


@dataclass(frozen=True)
class CookStep:
    """What is done with the crude samples of one data set.

    Attributes:
        step: `TaskEncoder.cook_crude_sample`.
        cooker: the cooker that was found for it.
        stores: its stores by name.
        primary: gives of a store and a sample's key the store as the cooker sees it; ``None``: there is none.
        cache: gives the cache pool, where the cooker needs it.
    """

    step: Callable[[Any, Cooker[Any], dict[str, Any]], Any]
    cooker: Cooker[Any]
    stores: Mapping[str, Any] = field(default_factory=dict)
    primary: Callable[[str], Any] | None = None
    cache: Callable[[], Any] | None = None

    @property
    def __failure_tolerance__(self) -> int:
        said = getattr(self.cooker.cook, "__failure_tolerance__", None)
        if said is None:
            raise AttributeError("nothing is said of it")  # as if it were not there
        return int(said)

    @property
    def __self__(self) -> Any:
        return getattr(self.step, "__self__", None)

    def __call__(self, sample: Any) -> Any:
        """The sample that the crude one stands for."""
        stores = dict(self.stores)
        if self.primary is not None:
            stores["primary"] = self.primary(sample["__key__"])
        if self.cache is not None:
            stores["cache"] = self.cache()
        return self.step(sample, self.cooker, stores)


def find_cooker(
    cookers: Sequence[Cooker[Any]], subflavors: Mapping[str, Any] | None, *, where: str
) -> Cooker[Any] | None:
    """The first cooker for a data set; ``None`` where there are no cookers at all.

    Raises:
        ConfigError: there are cookers, but none for this data set; or one is a generator function.
    """
    for one in cookers:
        if inspect.isgeneratorfunction(one.cook):
            raise ConfigError(f"cooker {_name(one)} is a generator function; make several samples in encode_sample")
        if one.is_match(subflavors):
            return one
    if not cookers:
        return None
    known = "\n".join(f"  {_name(one)}: has_subflavors={dict(one.has_subflavors or {})}" for one in cookers)
    raise ConfigError(
        f"{where}: no cooker is for subflavors {dict(subflavors or {})}. There are, in this order:\n{known}"
    )


def _name(one: Cooker[Any]) -> str:
    return str(getattr(one.cook, "__qualname__", one.cook))
