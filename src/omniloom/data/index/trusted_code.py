"""Code that a data set names, run only where the caller trusts it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from omniloom.data.index.layout import meta_path
from omniloom.errors import ConfigError

TRUST_VARIABLE = "OMNILOOM_TRUST"


def is_trusted(trust: bool) -> bool:
    """Whether code of a data set may be run: the caller says so, and ``OMNILOOM_TRUST=0`` does not forbid it."""
    return trust and os.environ.get(TRUST_VARIABLE) != "0"


def require_trust(trust: bool, *, where: str, what: str) -> None:
    """See that code may be run.

    Raises:
        ConfigError: it may not; says how to allow it.
    """
    if is_trusted(trust):
        return
    if trust:
        raise ConfigError(f"{where}: {what} is code of the data set, which {TRUST_VARIABLE}=0 forbids to run.")
    raise ConfigError(
        f"{where}: {what} is code of the data set, which is not run without being asked for. If you trust it, say "
        "trust=True; else write a field_map, or declare the data set crude and make the samples in encode_sample."
    )


@dataclass(frozen=True)
class FileFunction:
    """A function in a Python file of a data set; run once a process, pickled as its place.

    Attributes:
        path: the file.
        name: the function.
    """

    path: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            ConfigError: there is no such file or function, or running the file failed.
        """
        found = _run(self.path).get(self.name)
        if not callable(found):
            raise ConfigError(f"{self.path}: defines no function {self.name!r}.")
        return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PartFilter:
    """The parts that a function of a data set lets through, as a container of their names.

    Attributes:
        allows: says of a part's name whether it is read.
    """

    allows: Callable[[str], Any]

    def __contains__(self, part: object) -> bool:
        return bool(self.allows(str(part)))


def file_function(reference: str, *, root: str, default: str) -> FileFunction:
    """The function that a text such as ``sample_loader.py:sample_loader`` names.

    Args:
        reference: file, relative to ``.nv-meta`` or absolute, and function.
        root: folder of the data set.
        default: name of the function where none is named.
    """
    file, _, name = reference.partition(":")
    return FileFunction(os.fspath(meta_path(root, file).absolute()), name or default)


def named_class(module: str, name: str, *, where: str) -> Callable[..., Any]:
    """A class by its module and name.

    Raises:
        ConfigError: it cannot be imported, or is no class.
    """
    found = named_object(module, name, where=where)
    if not isinstance(found, type):
        raise ConfigError(f"{where}: {module}.{name} is a {type(found).__name__}, a class expected.")
    return found


def named_object(module: str, name: str, *, where: str) -> Any:
    """A class or function by its module and name.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {module}.{name} cannot be imported: {error}.") from error


def module_of_file(path: str) -> dict[str, Any]:
    """The names that a Python file defines; it is run once a process. Raises ConfigError where that fails."""
    return _run(path)


class _Loader(SourceFileLoader):
    """Leaves no compiled file in the data set."""

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        """Keep nothing."""


@cache
def _run(path: str) -> dict[str, Any]:
    try:
        loader = _Loader(Path(path).stem, path)
        module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
        loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: cannot be run: {type(error).__name__}: {error}") from error
    return vars(module)
