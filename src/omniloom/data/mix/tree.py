"""The tree that every mix is, wherever it was written: metadatasets V1 and V2, dicts, or values of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from omniloom.data.mix.place import Place
from omniloom.data.mix.subset import Subset
from omniloom.data.plan.weights import Curve

Nonmatch = Literal["error", "skip", "none"]
Unit = Literal["samples", "tokens"]


@dataclass(frozen=True, kw_only=True)
class Ref:
    """A data set, or another metadataset, by its path.

    Attributes:
        path: as it is written.
        split_part: part of the split; ``None``: the one that is asked for.
        subflavors: added to each sample's subflavors.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one; -1: with replacement; ``None``: no shuffling.
        dataset_config: name of the description of samples in ``.nv-meta``; ``None``: the usual one.
        split_config: name of the split file in ``.nv-meta``; ``None``: the usual one.
        subset: range of its rows.
        aux: references of auxiliary stores by name.
        name: stable name in the mix, by which seeds and saved places go; ``None``: the last folder of the path.
        mean_tokens: what is known beforehand of the mean length of its samples, in tokens.
        place: where it stands.
    """

    path: str
    split_part: str | None = None
    subflavors: Mapping[str, Any] = field(default_factory=dict)
    shuffle_over_epochs_multiplier: int | None = 1
    dataset_config: str | None = None
    split_config: str | None = None
    subset: Subset | None = None
    aux: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    mean_tokens: float | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class Blend:
    """Data sets drawn by weight, without end.

    Attributes:
        parts: (node, weight) of each; a weight may change along the run.
        weights_in: whether weights are shares of samples or of tokens; ``None``: as other levels say, or samples.
        schedule_in: what the positions count at which weights change, over the whole job; likewise.
        subset: share of the rows of each part.
        place: where it stands.
    """

    parts: tuple[tuple[Node, Curve], ...]
    weights_in: Unit | None = None
    schedule_in: Unit | None = None
    subset: Subset | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class Epochized:
    """Data sets each gone through a number of times in an epoch of the mix.

    Attributes:
        parts: (node, repetitions) of each.
        subset: share of the rows of each part.
        place: where it stands.
    """

    parts: tuple[tuple[Node, Fraction], ...]
    subset: Subset | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class Concat:
    """Data sets as one: each row of each of them once in an epoch.

    Attributes:
        parts: the nodes.
        subset: share of the rows of each part.
        place: where it stands.
    """

    parts: tuple[Node, ...]
    subset: Subset | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class JoinColumn:
    """One data set of a join.

    Attributes:
        ref: the data set.
        nonmatch: what becomes of a row of the primary that has no partner here.
        name: its name among the joiner's arguments; ``None``: they go by position.
    """

    ref: Ref
    nonmatch: Nonmatch = "error"
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Join:
    """Rows of several data sets with equal keys, as one row.

    Attributes:
        columns: the data sets; the first is the primary, whose rows and order the join has.
        joiner: a class or function, or (module, name, arguments) of one.
        split_part: part of the split of columns that name none.
        subflavors: added to those of each column, and stronger than theirs.
        shuffle_over_epochs_multiplier: accepted; the one from above counts, as in Energon.
        subset: range of the joined rows.
        name: stable name in the mix; ``None``: the last folders of the columns' paths.
        mean_tokens: what is known beforehand of the mean length of its samples, in tokens.
        place: where it stands.
    """

    columns: tuple[JoinColumn, ...]
    joiner: Callable[..., Any] | JoinerName
    split_part: str | None = None
    subflavors: Mapping[str, Any] = field(default_factory=dict)
    shuffle_over_epochs_multiplier: int | None = 1
    subset: Subset | None = None
    name: str | None = None
    mean_tokens: float | None = None
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class JoinerName:
    """A joiner by the names that a YAML gives it.

    Attributes:
        module: module it is in.
        name: class or function.
        place: where it is named.
    """

    module: str
    name: str
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True, kw_only=True)
class Metadataset:
    """A node for each part of a split.

    Attributes:
        splits: the nodes by part.
        place: the file.
    """

    splits: Mapping[str, Node]
    place: Place = field(default_factory=Place, compare=False)


Node = Ref | Blend | Epochized | Concat | Join | Metadataset
