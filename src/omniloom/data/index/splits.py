"""``.nv-meta/split.yaml``: which shards belong to train, val and test, and what is left out."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.index.braces import collapse_braces, expand_all, expand_braces
from omniloom.data.index.info import parse_json
from omniloom.data.index.layout import SPLIT_JSON, SPLIT_YAML, is_inside, meta_name, meta_path, read_sidecar
from omniloom.data.index.yaml_dialect import dump_yaml, load_yaml
from omniloom.errors import ConfigError, DatasetError
from omniloom.storage.urls import redacted

RATIO_PARTS = ("train", "val", "test")
SHUFFLE_SEED = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """The parts of a data set.

    Attributes:
        parts: shard names of each part, braces expanded; their order is the order of the samples.
        exclude: names of shards, or ``<shard>/<key>`` of samples, that no part yields; braces expanded.
        path: the file they were read from, for messages.
    """

    parts: dict[str, list[str]]
    exclude: frozenset[str] = field(default_factory=frozenset)
    path: str = ""

    def shards_of(self, part: str) -> list[str]:
        """Shards of a part without the excluded ones.

        Raises:
            DatasetError: there is no such part, or nothing is left of it.
        """
        if part not in self.parts:
            raise DatasetError(f"{self.path}: there is no split part {part!r}; there are {sorted(self.parts)}.")
        shards = [name for name in self.parts[part] if name not in self.exclude]
        if not shards:
            left = "is empty" if not self.parts[part] else "has only excluded shards"
            filled = sorted(name for name, names in self.parts.items() if set(names) - self.exclude)
            raise DatasetError(
                f"{self.path}: split part {part!r} {left}; parts with shards are {filled}. Use one of them, or "
                "prepare the data set again with another --split-ratio."
            )
        return shards

    def excluded_keys(self, shards: Collection[str]) -> dict[str, frozenset[str]]:
        """Excluded sample keys by shard, for those of ``shards`` that have any."""
        found: dict[str, set[str]] = {}
        for entry in self.exclude:
            for slash in re.finditer("/", entry):
                shard = entry[: slash.start()]
                if shard in shards:
                    found.setdefault(shard, set()).add(entry[slash.end() :])
        return {shard: frozenset(keys) for shard, keys in found.items()}


def read_splits(root: str | os.PathLike[str], *, split_config: str = SPLIT_YAML) -> Splits:
    """Read the split file of a data set, YAML or JSON; for a missing ``split.yaml``, ``split.json`` is tried.

    Raises:
        DatasetError: there is no such file, or it is damaged.
        ConfigError: its text is no YAML, or its name ends neither in ``.yaml`` nor in ``.json``.
    """
    if not split_config.endswith((".yaml", ".json")):
        raise ConfigError(f"split_config={split_config!r}: expected a name that ends in .yaml or .json.")
    file = split_config
    if file == SPLIT_YAML and not meta_path(root, file).is_file() and meta_path(root, SPLIT_JSON).is_file():
        file = SPLIT_JSON
    advice = f"Check the name, or run `omniloom prepare {redacted(os.fspath(root))}`."
    data, name = read_sidecar(root, file, what="split file", advice=advice), meta_name(root, file)
    return _checked(parse_json(data, name) if file.endswith(".json") else load_yaml(data, name=name), name)


def encode_splits(parts: Mapping[str, Sequence[str]], *, name: str, exclude: Sequence[str] = ()) -> str:
    """Content of a split file, the names of shards collapsed to brace patterns.

    Args:
        parts: shard names of each part.
        name: name of the file; ``.json`` or ``.yaml``.
        exclude: shards and samples that are left out, written as they are.
    """
    plain = {
        "split_parts": {part: collapse_braces(shards) for part, shards in parts.items()},
        "exclude": list(exclude),
    }
    return json.dumps(plain, indent=2) if name.endswith(".json") else dump_yaml(plain)


def parse_ratio(text: str) -> dict[str, float]:
    """The ratio of train, val and test from a text such as ``8,1,1`` or ``0.8, 0.1, 0.1``.

    Raises:
        ConfigError: it is not three numbers from 0 on with a sum above 0.
    """
    try:
        numbers = [float(piece) for piece in text.split(",")]
    except ValueError:
        numbers = []
    usable = len(numbers) == len(RATIO_PARTS) and all(math.isfinite(n) and n >= 0 for n in numbers)
    if not usable or not 0 < sum(numbers) < math.inf:
        raise ConfigError(
            f"the split ratio {text!r} is not usable; expected three numbers from 0 on for train, val and test, "
            "such as 8,1,1 or 1,0,0."
        )
    return dict(zip(RATIO_PARTS, numbers, strict=True))


def split_by_ratio(
    shards: Sequence[str], ratio: Mapping[str, float], *, shuffle_seed: int | None = None
) -> dict[str, list[str]]:
    """Deal shards to parts in their order, as many as their share says.

    Borders are Energon's: ``int(shards * cumulated share)``. Its rounding can lose the last shards; here the last part
    with a share takes them.

    Args:
        shards: names of the shards.
        ratio: share of each part; need not sum to one.
        shuffle_seed: shuffle the shards first, as Energon does with 42; ``None`` keeps their order.
    """
    names = list(shards)
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(names)
    total = sum(ratio.values())
    last = max((at for at, share in enumerate(ratio.values()) if share > 0), default=-1)
    parts: dict[str, list[str]] = {}
    begin, cumulated = 0, 0.0
    for at, (part, share) in enumerate(ratio.items()):
        cumulated += share / total
        stop = len(names) if at == last else min(int(len(names) * cumulated), len(names))
        parts[part] = names[begin:stop]
        begin = max(begin, stop)
    return parts


def parse_part_patterns(texts: Sequence[str]) -> list[tuple[str, list[re.Pattern[str]]]]:
    """Part names and regular expressions from texts such as ``train:train/.*``.

    The text after the first colon is expanded as a brace pattern; each result is a regular expression for the
    beginning of a shard's name. Backslashes belong to the expression and escape no braces.

    Raises:
        ConfigError: no colon, an unusable expression, or a part named twice.
    """
    found: dict[str, list[re.Pattern[str]]] = {}
    for text in texts:
        part, colon, pattern = text.partition(":")
        if not colon or not part:
            raise ConfigError(f"the split part {text!r} has no name; expected PART:PATTERN, such as 'val:val/.*'.")
        if part in found:
            raise ConfigError(f"the split part {part!r} is given twice; use one pattern with {{a,b}} alternatives.")
        try:
            found[part] = [re.compile(expression) for expression in expand_braces(pattern, escape=False)]
        except re.error as error:
            raise ConfigError(f"the pattern of split part {part!r} is no regular expression: {error}.") from error
    return list(found.items())


def split_by_patterns(
    shards: Sequence[str], patterns: Sequence[tuple[str, Sequence[re.Pattern[str]]]]
) -> dict[str, list[str]]:
    """The shards of each part by the beginning of their names; a shard may match several parts, or none."""
    return {
        part: [shard for shard in shards if any(pattern.match(shard) for pattern in expressions)]
        for part, expressions in patterns
    }


def _checked(raw: Any, path: str) -> Splits:
    if not isinstance(raw, dict) or not isinstance(raw.get("split_parts"), dict):
        raise DatasetError(f"{path}: expected a mapping with the key 'split_parts'. Run `omniloom prepare` again.")
    unknown = sorted(set(raw) - {"split_parts", "exclude"})
    if unknown:
        raise DatasetError(f"{path}: unknown keys {unknown}; expected 'split_parts' and 'exclude'.")
    parts = {}
    for part, names in raw["split_parts"].items():
        parts[part] = _expanded(names, f"{path}: split part {part!r}")
        outside = next((name for name in parts[part] if not is_inside(name)), None)
        if outside is not None:
            raise DatasetError(
                f"{path}: shard {outside!r} lies outside the data set; expected a path below its folder."
            )
    exclude = _expanded(raw.get("exclude"), f"{path}: 'exclude'")
    return Splits(parts=parts, exclude=frozenset(exclude), path=path)


def _expanded(names: Any, where: str) -> list[str]:
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DatasetError(f"{where} is {names!r:.100}; expected a list of texts.")
    try:
        return expand_all(names)
    except ConfigError as error:
        raise DatasetError(f"{where}: {error}") from error
