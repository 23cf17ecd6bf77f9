"""Values of a config.json, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.errors import ConfigError


class Fields:
    """A section of config.json over the defaults of its kind.

    Files of Hugging Face leave out, in sections within sections, what equals the defaults of the class; so every
    family states them.
    """

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.given = given
        self._values = {**defaults, **{name: value for name, value in given.items() if value is not None}}
        self._kind = given.get("model_type", "?")
        if "quantization_config" in given:
            raise ConfigError(
                f"config.json of {self._kind!r}: the weights are quantised ('quantization_config'). "
                "Use the files of the model in bfloat16, float16 or float32."
            )

    def integer(self, name: str) -> int:
        """A whole number."""
        value = self._of(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise self._wrong(name, value, "a whole number")
        return int(value)

    def number(self, name: str) -> float:
        """A number."""
        value = self._of(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._of(name)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str:
        """A word."""
        value = self._of(name)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def triple(self, name: str) -> tuple[float, float, float]:
        """Three numbers, one a channel."""
        value = self._of(name)
        if not isinstance(value, list | tuple) or len(value) != 3:
            raise self._wrong(name, value, "three numbers")
        red, green, blue = (float(one) for one in value)
        return red, green, blue

    def side(self, name: str) -> int:
        """A length in pixels, or two equal ones."""
        value = self._of(name)
        if isinstance(value, list | tuple):
            if len(set(value)) != 1:
                raise self._wrong(name, value, "a square")
            return int(value[0])
        return self.integer(name)

    def section(self, name: str) -> Mapping[str, Any]:
        """A section."""
        value = self._of(name)
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "a section")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """A value of any kind, or the default."""
        return self._values.get(name, default)

    def expect(self, name: str, *supported: Any) -> None:
        """Refuse a value that the model here could not honour."""
        if name in self._values and self._values[name] not in supported:
            raise self._wrong(name, self._values[name], " or ".join(repr(one) for one in supported))

    def _of(self, name: str) -> Any:
        if name not in self._values:
            raise ConfigError(f"config.json of {self._kind!r} has no {name!r}. Is the file complete?")
        return self._values[name]

    def _wrong(self, name: str, value: Any, expected: str) -> ConfigError:
        return ConfigError(
            f"config.json of {self._kind!r}: {name!r} is {value!r}, expected {expected}. "
            "For other models use `hf:PATH`, which runs transformers' own code."
        )
