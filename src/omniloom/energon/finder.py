"""One meta-path finder: Energon's modules of the table, below `omniloom.energon` and, on request, `megatron.energon`.

Both paths give the same module object, so that a class is the same under either, and what is set in a module is seen
by both.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from omniloom.energon.names import EXPORTED, HIDDEN, HOME, MODULES, is_package
from omniloom.errors import ConfigError

OURS = "omniloom.energon"
ENERGON = "megatron.energon"
_ENTRY = re.compile(r"(\w+)\[(\w+)\]")


def resolve(name: str) -> Any:
    """What one of Energon's names stands for."""
    module, attribute = HOME[name]
    entry = _ENTRY.fullmatch(attribute)
    if entry is not None:
        return getattr(importlib.import_module(module), entry[1])[entry[2]]
    return getattr(importlib.import_module(module), attribute)


class NamesModule(ModuleType):
    """A module whose names are looked up in the table when they are first used."""

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("__all__", ()):
            if f"{self.__name__}.{name}".removeprefix(f"{OURS}.") in MODULES:  # Energon's import brings its modules
                return importlib.import_module(f"{self.__name__}.{name}")
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}; docs/energon.md lists what of Energon is here"
            )
        value = resolve(self.__dict__.get("_homes", {}).get(name, name))
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__dict__.get("__all__", ())})


class PackageModule(NamesModule):
    """The package itself: importing its module ``edataclass`` must not hide the decorator of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in HOME):
            super().__setattr__(name, value)


class _TableLoader(Loader):
    """Makes the modules of the table."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return NamesModule(spec.name, f"Energon's ``{spec.name.removeprefix(OURS + '.')}``: names over omniloom.")

    def exec_module(self, module: ModuleType) -> None:
        """Say which names it has."""
        entries = MODULES[module.__name__.removeprefix(f"{OURS}.")].split()
        homes = {name: home or name for name, _, home in (entry.partition("=") for entry in entries)}
        module.__dict__.update(__all__=list(homes), _homes=homes)


class _AliasLoader(Loader):
    """Gives the module of the other path."""

    def __init__(self) -> None:
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of the same name below `omniloom.energon`."""
        module = importlib.import_module(OURS + spec.name.removeprefix(ENERGON))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is there already; it keeps its own name."""
        module.__spec__ = self._spec


class EnergonFinder(MetaPathFinder):
    """Finds the modules of the table.

    Attributes:
        aliases: whether `megatron.energon` is to be found, too.
    """

    def __init__(self) -> None:
        self.aliases = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module comes from; ``None``: not from here."""
        if fullname.startswith(f"{OURS}."):
            name = fullname.removeprefix(f"{OURS}.")
            return ModuleSpec(fullname, _TableLoader(), is_package=is_package(name)) if name in MODULES else None
        if not self.aliases or not (fullname == ENERGON or fullname.startswith(f"{ENERGON}.")):
            return None
        name = fullname.removeprefix(ENERGON).removeprefix(".")
        if name and name not in MODULES:
            return None
        return ModuleSpec(fullname, _AliasLoader(), is_package=not name or is_package(name))


FINDER = EnergonFinder()


def begin(package: ModuleType) -> None:
    """Put the finder to work, and make a package's names those of the table."""
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    package.__dict__["__all__"] = [*EXPORTED, *HIDDEN, "install"]
    package.__class__ = PackageModule


def alias() -> None:
    """Let `megatron.energon` be `omniloom.energon` from now on in this process.

    Raises:
        ConfigError: the real Energon is imported already.
    """
    known = sys.modules.get(ENERGON)
    if known is not None and known.__name__ != OURS:
        raise ConfigError(
            f"megatron.energon is imported already, from {getattr(known, '__file__', None)}: what has been imported "
            "of it stays. Call omniloom.energon.install() before anything imports megatron.energon."
        )
    FINDER.aliases = True
    _see_that_there_is_megatron()
    package = importlib.import_module(ENERGON)
    sys.modules["megatron"].__dict__["energon"] = package


class _EveryMegatron(list[str]):
    """The folders called ``megatron`` on the path, as they are when somebody asks: one may be added later."""

    def __iter__(self) -> Iterator[str]:
        return iter([str(Path(folder, "megatron")) for folder in sys.path])


def _see_that_there_is_megatron() -> None:
    """`megatron` is a namespace that megatron-core may share; without it, an empty one stands for it."""
    try:
        importlib.import_module("megatron")
    except ModuleNotFoundError:
        namespace = ModuleType("megatron")
        namespace.__path__ = _EveryMegatron()
        sys.modules["megatron"] = namespace
