"""Typed reading of one mapping of a mix: unknown keys and wrong types are errors with their line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from omniloom.data.mix.place import Place
from omniloom.errors import ConfigError

_KINDS = {str: "a text", int: "a whole number", float: "a number", dict: "a mapping", list: "a list"}


class Fields:
    """The fields of a mapping.

    Args:
        value: what stands there.
        place: where.
        allowed: the keys that may be there.
        what: what the mapping describes, for messages.

    Raises:
        ConfigError: it is no mapping, or has a key that is not allowed.
    """

    def __init__(self, value: Any, place: Place, *, allowed: Iterable[str], what: str) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{place}: {value!r:.80} found where {what} is expected, a mapping")
        self.value = value
        self.place = place
        allowed = list(allowed)
        for key in value:
            if key not in allowed:
                raise unknown_key(str(key), allowed, place=place.at(str(key)), what=what)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def at(self, key: str) -> Place:
        """Where a key stands."""
        return self.place.at(key)

    def text(self, key: str) -> str | None:
        """A text, or ``None`` where it is not given."""
        value: str | None = self._of(key, str)
        return value

    def number(self, key: str, default: float) -> float:
        """A number."""
        value = self._of(key, float)
        return default if value is None else float(value)

    def whole_or_none(self, key: str, default: int) -> int | None:
        """A whole number, or ``None`` where that is written."""
        if key not in self.value:
            return default
        value: int | None = self._of(key, int)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping; empty where it is not given."""
        return dict(self._of(key, dict) or {})

    def sequence(self, key: str) -> list[Any]:
        """A list of at least one thing."""
        value = self._of(key, list)
        if not value:
            raise ConfigError(f"{self.at(key)}: an empty list found, at least one data set expected")
        return list(value)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words; the first where it is not given."""
        value = self.value.get(key, choices[0])
        if value is None and "none" in choices:
            value = "none"  # what YAML readers make of the word where it is not quoted
        if value not in choices:
            raise ConfigError(f"{self.at(key)}: {key}={value!r} found; expected {' or '.join(choices)}")
        return str(value)

    def _of(self, key: str, kind: type) -> Any:
        value = self.value.get(key)
        if value is None:
            return None
        accepted: tuple[type, ...] = {
            float: (int, float), dict: (Mapping,), list: (list, tuple),
        }.get(kind, (kind,))  # fmt: skip
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
            advice = " Put it in quotes." if kind is str and not isinstance(value, list | Mapping) else ""
            raise ConfigError(f"{self.at(key)}: {key}={value!r:.80} found; {_KINDS[kind]} expected.{advice}")
        return value


def unknown_key(key: str, allowed: Iterable[str], *, place: Place, what: str) -> ConfigError:
    """The error of a key that is not known here, with the nearest one that is."""
    allowed = list(allowed)
    near = get_close_matches(key, allowed, n=1)
    meant = f"Did you mean {near[0]!r}?" if near else f"The keys of {what} are {', '.join(allowed)}."
    return ConfigError(f"{place}: unknown key {key!r} in {what}. {meant}")
