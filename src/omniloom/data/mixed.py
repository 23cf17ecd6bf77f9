"""From the flat leaves of a mix to leaves at work, and to the plan's view of them."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import Any

from omniloom.data.index.layout import SPLIT_YAML
from omniloom.data.leaf import Leaf
from omniloom.data.mix.flatten import Flat, FlatJoin, FlatLeaf
from omniloom.data.mix.join_index import Column, join_index_path
from omniloom.data.mix.join_rows import JoinRows
from omniloom.data.mix.joiners import find_joiner
from omniloom.data.mix.names import stable_names
from omniloom.data.mixed_cook import JoinCook, WaysCook
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.shards.rows import SubRows
from omniloom.data.side.store import SideStore
from omniloom.data.source import LeafOpener
from omniloom.errors import ConfigError, DatasetError, OmniloomError
from omniloom.storage.urls import redacted

logger = logging.getLogger("omniloom")

OPENERS = 16
"""Threads that open leaves."""


@dataclass(frozen=True)
class _Entry:
    """A data set of the mix, with all ways that lead to it."""

    ways: tuple[FlatLeaf, ...]
    name: str

    @property
    def first(self) -> FlatLeaf:
        return self.ways[0]

    @property
    def repetitions(self) -> Fraction:
        return sum((way.repetitions for way in self.ways), Fraction(0))

    def is_left_out(self, mode: str) -> bool:
        """Whether no row is ever drawn of it."""
        if mode == "weights":
            return not any(all(any(w for _, w in share.part.points) for share in way.shares) for way in self.ways)
        return self.repetitions == 0


@dataclass(frozen=True)
class OpenedMix:
    """A mix at work.

    Attributes:
        leaves: its leaves, without those that are never drawn.
        plan_leaves: the plan's view of all, those that are never drawn at the end: a saved state may know them.
        repeats_as_one: whether an epoch is one of the whole mix.
    """

    leaves: list[Leaf]
    plan_leaves: tuple[PlanLeaf, ...]
    repeats_as_one: bool


@dataclass(frozen=True)
class MixOpener:
    """Opens the leaves of a flattened mix.

    Attributes:
        opener: opens a single leaf; its settings are the outermost.
        side_stores: opens an auxiliary store by its absolute reference.
    """

    opener: LeafOpener
    side_stores: Callable[[str], SideStore]

    def open_training(
        self, flat: Flat, *, shuffle: Callable[[int | None], Shuffle], default: Shuffle, repeat: bool
    ) -> OpenedMix:
        """The leaves for training.

        Args:
            flat: the flattened mix.
            shuffle: how strongly rows are mixed under a ``shuffle_over_epochs_multiplier``.
            default: how strongly they are where nothing else is said.
            repeat: whether the mix goes on for ever.

        Raises:
            ConfigError: nothing can be drawn, or settings do not fit together.
            DatasetError: a data set is not there or not prepared.
        """
        entries = _entries(flat.leaves, merge=True)
        drawn = [entry for entry in entries if not entry.is_left_out(flat.mode)]
        if not drawn:
            paths = ", ".join(redacted(entry.first.path) for entry in entries) or "no data sets"
            raise ConfigError(f"no sample can be drawn: all weights are 0 ({paths})")
        leaves = self._open_all([(entry.ways, entry.name) for entry in drawn])
        _refuse_nothing(leaves)
        group_rows: dict[Any, float] = defaultdict(float)
        for entry, leaf in zip(drawn, leaves, strict=True):
            for way in entry.ways:
                if way.group is not None:
                    group_rows[way.group] += float(len(leaf.rows) * way.repetitions)
        plan_leaves: list[PlanLeaf] = []
        known: dict[int, float] = {}
        for entry, leaf in zip(drawn, leaves, strict=True):
            strength = shuffle(entry.first.multiplier)
            plan_leaf = PlanLeaf(
                leaf.name,
                len(leaf.rows),
                shuffle=None if strength == default else strength,
                mean_tokens=entry.first.mean_tokens,
                part=_part(entry.first),
            )
            plan_leaves.append(_weighted(plan_leaf, entry, flat.mode, group_rows, repeat=repeat, known=known))
        left_out = [
            PlanLeaf(entry.name, 0, 0.0, part=_part(entry.first)) for entry in entries if entry.is_left_out(flat.mode)
        ]
        as_one = flat.mode in ("repetitions", "concat")
        return OpenedMix(leaves, (*plan_leaves, *left_out), as_one)

    def ways(self, flat: Flat) -> list[tuple[str, tuple[FlatLeaf, ...]]]:
        """The data sets of a mix by name, each with all ways that lead to it."""
        return [(entry.name, entry.ways) for entry in _entries(flat.leaves, merge=True)]

    def open_evaluation(self, flat: Flat) -> list[Leaf]:
        """The leaves for evaluation, in the order of the mix; one that comes twice is gone through twice."""
        leaves = self._open_all([(entry.ways, entry.name) for entry in _entries(flat.leaves, merge=False)])
        _tell_of_nothing(leaves)
        return leaves

    def _open_all(self, asked: Sequence[tuple[tuple[FlatLeaf, ...], str]]) -> list[Leaf]:
        if len(asked) == 1:
            return [self._open(*asked[0])]
        with ThreadPoolExecutor(min(OPENERS, len(asked)), "omniloom-open") as threads:
            opening = [threads.submit(self._open, *one) for one in asked]
        errors = [error for one in opening if isinstance(error := one.exception(), DatasetError)]
        if len(errors) > 1:
            listed = "\n".join(f"- {error}" for error in errors)
            raise DatasetError(
                f"{len(errors)} of {len(asked)} data sets of the mix cannot be opened:\n{listed}"
            ) from errors[0]
        return [one.result() for one in opening]

    def _open(self, ways: tuple[FlatLeaf, ...], name: str) -> Leaf:
        sizes: list[tuple[FlatLeaf, float]] = []
        for way in ways:
            same = next((n for n, (one, _) in enumerate(sizes) if one.subflavors == way.subflavors), None)
            if same is None:
                sizes.append((way, _size(way)))
            else:
                sizes[same] = (sizes[same][0], sizes[same][1] + _size(way))
        opened = [self._open_way(way, name) for way, _ in sizes]
        if len(opened) == 1:
            return opened[0]
        total = sum(size for _, size in sizes)
        borders = tuple(round(upper / total * 2.0**64) for upper in accumulate(size for _, size in sizes))
        return replace(opened[0], cook_row=WaysCook(tuple(leaf.cook_row for leaf in opened), borders))

    def _open_way(self, way: FlatLeaf, name: str) -> Leaf:
        leaf = self._open_one(way, name) if way.join is None else self._open_join(way.join, name)
        if way.subset is None:
            return leaf
        where = f"{way.place}: subset of {redacted(way.path)}"
        return replace(leaf, rows=SubRows(leaf.rows, *way.subset.of(len(leaf.rows), where=where)))

    def _open_one(self, leaf: FlatLeaf, name: str) -> Leaf:
        base = self.opener
        opener = replace(
            base,
            split_part=leaf.split_part,
            split_config=leaf.split_config or base.split_config,
            dataset_config=leaf.dataset_config or base.dataset_config,
            subflavors=dict(leaf.subflavors) or None,
            aux={store: self.side_stores(reference) for store, reference in leaf.aux.items()},
        )
        try:
            return opener.open(leaf.path, name)
        except OmniloomError as error:
            if leaf.place.file is None or type(error) not in (DatasetError, ConfigError):
                raise
            raise type(error)(f"{error}\n  It stands at {leaf.place}.") from error

    def open_columns(self, join: FlatJoin, name: str) -> tuple[Leaf, ...]:
        """The leaves of a join, the primary first."""
        return tuple(self._open_one(column.leaf, name) for column in join.columns)

    def join_columns(self, join: FlatJoin, leaves: tuple[Leaf, ...]) -> list[Column]:
        """The leaves of a join as its index sees them."""
        return [
            Column(leaf.rows, one.nonmatch, redacted(leaf.path)) for leaf, one in zip(leaves, join.columns, strict=True)
        ]

    def _open_join(self, join: FlatJoin, name: str) -> Leaf:
        leaves = self.open_columns(join, name)
        path = join_index_path(self.join_columns(join, leaves), cache_folder=join.cache_folder)
        keywords = tuple(column.name or "" for column in join.columns)
        joiner = find_joiner(join.joiner, trust=self.opener.trust)
        cook = JoinCook(leaves, joiner, keywords if all(keywords) else None)
        return Leaf(name, JoinRows(tuple(leaf.rows for leaf in leaves), path), cook, leaves[0].path)


def _refuse_nothing(leaves: Sequence[Leaf]) -> None:
    """See that there is something to train on. Raises DatasetError where no row is left of any data set."""
    if not any(len(leaf.rows) for leaf in leaves):
        raise DatasetError(
            f"no sample can be drawn: no row is left of {', '.join(redacted(leaf.path) for leaf in leaves)}. Subsets "
            "may be too small for their data sets, or joins may find no partners."
        )
    _tell_of_nothing(leaves)


def _tell_of_nothing(leaves: Sequence[Leaf]) -> None:
    """Warn of data sets of which no row is left; a pass over nothing else gives nothing, as Energon's does."""
    for leaf in leaves:
        if not len(leaf.rows):
            logger.warning("%s: no row is left of it", redacted(leaf.path))


def _weighted(
    leaf: PlanLeaf,
    entry: _Entry,
    mode: str,
    group_rows: Mapping[Any, float],
    *,
    repeat: bool,
    known: dict[int, float],
) -> PlanLeaf:
    """A leaf of the plan with its weight in the mix, and its end; ``known`` as for `Share.at`."""
    if mode == "single":
        return replace(leaf, passes=None if repeat else 1)
    if mode != "weights":
        passes = entry.repetitions
        whole = int(passes) if passes.denominator == 1 else passes
        return replace(leaf, weight=float(leaf.rows * passes), passes=whole)
    factors = [
        1.0 if way.group is None else float(leaf.rows * way.repetitions) / (group_rows[way.group] or 1.0)
        for way in entry.ways
    ]
    if not any(share.moves for way in entry.ways for share in way.shares):
        weight = sum(
            factor * prod(share.at(0, known) for share in way.shares)
            for factor, way in zip(factors, entry.ways, strict=True)
        )
        return replace(leaf, weight=weight)
    if len(set(factors)) > 1:
        raise ConfigError(
            f"{entry.first.place}: {entry.first.path} is reached on several ways with changing weights, in one of them "
            "as part of a concat; name it once"
        )
    return replace(leaf, weight=factors[0], shares=tuple(way.shares for way in entry.ways))


def _entries(leaves: Sequence[FlatLeaf], *, merge: bool) -> list[_Entry]:
    """Data sets of a mix; ways to the same rows are one where they are to be merged, and told of in any case."""
    found: list[list[FlatLeaf]] = []
    places: dict[Any, list[int]] = defaultdict(list)
    for leaf in leaves:
        known = places[_data_set(leaf)]
        same = next((number for number in known if _reads_alike(leaf, found[number][0])), None)
        if same is not None:
            _tell_of_twice(leaf, found[same][0], merged=merge)
        elif any(_overlap(leaf, found[number][0]) for number in known):
            _tell_of_overlap(leaf, found[known[0]][0])
        if same is not None and merge:
            found[same].append(leaf)
            continue
        known.append(len(found))
        found.append([leaf])
    names = stable_names([ways[0] for ways in found])
    return [_Entry(tuple(ways), name) for ways, name in zip(found, names, strict=True)]


def _part(leaf: FlatLeaf) -> str:
    """Which rows of its data set a leaf is, as text."""
    return leaf.split_part if leaf.subset is None else f"{leaf.split_part} {leaf.subset}"


def _data_set(leaf: FlatLeaf) -> Any:
    """What the rows of a leaf are a range of."""
    joined = () if leaf.join is None else tuple((_data_set(c.leaf), c.nonmatch) for c in leaf.join.columns)
    path = leaf.path if "://" in leaf.path else os.path.realpath(leaf.path)
    return path, leaf.split_part, leaf.split_config or SPLIT_YAML, joined


def _reads_alike(one: FlatLeaf, other: FlatLeaf) -> bool:
    """Whether two leaves of one data set are the same rows, read in the same way; subflavors may differ."""
    return (one.subset, one.dataset_config, one.aux) == (other.subset, other.dataset_config, other.aux)


def _overlap(one: FlatLeaf, other: FlatLeaf) -> bool:
    """Whether two leaves of one data set may have rows in common."""
    if one.subset is None or other.subset is None or one.subset.rows != other.subset.rows:
        return True
    (start, stop), (other_start, other_stop) = one.subset.share, other.subset.share
    return start < other_stop and other_start < stop


def _tell_of_twice(leaf: FlatLeaf, first: FlatLeaf, *, merged: bool) -> None:
    if merged:
        becomes = "it is one data set with the sum of its weights or repetitions"
        if leaf.subflavors != first.subflavors:
            becomes += ", whose samples get the subflavors of one way or the other"
    else:
        becomes = "each of its samples is gone through twice"
    shown = redacted(leaf.path)
    logger.warning("%s comes twice in the mix, at %s and at %s; %s", shown, first.place, leaf.place, becomes)


def _tell_of_overlap(leaf: FlatLeaf, first: FlatLeaf) -> None:
    logger.warning(
        "%s stands at %s and at %s with rows in common: as they are read differently, the same row may come twice in "
        "an epoch",
        redacted(leaf.path),
        first.place,
        leaf.place,
    )


def _size(way: FlatLeaf) -> float:
    """A way's share among those that lead to one data set, at the start of the run."""
    return float(way.repetitions) * prod(share.at(0) for share in way.shares)
