"""How the shards of a data set are to be dealt to its split parts, decided before they are known."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omniloom.data.index.splits import (
    RATIO_PARTS,
    Splits,
    parse_part_patterns,
    parse_ratio,
    read_splits,
    split_by_patterns,
    split_by_ratio,
)
from omniloom.errors import ConfigError, DatasetError


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """A rule that deals shards to parts.

    Attributes:
        ratio: share of each part, where the parts are cut by share.
        patterns: expressions of each part, where the parts are cut by name.
        shuffle_seed: shuffle the shards before they are cut by share.
        kept: the parts as they were; shards in them stay, new ones go where ``ratio`` deals them, or without one to
            the first part of ``train`` and the others.
    """

    ratio: Mapping[str, float] | None = None
    patterns: Sequence[tuple[str, Sequence[re.Pattern[str]]]] | None = None
    shuffle_seed: int | None = None
    kept: Splits | None = None

    def deal(self, shards: Sequence[str]) -> dict[str, list[str]]:
        """The shards of each part.

        Raises:
            DatasetError: a part that was asked for would be empty.
        """
        if self.kept is not None:
            return self._extend(self.kept, shards)
        if self.patterns is not None:
            parts = split_by_patterns(shards, self.patterns)
            empty = next((part for part, names in parts.items() if not names), None)
            if empty is not None:
                shown = " or ".join(repr(pattern.pattern) for pattern in dict(self.patterns)[empty])
                raise DatasetError(
                    f"split part {empty!r} would be empty: none of the {len(shards):,} shards begins with {shown}; the "
                    f"first is {shards[0]!r}. Correct the pattern or leave the part out."
                )
            return parts
        ratio = self.ratio or dict.fromkeys(RATIO_PARTS, 0.0) | {"train": 1.0}
        parts = split_by_ratio(shards, ratio, shuffle_seed=self.shuffle_seed)
        for part, share in ratio.items():
            if share > 0 and not parts[part]:
                asked = ",".join(f"{number:g}" for number in ratio.values())
                raise DatasetError(
                    f"split part {part!r} would be empty: the ratio {asked} of {len(shards):,} shards leaves none for "
                    f"it. Make more and smaller shards, or use another ratio such as "
                    f"{_working_ratio(ratio, len(shards))}."
                )
        return parts

    def excluded(self) -> list[str]:
        """What the split file is to leave out."""
        return sorted(self.kept.exclude) if self.kept else []

    def _extend(self, kept: Splits, shards: Sequence[str]) -> dict[str, list[str]]:
        present = set(shards)
        parts = {part: [name for name in names if name in present] for part, names in kept.parts.items()}
        known = {name for names in parts.values() for name in names} | kept.exclude
        new = [name for name in shards if name not in known]
        if self.ratio is not None:
            dealt = split_by_ratio(new, self.ratio, shuffle_seed=self.shuffle_seed)
        else:
            dealt = {"train" if "train" in parts else next(iter(parts), "train"): new}
        for part, names in dealt.items():
            parts.setdefault(part, []).extend(names)
        return parts


def plan_splits(
    root: str | os.PathLike[str],
    *,
    split_ratio: str | Mapping[str, float] | None = None,
    split_parts: Sequence[str] | None = None,
    split_config: str,
    shuffle_seed: int | None = None,
    keep_split: bool = False,
) -> SplitPlan:
    """The plan from what a caller gave; see `prepare_dataset` for the arguments.

    Raises:
        ConfigError: an argument is unusable, or two contradict each other.
        DatasetError: there is no split to keep.
    """
    if not split_config.endswith((".yaml", ".json")):
        raise ConfigError(f"split_config={split_config!r}: expected a name that ends in .yaml or .json.")
    if split_parts and keep_split:
        raise ConfigError("keep_split and split_parts contradict each other: patterns deal all shards anew.")
    if split_parts:
        return SplitPlan(patterns=parse_part_patterns(split_parts))
    ratio = parse_ratio(split_ratio) if isinstance(split_ratio, str) else split_ratio
    if ratio is not None and (not all(share >= 0 for share in ratio.values()) or not sum(ratio.values()) > 0):
        raise ConfigError(f"split_ratio={dict(ratio)!r}: expected shares from 0 on with a sum above 0.")
    kept = read_splits(root, split_config=split_config) if keep_split else None
    return SplitPlan(ratio=ratio, shuffle_seed=shuffle_seed, kept=kept)


def _working_ratio(ratio: Mapping[str, float], shards: int) -> str:
    """A ratio that gives every part with a share at least one shard, or all shards to the largest."""
    asked = [part for part, share in ratio.items() if share > 0]
    if len(asked) > shards:
        largest = max(ratio, key=lambda part: ratio[part])
        return ",".join("1" if part == largest else "0" for part in ratio)
    total = sum(ratio.values())
    counts = {part: max(1, int(shards * ratio[part] / total)) for part in asked}
    while sum(counts.values()) > shards:
        counts[max(counts, key=lambda part: counts[part])] -= 1
    return ",".join(str(counts.get(part, 0)) for part in ratio)
