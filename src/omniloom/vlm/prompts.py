"""Pools of prompts for samples that bring none, as data: Megatron's file format, and pools of our own beside this file.

A pool is a list of texts under a group and a name: ``CaptioningPretraining`` / ``raw``. ``{}`` in a text is where the
sample's own question, text or region goes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError

Pools = Mapping[str, Mapping[str, list[str]]]


@dataclass(frozen=True)
class PromptPools:
    """Pools of prompts by group and name.

    Attributes:
        pools: the texts.
        where: file they came from, for messages.
    """

    pools: Pools
    where: str

    @classmethod
    def from_file(cls, path: str | Path) -> PromptPools:
        """Pools of a JSON file, such as Megatron's ``--prompt-path``.

        Raises:
            ConfigError: it is no such file.
        """
        try:
            read = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: no readable JSON: {error}") from error
        return cls(_checked(read, str(path)), str(path))

    @classmethod
    def standard(cls) -> PromptPools:
        """The pools that come with omniloom."""
        text = files("omniloom.vlm").joinpath("prompts.json").read_text(encoding="utf-8")
        return cls(_checked(json.loads(text), "prompts.json"), "prompts.json")

    def pool(self, group: str, name: str) -> list[str]:
        """The texts of a pool.

        Raises:
            ConfigError: the file has none of that name.
        """
        found = self.pools.get(group, {}).get(name)
        if not found:
            raise ConfigError(
                f"{self.where} has no prompts under {group}.{name}, which samples of this kind need. It has "
                f"{', '.join(f'{g}.{n}' for g, names in self.pools.items() for n in names)}."
            )
        return found

    def draw(self, group: str, name: str, *values: str) -> str:
        """One text of a pool, by `random`, its ``{}`` filled in."""
        text = random.choice(self.pool(group, name))
        for value in values:
            text = text.replace("{}", value, 1)
        return text


def _checked(read: Any, where: str) -> Pools:
    sound = isinstance(read, dict) and all(
        isinstance(names, dict)
        and all(isinstance(pool, list) and all(isinstance(text, str) for text in pool) for pool in names.values())
        for names in read.values()
    )
    if not sound:
        raise ConfigError(f'{where}: expected {{"Group": {{"name": ["text", ...]}}}}')
    pools: Pools = read
    return pools
