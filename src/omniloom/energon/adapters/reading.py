"""Energon's small functions on files and names, in its own signatures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from omniloom.data.index import yaml_dialect
from omniloom.data.index.braces import collapse_braces
from omniloom.data.mix.subset import Subset
from omniloom.energon.adapters.epath import EPath
from omniloom.errors import ConfigError


def load_yaml(stream: IO[bytes] | bytes | str, *, name: str = "YAML") -> Any:
    """The content of a YAML document.

    Args:
        stream: the text, or a file to read it from.
        name: what to call it in messages.
    """
    return yaml_dialect.load_yaml(stream if isinstance(stream, bytes | str) else stream.read(), name=name)


def load_yaml_json(path: EPath | str) -> Any:
    """The content of a file that ends in ``.yaml`` or ``.json``.

    Raises:
        ConfigError: it ends otherwise.
    """
    file = EPath(path)
    if file.name.endswith(".yaml"):
        return load_yaml(file.read_bytes(), name=str(file))
    if file.name.endswith(".json"):
        return json.loads(file.read_bytes())
    raise ConfigError(f"{file}: a file that ends in .yaml or .json expected")


def collapse(strings: Sequence[str], keep_order: bool = False) -> list[str]:
    """Brace patterns that expand to these names.

    Args:
        strings: the names.
        keep_order: they expand in this order; otherwise in that of their numbers, which takes fewer patterns.
    """
    return collapse_braces(strings if keep_order else sorted(strings, key=_numbers))


def _numbers(name: str) -> list[tuple[str, int]]:
    pieces = re.split(r"(\d+)", name)
    return [(text, int(number or 0)) for text, number in zip(pieces[::2], [*pieces[1::2], ""], strict=True)]


@dataclass(frozen=True, init=False)
class DatasetSubset(Subset):
    """A range of rows: first an absolute one, then a share of what that leaves.

    Args:
        range: (start, stop) from 0 to 1; ``None``: all.
        absolute_range: (start, stop) in rows; ``None`` as stop: the end.
    """

    def __init__(
        self,
        range: tuple[float, float] | None = None,
        absolute_range: tuple[int, int | None] | None = None,
    ) -> None:
        super().__init__(share=range or (0.0, 1.0), rows=absolute_range)

    @property
    def range(self) -> tuple[float, float]:
        """(start, stop) from 0 to 1."""
        return self.share

    @property
    def absolute_range(self) -> tuple[int, int | None] | None:
        """(start, stop) in rows."""
        return self.rows

    def compute_subset(self, total_samples: int) -> tuple[int, int]:
        """First row and the row after the last one, of a data set with so many rows."""
        return self.of(total_samples, where="subset")
