"""Plain values become frozen dataclasses; what does not fit is told with its place and the nearest name."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from omniloom.errors import ConfigError

T = TypeVar("T")

Place = typing.Callable[[Sequence[str]], str]
"""Where the value of a path of keys was written, such as ``sft.yaml, line 12``."""


def read_dataclass(kind: type[T], value: object, *, place: Place, path: Sequence[str] = ()) -> T:
    """A dataclass of a mapping, and of mappings in it.

    Args:
        kind: the dataclass; its fields may be dataclasses, mappings of names to them, and whatever pydantic validates.
        value: a mapping of field names to values.
        place: where values were written, for messages.
        path: the keys under which the mapping lies.

    Raises:
        ConfigError: an unknown key, a missing one, or a value of another kind, with its place.
    """
    if not isinstance(value, Mapping):
        raise _wrong(path, place, f"{_told(value)} found; a mapping of settings expected")
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    for key in value:
        if key not in fields:
            near = get_close_matches(str(key), fields, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(fields)}."
            raise _wrong((*path, str(key)), place, f"there is no such setting. {hint}")
    missing = [name for name, field in fields.items() if _required(field) and name not in value]
    if missing:
        raise _wrong(path, place, f"{', '.join(missing)} missing")
    hints = _hints(typing.cast(Any, kind))
    made = {name: _read(hints[name], inner, place, (*path, name)) for name, inner in value.items()}
    try:
        return kind(**made)
    except ConfigError as error:
        raise ConfigError(f"{place(path)}: {error}") from error


def set_value(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value under dotted keys, as ``optimizer.weight_decay``, making mappings on the way.

    Raises:
        ConfigError: the way leads through something that is no mapping.
    """
    *keys, last = path.split(".")
    for key in keys:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: {key} holds {_told(tree)}; it has no settings of its own.")
    tree[last] = value


def to_plain(value: Any) -> Any:
    """A dataclass as mappings, lists, strings and numbers, which `read_dataclass` reads again."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def _read(kind: Any, value: Any, place: Place, path: Sequence[str]) -> Any:
    inner = _dataclass_in(kind)
    if inner is not None and value is not None:
        return read_dataclass(inner, value, place=place, path=path)
    if get_origin(kind) in (Mapping, dict) and dataclasses.is_dataclass(get_args(kind)[1]):
        if not isinstance(value, Mapping):
            raise _wrong(path, place, f"{_told(value)} found; a mapping of names expected")
        of = get_args(kind)[1]
        return {str(key): read_dataclass(of, one, place=place, path=(*path, str(key))) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, place, f"{value} found; a number that is not beyond all others expected")
    try:
        return _adapter(kind).validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("constrained"))
        told = f"{_told(value)} found; {first['msg'][0].lower()}{first['msg'][1:]}"
        raise _wrong(path, place, told + (f" (at {where})" if where and isinstance(value, list) else "")) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _dataclass_in(kind: Any) -> Any:
    """The dataclass of a type, also where it may be ``None``."""
    options = get_args(kind) if get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    found = [option for option in options if dataclasses.is_dataclass(option)]
    return found[0] if len(found) == 1 else None


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _told(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"


def _wrong(path: Sequence[str], place: Place, told: str) -> ConfigError:
    end = "" if told.endswith(("?", ".")) else "."
    return ConfigError(f"{place(path)}: {'.'.join(path) or 'the whole'}: {told}{end}")
