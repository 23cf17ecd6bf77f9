"""YAML as Energon reads it: its readings of plain scalars, on top of a complete YAML parser.

Quoted scalars are always strings. A plain one is null (``null``, ``~``, nothing), a truth value (``true``, ``yes``,
``false``, ``no`` in any case), a number as Python's ``int`` and ``float`` read it (``010`` is ten, ``1_000`` a
thousand), or a string: ``on``, ``y``, ``0x10``, ``.inf`` and dates stay text. Keys of mappings are always strings;
of two equal keys the last wins. Anchors, aliases and merge keys work, which Energon leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from omniloom.errors import ConfigError

try:
    from yaml import CBaseLoader as _Loader
    from yaml import CSafeDumper as _Dumper
except ImportError:
    # PyYAML without libyaml: the same answers, ten times slower.
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]

NODE_LIMIT = 20_000_000
_STRING_TAG = "tag:yaml.org,2002:str"
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "yes": True, "false": False, "no": False}
_NO_KEY = object()


class _QuotingDumper(_Dumper):
    """Quotes what this module would not read back as text, such as ``08`` or ``1e3``; PyYAML sees to the rest."""


def _represent_text(dumper: _QuotingDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(_STRING_TAG, text, style=None if plain_scalar(text) is text else "'")


_QuotingDumper.add_representer(str, _represent_text)


def load_yaml(data: bytes | str, *, name: str) -> Any:
    """Read one YAML document, or a list of them when the text holds several.

    Args:
        data: the text, UTF-8 when it is bytes.
        name: name of the file, for messages.

    Returns:
        Nested dicts, lists, strings, numbers, truth values and ``None``.

    Raises:
        ConfigError: the text is no YAML; names file, line and column.
    """
    documents = list(_documents(data, name))
    if not documents:
        return None
    return documents[0] if len(documents) == 1 else documents


def dump_yaml(value: Any) -> str:
    """YAML text of plain data, its keys in their own order, read back the same by any reader of YAML 1.1 and here."""
    return yaml.dump(value, Dumper=_QuotingDumper, sort_keys=False, allow_unicode=True)


def plain_scalar(text: str) -> Any:
    """What an unquoted scalar means."""
    lowered = text.lower()
    if lowered in _WORDS:
        return _WORDS[lowered]
    try:
        return float(text) if "." in text or "e" in lowered else int(text)
    except ValueError:
        return text


@dataclass(slots=True)
class _Container:
    """A list or mapping that is being filled; ``nodes`` counts it and all below it, aliases written out."""

    value: Any
    anchor: str | None = None
    key: Any = _NO_KEY
    nodes: int = 1
    merged: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Anchors:
    """What the anchors of one document stand for; ``None`` while the value is still being read."""

    values: dict[str, tuple[Any, int] | None] = field(default_factory=dict)

    def resolve(self, event: yaml.AliasEvent, name: str) -> tuple[Any, int]:
        """Value and node count of an alias."""
        if event.anchor not in self.values:
            raise _error(name, event, f"the alias *{event.anchor} has no anchor; quote the text if it is no alias")
        found = self.values[event.anchor]
        if found is None:
            raise _error(name, event, f"the alias *{event.anchor} stands inside its own anchor")
        return found


def _documents(data: bytes | str, name: str) -> Iterator[Any]:
    try:
        events = iter(yaml.parse(data, Loader=_Loader))
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                yield _document(events, name)
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        place = f"{name}, line {where.line + 1}, column {where.column + 1}" if where else name
        raise ConfigError(
            f"{place}: not valid YAML: {error.problem or error.context}. Texts with special characters need quotes."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}. The file has to be UTF-8 text.") from error


def _document(events: Iterator[Any], name: str) -> Any:
    anchors = _Anchors()
    root = _Container([])
    stack = [root]
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            _place_scalar(event, stack[-1], anchors, name)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            top = stack[-1]
            if isinstance(top.value, dict) and top.key is _NO_KEY:
                raise _error(name, event, "a list or mapping is used as a key; keys have to be text")
            value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            stack.append(_Container(value, event.anchor))
            if event.anchor is not None:
                anchors.values[event.anchor] = None
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            done = stack.pop()
            _finish(done)
            if done.anchor is not None:
                anchors.values[done.anchor] = (done.value, done.nodes)
            _place(done.value, done.nodes, stack[-1], event, name)
        elif isinstance(event, yaml.AliasEvent):
            value, nodes = anchors.resolve(event, name)
            if isinstance(stack[-1].value, dict) and stack[-1].key is _NO_KEY:
                raise _error(name, event, "an alias is used as a key; keys have to be text")
            _place(value, nodes, stack[-1], event, name)
        else:
            break
    return root.value[0] if root.value else None


def _place_scalar(event: yaml.ScalarEvent, top: _Container, anchors: _Anchors, name: str) -> None:
    text = event.value
    if isinstance(top.value, dict) and top.key is _NO_KEY:
        top.key = text
        return
    quoted = event.style not in (None, "")
    value = text if quoted or event.tag == _STRING_TAG else plain_scalar(text)
    if event.anchor is not None:
        anchors.values[event.anchor] = (value, 1)
    _place(value, 1, top, event, name)


def _place(value: Any, nodes: int, top: _Container, event: yaml.Event, name: str) -> None:
    top.nodes += nodes
    if top.nodes > NODE_LIMIT:
        raise _error(name, event, f"aliases repeat more than {NODE_LIMIT:,} values")
    if isinstance(top.value, list):
        top.value.append(value)
        return
    if top.key == "<<" and _is_mergeable(value):
        top.merged.append(value)
    else:
        top.value[top.key] = value
    top.key = _NO_KEY


def _is_mergeable(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
    )


def _finish(container: _Container) -> None:
    for merged in container.merged:
        for mapping in merged if isinstance(merged, list) else [merged]:
            for key, value in mapping.items():
                container.value.setdefault(key, value)


def _error(name: str, event: yaml.Event, problem: str) -> ConfigError:
    mark = event.start_mark
    place = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
    return ConfigError(f"{place}: {problem}.")
