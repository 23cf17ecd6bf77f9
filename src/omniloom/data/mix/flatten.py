"""From the tree to flat leaves: what each is, how it is read, and its part in the mix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from omniloom.data.mix.paths import is_metadataset, resolve_aux, resolve_path
from omniloom.data.mix.place import Place
from omniloom.data.mix.read import read_metadataset
from omniloom.data.mix.subset import Subset
from omniloom.data.mix.tree import Blend, Epochized, Join, Metadataset, Node, Nonmatch, Ref, Unit
from omniloom.data.plan.weights import Share
from omniloom.errors import ConfigError
from omniloom.storage.urls import is_url, parent_url

Mode = Literal["single", "weights", "repetitions", "concat"]


@dataclass(frozen=True, kw_only=True)
class FlatColumn:
    """One data set of a flat join: how to open it, and what becomes of rows without a partner in it."""

    leaf: FlatLeaf
    nonmatch: Nonmatch
    name: str | None


@dataclass(frozen=True, kw_only=True)
class FlatJoin:
    """What a leaf that joins data sets is made of.

    Attributes:
        columns: the data sets, the primary first.
        joiner: a class or function, or the name of one.
        cache_folder: where its index is kept; ``None`` for a join that no file describes.
    """

    columns: tuple[FlatColumn, ...]
    joiner: Any
    cache_folder: str | None


@dataclass(frozen=True, kw_only=True)
class FlatLeaf:
    """A leaf of a mix.

    Attributes:
        path: absolute path or URL of the data set; of a join, that of its primary.
        split_part: part of the split.
        split_config: name of the split file; ``None``: the usual one.
        dataset_config: name of the description of samples; ``None``: the usual one.
        subflavors: what all levels say of its samples.
        multiplier: ``shuffle_over_epochs_multiplier`` of all levels.
        subset: ranges of all levels.
        aux: references of auxiliary stores, absolute, by name.
        shares: its share at each level of blends; their product is its weight.
        repetitions: how often it comes in an epoch of the mix.
        group: the same of all leaves that share one place in a blend by their rows; ``None``: it has its own.
        join: what it joins, where it is a join.
        name: the name that the mix gives it, if any.
        mean_tokens: what is known beforehand of the mean length of its samples.
        place: where it stands.
    """

    path: str
    split_part: str
    split_config: str | None = None
    dataset_config: str | None = None
    subflavors: Mapping[str, Any] = field(default_factory=dict)
    multiplier: int | None = 1
    subset: Subset | None = None
    aux: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    repetitions: Fraction = Fraction(1)
    group: tuple[int, ...] | None = None
    join: FlatJoin | None = None
    name: str | None = None
    mean_tokens: float | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True)
class Flat:
    """A flattened mix.

    Attributes:
        mode: whether its leaves are drawn by weight, by repetitions, each once, or are one.
        leaves: the leaves.
        weights_in: what the weights are shares of; ``None`` where no level says it: samples.
        schedule_in: what the positions of changing weights count; likewise.
    """

    mode: Mode
    leaves: tuple[FlatLeaf, ...]
    weights_in: Unit | None = None
    schedule_in: Unit | None = None


@dataclass(frozen=True)
class _Context:
    """What is handed down: from the levels above, and of the file that is being read."""

    split_part: str
    folder: str
    file: str | None = None
    subflavors: Mapping[str, Any] = field(default_factory=dict)
    multiplier: int | None = 1
    subset: Subset | None = None
    training: bool = True
    chain: tuple[tuple[str, str], ...] = ()


def flatten(
    node: Node,
    *,
    split_part: str,
    training: bool,
    subflavors: Mapping[str, Any] | None = None,
    multiplier: int | None = 1,
    subset: Subset | None = None,
    folder: str | None = None,
) -> Flat:
    """The leaves of a tree; nested metadatasets are read.

    Args:
        node: the tree.
        split_part: part of the split that is asked for.
        training: whether weights and repetitions count; in evaluation they do not.
        subflavors: the outermost ones, stronger than all others.
        multiplier: the outermost ``shuffle_over_epochs_multiplier``.
        subset: the outermost range.
        folder: what relative paths of ``node`` itself are relative to; ``None``: the working directory.

    Raises:
        ConfigError: a metadataset has no such part, contains itself, or mixes weights with repetitions.
        DatasetError: a nested metadataset is not there.
    """
    start = _Context(
        split_part,
        folder or str(Path.cwd()),
        subflavors=subflavors or {},
        multiplier=multiplier,
        subset=subset,
        training=training,
    )
    return _flatten(node, start)


def combined_multiplier(outer: int | None, inner: int | None) -> int | None:
    """``shuffle_over_epochs_multiplier`` of two levels: ``None`` is strongest, then -1, else their product."""
    if outer is None or inner is None:
        return None
    return -1 if -1 in (outer, inner) else outer * inner


def _flatten(node: Node, context: _Context) -> Flat:
    if isinstance(node, Metadataset):
        return _of_metadataset(node, context)
    if isinstance(node, Ref):
        return _of_ref(node, context)
    if isinstance(node, Join):
        return Flat("single", (_of_join(node, context),))
    if node.subset is not None:
        context = replace(context, subset=node.subset.within(context.subset, place=node.place))
    if isinstance(node, Blend):
        return _of_blend(node, context)
    parts = node.parts if isinstance(node, Epochized) else tuple((part, Fraction(1)) for part in node.parts)
    leaves = []
    mode: Mode = "repetitions" if isinstance(node, Epochized) else "concat"
    for part, repetitions in parts:
        flat = _flatten(part, context)
        mode = "repetitions" if flat.mode == "repetitions" else mode
        if flat.mode == "weights" and context.training:
            raise ConfigError(
                f"{node.place}: a blend by weight stands in a mix that counts epochs, and has no end of its own. Use "
                "'blend' at both levels, or 'blend_epochized' at both."
            )
        leaves += [replace(leaf, repetitions=leaf.repetitions * repetitions) for leaf in flat.leaves]
    return Flat(mode, tuple(leaves))


def _of_metadataset(node: Metadataset, context: _Context) -> Flat:
    part = context.split_part
    if part not in node.splits:
        near = get_close_matches(part, node.splits, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{node.place}: there is no split part {part!r}; there are {sorted(node.splits)}.{meant}")
    return _flatten(node.splits[part], context)


def _of_ref(ref: Ref, context: _Context) -> Flat:
    subset = context.subset if ref.subset is None else ref.subset.within(context.subset, place=ref.place)
    inner = replace(
        context,
        split_part=ref.split_part or context.split_part,
        subflavors={**ref.subflavors, **context.subflavors},
        multiplier=combined_multiplier(context.multiplier, ref.shuffle_over_epochs_multiplier),
        subset=subset,
    )
    path = resolve_path(ref.path, folder=context.folder, place=ref.place)
    if not is_metadataset(path):
        return Flat("single", (_leaf(ref, path, inner),))
    for key in ("aux", "dataset_config", "split_config", "name"):
        if getattr(ref, key):
            raise ConfigError(f"{ref.place}: {key!r} belongs to a data set, but {path} is a metadataset")
    step = (path if is_url(path) else os.path.realpath(path), inner.split_part)
    if step in context.chain:
        names = [file for file, _ in (*context.chain[context.chain.index(step) :], step)]
        raise ConfigError(f"{ref.place}: the metadataset contains itself: {' -> '.join(names)}")
    nested = replace(inner, folder=parent_url(path), file=path, chain=(*context.chain, step))
    return _flatten(read_metadataset(path), nested)


def _leaf(ref: Ref, path: str, context: _Context) -> FlatLeaf:
    return FlatLeaf(
        path=path,
        split_part=context.split_part,
        split_config=ref.split_config,
        dataset_config=ref.dataset_config,
        subflavors=context.subflavors,
        multiplier=context.multiplier,
        subset=context.subset,
        aux={
            name: resolve_aux(reference, folder=context.folder, place=ref.place.at("aux", name))
            for name, reference in ref.aux.items()
        },
        name=ref.name,
        mean_tokens=ref.mean_tokens,
        place=ref.place,
    )


def _of_join(join: Join, context: _Context) -> FlatLeaf:
    if len(join.columns) < 2:
        raise ConfigError(f"{join.place}: a join of one data set; at least two expected")
    if join.columns[0].nonmatch != "error":
        raise ConfigError(
            f"{join.columns[0].ref.place}: nonmatch {join.columns[0].nonmatch!r} on the first data set of a join, "
            "whose rows the others are matched to. Put it on the others."
        )
    within = replace(
        context,
        split_part=join.split_part or context.split_part,
        subflavors={**join.subflavors, **context.subflavors},
        subset=None,
    )
    columns = []
    for column in join.columns:
        ref = column.ref
        path = resolve_path(ref.path, folder=context.folder, place=ref.place)
        if is_metadataset(path):
            raise ConfigError(f"{ref.place}: {path} is a metadataset; a join takes data sets only")
        for key in ("subset", "aux"):
            if getattr(ref, key):
                raise ConfigError(f"{ref.place}: {key!r} has no meaning on a data set of a join; put it on the join")
        inner = replace(
            within,
            split_part=ref.split_part or within.split_part,
            subflavors={**ref.subflavors, **within.subflavors},
        )
        columns.append(FlatColumn(leaf=_leaf(ref, path, inner), nonmatch=column.nonmatch, name=column.name))
    subset = context.subset if join.subset is None else join.subset.within(context.subset, place=join.place)
    cache_folder = None if context.file is None else f"{context.file}.cache"
    primary = columns[0].leaf
    return replace(
        primary,
        multiplier=context.multiplier,
        subset=subset,
        join=FlatJoin(columns=tuple(columns), joiner=join.joiner, cache_folder=cache_folder),
        name=join.name,
        mean_tokens=join.mean_tokens,
        place=join.place,
    )


def _of_blend(node: Blend, context: _Context) -> Flat:
    neighbours = tuple(curve for _, curve in node.parts)
    leaves: list[FlatLeaf] = []
    weights_in, schedule_in = node.weights_in, node.schedule_in
    for number, (part, curve) in enumerate(node.parts):
        flat = _flatten(part, context)
        if flat.mode == "repetitions" and context.training:
            raise ConfigError(
                f"{node.place}: a mix that counts epochs stands in a blend by weight. Use 'blend' at both levels, "
                "'blend_epochized' at both, or 'concat' for the inner one."
            )
        weights_in = _agreed("weights_in", weights_in, flat.weights_in, place=node.place)
        schedule_in = _agreed("schedule_in", schedule_in, flat.schedule_in, place=node.place)
        share = Share(curve, neighbours)
        for leaf in flat.leaves:
            inner = () if flat.mode == "concat" else leaf.group
            group = None if inner is None else (number, *inner)
            leaves.append(replace(leaf, shares=(share, *leaf.shares), group=group))
    return Flat("weights", tuple(leaves), weights_in, schedule_in)


def _agreed(name: str, outer: Unit | None, inner: Unit | None, *, place: Place) -> Unit | None:
    """What all levels of a blend count that say it."""
    if outer is not None and inner is not None and outer != inner:
        raise ConfigError(
            f"{place}: {name} is {outer} here and {inner} in a blend within it. Say the same, or say it once."
        )
    return outer or inner
