"""What a metadataset names, as Energon's classes show it: views of the engine's tree, for those who look at one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.mix.paths import FILESYSTEM, resolve_aux, resolve_path
from omniloom.data.mix.tree import Blend, Concat, Epochized, Join, Metadataset, Node, Ref
from omniloom.energon.adapters.epath import EPath
from omniloom.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AuxDatasetReference:
    """A prepared data set as a store.

    Attributes:
        path: where it lies.
    """

    path: EPath


@dataclass(frozen=True, kw_only=True)
class AuxFilesystemReference:
    """A folder of files as a store.

    Attributes:
        fs_path: where it lies.
    """

    fs_path: EPath


@dataclass(frozen=True, kw_only=True)
class DatasetReference:
    """A data set or a metadataset, in a mix.

    Attributes:
        path: where it lies.
        split_part: part of its split.
        subflavors: what the mix says of its samples.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one.
        dataset_config: name of the description of samples.
        split_config: name of the split file.
        subset: the range of its rows, as text.
        aux: its stores by name.
        weight: its weight, in a blend.
        repetitions: how often it comes in an epoch, in an epochized blend.
        nonmatch: what becomes of rows without a partner in it, in a join.
    """

    path: EPath
    split_part: str | None = None
    subflavors: Mapping[str, Any] | None = None
    shuffle_over_epochs_multiplier: int | None = 1
    dataset_config: str | None = None
    split_config: str | None = None
    subset: str | None = None
    aux: Mapping[str, AuxDatasetReference | AuxFilesystemReference] | None = None
    weight: float = 1.0
    repetitions: float = 1
    nonmatch: str = "error"


@dataclass(frozen=True, kw_only=True)
class MetadatasetJoin:
    """A join.

    Attributes:
        join: the data sets, by name where they have names.
        joiner: what makes one sample of theirs.
        split_part: part of their splits.
        subflavors: what the mix says of the samples.
        weight: its weight, in a blend.
        repetitions: how often it comes in an epoch, in an epochized blend.
    """

    join: list[DatasetReference] | dict[str, DatasetReference]
    joiner: Any
    split_part: str | None = None
    subflavors: Mapping[str, Any] | None = None
    weight: float = 1.0
    repetitions: float = 1


@dataclass(frozen=True, kw_only=True)
class MetadatasetBlend:
    """Data sets drawn by weight; or, as ``concat``, each once.

    Attributes:
        blend: the data sets.
    """

    blend: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MetadatasetBlendEpochized:
    """Data sets, each so often in an epoch.

    Attributes:
        blend_epochized: the data sets.
    """

    blend_epochized: list[Any] = field(default_factory=list)


def splits_of(tree: Metadataset, folder: str) -> dict[str, Any]:
    """The parts of a metadataset.

    Args:
        tree: the metadataset.
        folder: the folder or URL that its paths start from.
    """
    return {part: _view(node, folder) for part, node in tree.splits.items()}


def _view(node: Node, folder: str, **place: Any) -> Any:
    if isinstance(node, Ref):
        return _reference(node, folder, **place)
    if isinstance(node, Blend):
        return MetadatasetBlend(blend=[_view(part, folder, weight=curve.at(0)) for part, curve in node.parts])
    if isinstance(node, Epochized):
        parts = [_view(part, folder, repetitions=float(times)) for part, times in node.parts]
        return MetadatasetBlendEpochized(blend_epochized=parts)
    if isinstance(node, Concat):
        return MetadatasetBlend(blend=[_view(part, folder) for part in node.parts])
    if isinstance(node, Join):
        columns = [_reference(column.ref, folder, nonmatch=column.nonmatch) for column in node.columns]
        names = [column.name for column in node.columns]
        named = {name: column for name, column in zip(names, columns, strict=True) if name is not None}
        return MetadatasetJoin(
            join=named if len(named) == len(columns) else columns,
            joiner=node.joiner,
            split_part=node.split_part,
            subflavors=dict(node.subflavors) or None,
            **place,
        )
    raise ConfigError(f"{node.place}: a metadataset within a part of a metadataset")


def _reference(ref: Ref, folder: str, **place: Any) -> DatasetReference:
    aux = {
        name: _store(resolve_aux(reference, folder=folder, place=ref.place.at("aux", name)))
        for name, reference in ref.aux.items()
    }
    return DatasetReference(
        path=EPath(resolve_path(ref.path, folder=folder, place=ref.place)),
        split_part=ref.split_part,
        subflavors=dict(ref.subflavors) or None,
        shuffle_over_epochs_multiplier=ref.shuffle_over_epochs_multiplier,
        dataset_config=ref.dataset_config,
        split_config=ref.split_config,
        subset=None if ref.subset is None else str(ref.subset),
        aux=aux or None,
        **place,
    )


def path_of_store(reference: str) -> EPath:
    """Where the store of an absolute reference lies: of ``filesystem+msc://p/x``, ``msc://p/x``."""
    scheme, found, rest = reference.partition("://")
    if not found or not scheme.startswith(FILESYSTEM):
        return EPath(reference)
    _, inner, protocol = scheme.partition("+")
    return EPath(f"{protocol}://{rest}" if inner else rest)


def _store(reference: str) -> AuxDatasetReference | AuxFilesystemReference:
    """The store of an absolute reference."""
    path = path_of_store(reference)
    return AuxFilesystemReference(fs_path=path) if reference.startswith(FILESYSTEM) else AuxDatasetReference(path=path)
