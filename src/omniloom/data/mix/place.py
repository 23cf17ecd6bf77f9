"""Where in a metadataset something stands, for messages: worked out only when a message is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Place:
    """A place in a metadataset.

    Attributes:
        file: the YAML file; ``None`` for a value that was given from Python.
        keys: keys and positions that lead there from the top.
    """

    file: str | None = None
    keys: tuple[str | int, ...] = ()

    def at(self, *keys: str | int) -> Place:
        """The place below this one."""
        return Place(self.file, self.keys + keys)

    def __str__(self) -> str:
        trail = " > ".join(str(key) for key in self.keys)
        if self.file is None:
            return trail or "the mix"
        line = self._line()
        where = self.file if line is None else f"{self.file}:{line}"
        return f"{where} ({trail})" if trail else where

    def _line(self) -> int | None:
        """Line of the last key that is there, from 1; ``None`` when the file can no longer be read."""
        try:
            node = yaml.compose(Path(self.file or "").read_bytes(), Loader=yaml.SafeLoader)
        except (OSError, yaml.YAMLError):
            return None
        mark = node.start_mark if node is not None else None
        for key in self.keys:
            found = _below(node, key)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        return None if mark is None else int(mark.line) + 1


def _below(node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The node whose line is told for a key, and the one of its value; merged mappings are looked through."""
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key]
    if not isinstance(node, yaml.MappingNode):
        return None
    merged: list[yaml.Node] = []
    for name, value in node.value:
        if name.value == str(key):
            return name, value
        if name.value == "<<":
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
    return next((found for one in merged if (found := _below(one, key)) is not None), None)
