"""What a family is: how its config.json is read and written, and what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.weights.table import Table

Config = DecoderConfig | VisionConfig | LlavaConfig

OUR_LANGUAGE = "language_model."
OUR_VISION = "vision_tower."
OUR_PROJECTOR = "projector."


@dataclass(frozen=True)
class Family:
    """A row of the table of families.

    Attributes:
        name: as in ``DecoderConfig.family`` and ``VisionConfig.family``.
        kind: what its config describes.
        model_types: values of ``model_type`` in config.json that it reads.
        read: config.json to our config.
        write: our config to what config.json holds.
        tables: one table for each generation of key names; the first is the one that is written.
    """

    name: str
    kind: Literal["language", "vision", "llava"]
    model_types: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Any]
    write: Callable[[Any], dict[str, Any]]
    tables: Callable[[Any], tuple[Table, ...]]


def fitting_table(tables: Iterable[Table], names: Iterable[str]) -> Table:
    """The table of the key generation that a file has: the one under which the fewest names are left over.

    Args:
        tables: of one family.
        names: all tensor names of the file.

    Raises:
        ConfigError: there are no tables.
    """
    there = list(names)
    ranked = sorted(tables, key=lambda table: sum(len(side) for side in table.left_over(there)))
    if not ranked:
        raise ConfigError("no table of tensor names was given.")
    return ranked[0]
