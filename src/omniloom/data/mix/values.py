"""Mixes written in Python: the same tree that a metadataset is read to, made of paths and of one another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

from omniloom.data.mix.place import Place
from omniloom.data.mix.read import as_node, parse_aux, parse_curve, parse_repetitions
from omniloom.data.mix.subset import Subset
from omniloom.data.mix.tree import (
    Blend,
    Concat,
    Epochized,
    Join,
    JoinColumn,
    JoinerName,
    Metadataset,
    Node,
    Nonmatch,
    Ref,
    Unit,
)
from omniloom.data.plan.weights import Curve
from omniloom.errors import ConfigError

PathLike = str | os.PathLike[str]
Source = PathLike | Node | Mapping[str, Any]
"""Whatever stands for data sets: a path, what the functions here give, or a dict in the form of a metadataset."""

Range = Subset | Sequence[int | str] | None


def source(
    path: PathLike,
    *,
    split_part: str | None = None,
    subflavors: Mapping[str, Any] | None = None,
    shuffle_over_epochs_multiplier: int | None = 1,
    dataset_config: str | None = None,
    split_config: str | None = None,
    subset: Range = None,
    aux: Mapping[str, Any] | None = None,
    name: str | None = None,
    mean_tokens: float | None = None,
) -> Ref:
    """A data set (or metadataset) with settings of its own, for use in a mix.

    Args:
        path: where it lies.
        split_part: part of the split, where it is not the one that is asked for.
        subflavors: added to each sample's subflavors.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one; -1: with replacement; ``None``: no shuffling.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
        subset: range of its rows: ``(100, 200)``, ``(100, "end")`` or ``("25%", "75%")``.
        aux: auxiliary stores by name: paths, or ``filesystem://`` references.
        name: stable name in the mix, by which seeds and saved places go; the last folder of the path where not given.
        mean_tokens: what is known beforehand of the mean length of its samples; for shares of tokens.
    """
    place = Place(None, (os.fspath(path),))
    return Ref(
        path=os.fspath(path),
        split_part=split_part,
        subflavors=dict(subflavors or {}),
        shuffle_over_epochs_multiplier=shuffle_over_epochs_multiplier,
        dataset_config=dataset_config,
        split_config=split_config,
        subset=as_subset(subset, place),
        aux={store: parse_aux(os.fspath(one) if isinstance(one, os.PathLike) else one, place.at("aux", store))
             for store, one in (aux or {}).items()},
        name=name,
        mean_tokens=mean_tokens,
        place=place,
    )  # fmt: skip


def blend(
    parts: Iterable[tuple[Source, Any]],
    *,
    weights_in: Unit | None = None,
    schedule_in: Unit | None = None,
    subset: Range = None,
) -> Blend:
    """Data sets drawn by weight.

    Args:
        parts: (data set, weight) of each. A weight is a number, a `Curve`, or numbers by position in the run, such as
            ``{0: 1.0, 1_000_000: 0.2}``: straight lines in between; ``{"steps": {...}}`` without them.
        weights_in: ``samples`` or ``tokens``: what weights are shares of. Tokens are what ``token_count`` of the task
            encoder says. Said once, it holds for all levels of a mix.
        schedule_in: ``samples`` or ``tokens``: what positions count, of the whole job.
        subset: share of the rows of each.
    """
    place = Place(None, ("blend",))
    pairs = [_pair(pair, place.at(number)) for number, pair in enumerate(parts)]
    if not pairs:
        raise ConfigError("Blender: no data sets given; expected [(path, weight), ...]")
    return Blend(
        parts=tuple((as_node(value, at), _curve(value, weight, at)) for (value, weight), at in pairs),
        weights_in=weights_in,
        schedule_in=schedule_in,
        subset=as_subset(subset, place),
        place=place,
    )


def blend_epochized(parts: Iterable[tuple[Source, float]], *, subset: Range = None) -> Epochized:
    """Data sets each gone through a number of times in an epoch of the mix.

    Args:
        parts: (data set, repetitions) of each; repetitions may be fractions such as 2.5.
        subset: share of the rows of each.
    """
    place = Place(None, ("blend_epochized",))
    pairs = [_pair(pair, place.at(number)) for number, pair in enumerate(parts)]
    made: tuple[tuple[Node, Fraction], ...] = tuple(
        (as_node(value, at), parse_repetitions(repetitions, at)) for (value, repetitions), at in pairs
    )
    return Epochized(parts=made, subset=as_subset(subset, place), place=place)


def concat(parts: Iterable[Source], *, subset: Range = None) -> Concat:
    """Data sets as one: each row of each once in an epoch.

    Args:
        parts: the data sets.
        subset: share of the rows of each.
    """
    place = Place(None, ("concat",))
    nodes = tuple(as_node(value, place.at(number)) for number, value in enumerate(parts))
    return Concat(parts=nodes, subset=as_subset(subset, place), place=place)


def join(
    columns: Sequence[Any] | Mapping[str, Any],
    *,
    joiner: Callable[..., Any] | str,
    split_part: str | None = None,
    subflavors: Mapping[str, Any] | None = None,
    subset: Range = None,
    name: str | None = None,
    mean_tokens: float | None = None,
) -> Join:
    """Rows of several data sets with equal keys, as one row.

    Args:
        columns: the data sets, the primary first; by position, or by the name of the joiner's argument. Each is a path,
            a `source`, or a pair (either, nonmatch) with ``"error"``, ``"skip"`` (the row is left out) or ``"none"``
            (the joiner is given ``None``).
        joiner: a sample class, whose ``from_joined`` is called, or a function of the samples; or its name, such as
            ``"my_package.joiners.combine"``, which needs ``trust=True`` unless it is one of omniloom's sample types.
        split_part: part of the split of data sets that name none.
        subflavors: added to those of each data set, and stronger than theirs.
        subset: range of the joined rows.
        name: stable name in the mix.
        mean_tokens: what is known beforehand of the mean length of its samples.
    """
    place = Place(None, ("join",))
    named = isinstance(columns, Mapping)
    items = columns.items() if isinstance(columns, Mapping) else enumerate(columns)
    made = []
    for key, entry in items:
        value, nonmatch = entry if isinstance(entry, tuple) else (entry, "error")
        ref = as_node(value, place.at(key))
        if not isinstance(ref, Ref) or nonmatch not in ("error", "skip", "none"):
            raise ConfigError(f"{place.at(key)}: {entry!r:.80} found; expected a data set, or one with its nonmatch")
        made.append(JoinColumn(ref=ref, nonmatch=_nonmatch(nonmatch), name=str(key) if named else None))
    called: Callable[..., Any] | JoinerName
    if isinstance(joiner, str):
        module, _, last = joiner.rpartition(".")
        called = JoinerName(module=module or "omniloom", name=last, place=place)
    else:
        called = joiner
    return Join(
        columns=tuple(made),
        joiner=called,
        split_part=split_part,
        subflavors=dict(subflavors or {}),
        subset=as_subset(subset, place),
        name=name,
        mean_tokens=mean_tokens,
        place=place,
    )


class Blender(Blend):
    """A blend by weight, under the name that the guides use: ``Blender([(path, 0.7), (other, 0.3)])``.

    Args:
        parts: (data set, weight) of each, as for `blend`.
        settings: as for `blend`.
    """

    def __init__(self, parts: Iterable[tuple[Source, Any]], **settings: Any) -> None:
        made = blend(parts, **settings)
        for field in fields(made):
            object.__setattr__(self, field.name, getattr(made, field.name))


def as_subset(value: Range, place: Place) -> Subset | None:
    """A subset of what stands for one."""
    return value if value is None or isinstance(value, Subset) else Subset.parse(value, place=place.at("subset"))


def _pair(pair: Any, place: Place) -> tuple[tuple[Any, Any], Place]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"{place}: {pair!r:.80} found; expected a pair of data set and number")
    return (pair[0], pair[1]), place


def _curve(value: Any, weight: Any, place: Place) -> Curve:
    try:
        return parse_curve(weight, place)
    except ConfigError as error:
        path = value.path if isinstance(value, Ref) else value
        raise ConfigError(f"Blender: weight {weight!r} of {path!s:.120}; {str(error).partition('; ')[2]}") from None


def _nonmatch(text: str) -> Nonmatch:
    return "skip" if text == "skip" else "none" if text == "none" else "error"


__all__ = [
    "Blender", "Curve", "Metadataset", "Source", "as_subset", "blend", "blend_epochized", "concat", "join", "source",
]  # fmt: skip
