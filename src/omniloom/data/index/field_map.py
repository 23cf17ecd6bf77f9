"""Which part of a sample fills which field: the grammar of ``field_map``.

A description lists alternatives, tried from left to right; each names a part and may go on into parsed JSON::

    jpg,png                 the part jpg, or else the part png
    json[caption]           the value at 'caption' of the part json
    json[0][value]          the value at 'value' of the first element
    bbox.json[-1]           part names may have dots; negative numbers count from the end

Nothing is stripped: ``jpg, png`` names a part that begins with a space. An alternative that does not have this form
is the name of a part as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from omniloom.errors import ConfigError, DatasetError

_OPTION = re.compile(r"(?P<part>[^[\]]+)(?P<access>(?:\[[^[\]]+\])*)")


class FieldOption(NamedTuple):
    """One alternative of a field.

    Attributes:
        part: name of the part.
        access: keys or list positions, as text, to go into its value.
    """

    part: str
    access: tuple[str, ...]

    def __str__(self) -> str:
        return self.part + "".join(f"[{step}]" for step in self.access)


def parse_field(description: str) -> tuple[FieldOption, ...]:
    """The alternatives of a field's description, in order."""
    options = []
    for text in description.split(","):
        match = _OPTION.fullmatch(text)
        if match is None:
            options.append(FieldOption(description, ()))
        else:
            options.append(
                FieldOption(match["part"], tuple(match["access"][1:-1].split("][")) if match["access"] else ())
            )
    return tuple(options)


def parse_field_map(raw: Any, *, where: str) -> dict[str, tuple[FieldOption, ...]]:
    """The alternatives of each field of a ``field_map``.

    Args:
        raw: the mapping as it was read.
        where: file or option it came from, for messages.

    Raises:
        ConfigError: it is not a mapping of names to texts.
    """
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: the field map is {raw!r:.100}; expected a mapping such as {{'image': 'jpg'}}.")
    for name, description in raw.items():
        if not isinstance(description, str) or not description:
            raise ConfigError(f"{where}: field {name!r} is mapped to {description!r:.100}; expected a text: 'jpg,png'.")
    return {name: parse_field(description) for name, description in raw.items()}


def part_names(fields: Mapping[str, tuple[FieldOption, ...]]) -> frozenset[str]:
    """The parts that a field map reads."""
    return frozenset(option.part for options in fields.values() for option in options)


def field_value(parts: Mapping[str, Any], options: tuple[FieldOption, ...]) -> Any:
    """The value of a field: that of the first alternative that leads somewhere.

    Args:
        parts: decoded values by part name.
        options: the alternatives.

    Raises:
        DatasetError: none leads anywhere; tells where each one ended.
    """
    failures = []
    for option in options:
        try:
            return _follow(parts, option)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            # args, because the text of a KeyError is put in quotes
            failures.append(f"{option}: {error.args[0]}")
    raise DatasetError("; ".join(failures))


def _follow(parts: Mapping[str, Any], option: FieldOption) -> Any:
    if option.part not in parts:
        raise KeyError(f"there is no part {option.part!r}, only {sorted(parts)}")
    value = parts[option.part]
    for step in option.access:
        if isinstance(value, dict):
            if step not in value:
                raise KeyError(f"no key {step!r} among {sorted(map(str, value))[:10]}")
            value = value[step]
        elif isinstance(value, list):
            if not -len(value) <= int(step) < len(value):
                raise IndexError(f"no element {step} in a list of {len(value)}")
            value = value[int(step)]
        else:
            raise TypeError(f"[{step}] asked of a {type(value).__name__}, which has no elements by name or number")
    return value
