"""Reading pickles of checkpoints without running anything that they name.

A pickle may name any function of any module and have it called. Here a name gives either one of the few harmless
things that plain data needs, or an `Inert` object that remembers the name and what it was given. Nothing is imported.
"""

from __future__ import annotations

import argparse
import collections
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from omniloom.errors import WeightsError

# Every one of these builds plain data out of its arguments and does nothing else.
HARMLESS: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("argparse", "Namespace"): argparse.Namespace,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("__builtin__", "set"): set,
    ("torch", "Size"): torch.Size,
}
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class Inert:
    """Stands for an object of a class that is not imported: what it was made with and what state it was given.

    Attributes:
        arguments: positional arguments of the call.
        state: what was set on it; attributes by name where that is a dict.
        items: what was put in by key or appended.
    """

    name: ClassVar[str] = ""

    arguments: tuple[Any, ...]
    state: Any
    items: list[Any]

    def __new__(cls, *arguments: Any, **_keywords: Any) -> Inert:  # noqa: D102 - takes whatever it is given
        # Everything is set here, since a pickle may make an object without initialising it.
        inert = object.__new__(cls)
        inert.arguments, inert.state, inert.items = arguments, None, []
        return inert

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, value: Any) -> None:
        """Take in an item of a list."""
        self.items.append(value)

    def extend(self, values: Any) -> None:
        """Take in items of a list."""
        self.items.extend(values)

    def __repr__(self) -> str:
        return f"<{self.name}, not imported>"


def inert_class(module: str, name: str) -> type[Inert]:
    """A class that stands for ``module.name``."""
    return type(name.rpartition(".")[2] or "Nameless", (Inert,), {"name": f"{module}.{name}"})


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that imports nothing.

    Args:
        data: the pickle.
        builders: more names that give something, for the format at hand.
        persistent: what gives the objects that the pickle refers to by an id; without it such an id is an error.
    """

    def __init__(
        self,
        data: bytes,
        *,
        builders: Mapping[tuple[str, str], Any] | None = None,
        persistent: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(io.BytesIO(data))
        self._builders = {**HARMLESS, **(builders or {})}
        self._persistent = persistent
        self._inert: dict[tuple[str, str], type[Inert]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Give what ``module.name`` stands for here; never import it."""
        found = self._builders.get((module, name))
        if found is not None:
            return found
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        return self._inert.setdefault((module, name), inert_class(module, name))

    def persistent_load(self, pid: Any) -> Any:
        """Give the object with an id."""
        if self._persistent is None:
            raise WeightsError("a pickle refers to objects outside itself, where there are none")
        return self._persistent(pid)


def load_restricted(
    data: bytes,
    *,
    where: str,
    builders: Mapping[tuple[str, str], Any] | None = None,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Load a pickle as plain data.

    Args:
        data: the pickle.
        where: file for messages.
        builders: as for `RestrictedUnpickler`.
        persistent: as for `RestrictedUnpickler`.

    Raises:
        WeightsError: the pickle is unsound.
    """
    try:
        return RestrictedUnpickler(data, builders=builders, persistent=persistent).load()
    except WeightsError:
        raise
    except Exception as error:  # a hostile or cut pickle may raise anything at all
        raise WeightsError(
            f"{where}: its pickle cannot be read ({type(error).__name__}: {error}). The file is cut short or not a "
            "checkpoint; fetch or save it again."
        ) from error
