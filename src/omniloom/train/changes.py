"""What of a recipe is another than when a run was last saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NOTHING = "nothing"


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that differ, such as ``data.max_tokens: 2048 -> 1024``, in the order of their names.

    Args:
        before: a recipe as a checkpoint keeps it.
        now: the same of the run that goes on.
    """
    old, new = dict(_settings(before, "")), dict(_settings(now, ""))
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return [f"{name}: {_told(old, name)} -> {_told(new, name)}" for name in names]


def _settings(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values of a tree under dotted keys; an empty mapping is none."""
    if not isinstance(tree, Mapping):
        yield path, tree
        return
    for name, inner in tree.items():
        yield from _settings(inner, f"{path}.{name}" if path else str(name))


def _told(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    return _NOTHING if value is None or value == "" else str(value)
