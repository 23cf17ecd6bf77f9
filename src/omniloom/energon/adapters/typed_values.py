"""Plain values as typed ones, and back: what Energon's modules do with YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omniloom.data.index.field_map import FieldOption, field_value, parse_field
from omniloom.energon.adapters.opening import arguments_of, object_of
from omniloom.errors import ConfigError


@dataclasses.dataclass(kw_only=True)
class JsonParser:
    """Makes typed values of plain ones.

    Attributes:
        strict: names that a type does not have are errors; otherwise they are left out.
    """

    strict: bool = True

    def raw_to_instance(self, kwargs: Mapping[str, Any], inst_type: Any = None) -> Any:
        """The object of ``__module__`` and ``__class__`` (or ``__function__``, which is called) with arguments.

        Raises:
            ConfigError: it is not there.
        """
        given = dict(kwargs)
        if "__function__" in given:
            function = object_of({name: given.pop(name) for name in ("__module__", "__function__")}, where="a dict")
            return function(**arguments_of(given, where="a dict"))
        if "__class__" not in given and inst_type is not None:
            return self.safe_call_function(given, inst_type)
        return object_of(given, where="a dict")

    def raw_to_typed(self, raw_data: Any, inst_type: Any) -> Any:
        """The value as a type: a dataclass, a class with annotations, a union, a literal, lists and dicts of these.

        Raises:
            ConfigError: it is no such value; or pydantic is not installed.
        """
        if isinstance(raw_data, Mapping) and "__module__" in raw_data:
            return self.raw_to_instance(raw_data, inst_type)
        try:
            from pydantic import ConfigDict, TypeAdapter, ValidationError  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("typed values need pydantic: pip install 'omniloom[train]'") from error
        config = ConfigDict(extra="forbid" if self.strict else "ignore", arbitrary_types_allowed=True)
        own = dataclasses.is_dataclass(inst_type)
        if own and self.strict and isinstance(raw_data, Mapping):
            _refuse_unknown(raw_data, inst_type)
        try:
            return TypeAdapter(inst_type, config=None if own else config).validate_python(raw_data)
        except ValidationError as error:
            raise ConfigError(f"no {getattr(inst_type, '__name__', inst_type)}: {error}") from error

    def safe_call_function(self, raw_data: Mapping[str, Any], fn: Any, **kwargs: Any) -> Any:
        """What a function gives for arguments. Raises ConfigError where they do not fit."""
        given = {**kwargs, **arguments_of(raw_data, where="a dict")}
        try:
            return fn(**given)
        except TypeError as error:
            raise ConfigError(f"{getattr(fn, '__qualname__', fn)} cannot be called so: {error}") from error

    def override(self, value: Any, overrides: Any, inst_type: Any = None) -> Any:
        """A value with some of it replaced: dicts and dataclasses field by field, all else as a whole."""
        if isinstance(overrides, Mapping) and isinstance(value, Mapping):
            return {**value, **{name: self.override(value.get(name), one) for name, one in overrides.items()}}
        if isinstance(overrides, Mapping) and dataclasses.is_dataclass(value) and not isinstance(value, type):
            _refuse_unknown(overrides, type(value))
            changed = {name: self.override(getattr(value, name), one) for name, one in overrides.items()}
            return dataclasses.replace(value, **changed)
        return overrides if inst_type is None else self.raw_to_typed(overrides, inst_type)


def _refuse_unknown(given: Mapping[str, Any], kind: Any) -> None:
    known = {one.name for one in dataclasses.fields(kind)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"{kind.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")


def to_json_object(obj: Any) -> Any:
    """A value as JSON can hold it: dataclasses and named tuples become dicts, other tuples lists.

    Raises:
        ConfigError: it is of another type.
    """
    if obj is None or isinstance(obj, str | int | float | bool):
        return obj
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return {name: to_json_object(getattr(obj, name)) for name in obj._fields}
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {one.name: to_json_object(getattr(obj, one.name)) for one in dataclasses.fields(obj) if one.init}
    if isinstance(obj, list | tuple):
        return [to_json_object(one) for one in obj]
    if isinstance(obj, Mapping):
        return {name: to_json_object(one) for name, one in obj.items()}
    raise ConfigError(f"a {type(obj).__name__} cannot be plain values")


def split_field_access(field_desc: str) -> list[list[str]]:
    """The alternatives of a field map's value: each the name of a part and what follows in brackets."""
    return [[option.part, *option.access] for option in parse_field(field_desc)]


def field_access(value: Any, field: list[list[str]]) -> Any:
    """The value of the first alternative that leads somewhere. Raises DatasetError where none does."""
    return field_value(value, tuple(FieldOption(one[0], tuple(one[1:])) for one in field))
