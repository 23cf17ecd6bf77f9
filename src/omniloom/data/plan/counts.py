"""Settings that are whole numbers, checked where they come in."""

from __future__ import annotations

from omniloom.errors import ConfigError


def check_at_least(least: int, name: str, value: int | None, *, where: str = "") -> None:
    """Raise ConfigError where a setting is no whole number or is below ``least``; ``None`` is not looked at."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigError(f"{where}{name}={value!r} found; a whole number of at least {least} expected")
