"""`load_dataset` and `traverse_metadataset`: what a mix is made of, without iterating it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.mix.flatten import Flat, FlatLeaf, flatten
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.mix.place import Place
from omniloom.data.mix.read import as_node, read_metadataset
from omniloom.data.mix.tree import Metadataset as TreeOfMetadataset
from omniloom.data.mix.values import Range, Source, as_subset
from omniloom.data.mix_preparation import prepare_metadataset as prepare
from omniloom.data.side.open import open_side_store
from omniloom.energon.adapters.encoders import SampleDecoder
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.factories import BaseCoreDatasetFactory, get_dataset_from_config
from omniloom.energon.adapters.joined import joined_factory
from omniloom.energon.adapters.loader_interface import DatasetLoaderInterface, own_loader
from omniloom.energon.adapters.own_factory import own_factory
from omniloom.energon.adapters.references import path_of_store, splits_of
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.errors import ConfigError
from omniloom.storage.urls import parent_url


class DatasetBlendMode(Enum):
    """How the data sets of a mix go together."""

    NONE = "none"
    DATASET_WEIGHT = "dataset_weight"
    SAMPLE_REPETITIONS = "sample_repetitions"


_MODES = {"weights": DatasetBlendMode.DATASET_WEIGHT, "repetitions": DatasetBlendMode.SAMPLE_REPETITIONS}


@dataclass(frozen=True, kw_only=True)
class LoadedDataset:
    """A data set of a mix.

    Attributes:
        dataset: the data set, described.
        weight: its share, where shares count.
        repetitions: how often it comes in an epoch, where that counts.
        aux: its stores by name.

    It unpacks to the data set and its weight, as documentation of older versions has it.
    """

    dataset: BaseCoreDatasetFactory
    weight: float | None = None
    repetitions: float | None = None
    aux: Mapping[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.dataset, 1.0 if self.weight is None else self.weight))


@dataclass(frozen=True, kw_only=True)
class LoadedDatasetList:
    """The data sets of a mix, and how they go together."""

    datasets: list[LoadedDataset]
    blend_mode: DatasetBlendMode = DatasetBlendMode.NONE


@dataclass(frozen=True, kw_only=True)
class TraversedDatasetReference:
    """A data set that a mix names; it need not exist.

    Attributes:
        path: where it lies.
        split_part: part of its split.
        aux: its stores by name.
        subflavors: what the mix says of its samples.
    """

    path: EPath
    split_part: str
    aux: dict[str, EPath] = field(default_factory=dict)
    subflavors: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DatasetLoader(DatasetLoaderInterface):
    """What a path, or a dict in the form of a metadataset, names.

    Attributes:
        path: the path or the dict.
        split_part: part of the split, where none is asked for.
        subflavors: added to each sample's subflavors.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
    """

    path: Source
    split_part: str | None = None
    subflavors: Mapping[str, Any] | None = None
    shuffle_over_epochs_multiplier: int | None = 1
    dataset_config: str | None = None
    split_config: str | None = None

    def get_datasets(
        self,
        *,
        training: bool,
        split_part: str | None = None,
        worker_config: Any,
        subflavors: Mapping[str, Any] | None = None,
        shuffle_over_epochs_multiplier: int | None = 1,
        subset: Range = None,
        **settings: Any,
    ) -> LoadedDatasetList:
        """The data sets, with their weights.

        Args:
            training: shuffle them.
            split_part: part of the split.
            worker_config: rank, world and workers.
            subflavors: the outermost ones.
            shuffle_over_epochs_multiplier: the outermost one.
            subset: range of the rows of each.
            settings: as `BaseCoreDatasetFactory` has them.
        """
        flat = self._flat(split_part, training=True, subflavors=subflavors, subset=subset,
                          multiplier=shuffle_over_epochs_multiplier)  # fmt: skip
        return LoadedDatasetList(
            datasets=[
                _loaded(leaf, flat, training=training, worker_config=worker_config, **settings) for leaf in flat.leaves
            ],
            blend_mode=_MODES.get(flat.mode, DatasetBlendMode.NONE),
        )

    def get_dataset(self, *, training: bool, worker_config: Any, **settings: Any) -> BaseCoreDatasetFactory:
        """The one data set that the path names. Arguments as for `get_datasets`.

        Raises:
            ConfigError: it names several.
        """
        found = self.get_datasets(training=training, worker_config=worker_config, **settings).datasets
        if len(found) != 1:
            raise ConfigError(f"{self.path}: a mix of {len(found)} data sets; one expected")
        return found[0].dataset

    @property
    def splits(self) -> dict[str, Any]:
        """The parts of a metadataset, as `omniloom.energon.adapters.references` shows them.

        Raises:
            ConfigError: it is a data set.
        """
        if isinstance(self.path, Mapping):
            node = as_node(self.path)
            if isinstance(node, TreeOfMetadataset):
                return splits_of(node, str(Path.cwd()))
        elif isinstance(self.path, str | os.PathLike) and is_metadataset(os.fspath(self.path)):
            path = str(EPath(self.path))
            return splits_of(read_metadataset(path), parent_url(path))
        raise ConfigError(f"{self.path}: a data set, which has no splits of a metadataset")

    def traverse(self, *, split_part: str | None = None) -> list[TraversedDatasetReference]:
        """The data sets that it names, without opening one."""
        return [_traversed(leaf) for leaf in self._flat(split_part, training=True).leaves]

    def prepare(self, split_part: str | None = None) -> tuple[EPath, ...]:
        """Index the joins. Gives the paths of their indexes."""
        if isinstance(self.path, str | os.PathLike) and is_metadataset(os.fspath(self.path)):
            return tuple(EPath(one.path) for one in prepare(os.fspath(self.path), trust=AS_ENERGON))
        return ()

    def _flat(
        self,
        split_part: str | None,
        *,
        training: bool,
        subflavors: Mapping[str, Any] | None = None,
        subset: Range = None,
        multiplier: int | None = 1,
    ) -> Flat:
        part = split_part or self.split_part
        if part is None:
            raise ConfigError("split_part is missing, such as 'train'")
        return flatten(
            as_node(self.path),
            split_part=part,
            training=training,
            subflavors={**(self.subflavors or {}), **(subflavors or {})},
            multiplier=multiplier,
            subset=as_subset(subset, Place(None, ("subset",))),
        )


class Metadataset(DatasetLoader):
    """A metadataset of the first form."""


class MetadatasetV2(DatasetLoader):
    """A metadataset of the second form."""


def load_dataset(path: Source, **settings: Any) -> Any:
    """What a path, or a dict in the form of a metadataset, names: a `DatasetLoader`, or a loader of a user's own.

    Args:
        path: the path or the dict.
        settings: as `DatasetLoader` has them.
    """
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if not Path(text).exists() and "://" not in text:
            raise FileNotFoundError(f"{text}: there is no such data set or metadataset")
        own = own_loader(path, **settings)
        if own is not None:
            return own
        if is_metadataset(text):
            read_metadataset(text)  # what is wrong with it is told of now
            return _kind(load_yaml(EPath(path).read_bytes(), name=text))(path=path, **settings)
    return (_kind(path) if isinstance(path, Mapping) else DatasetLoader)(path=path, **settings)


def _kind(content: Any) -> type[DatasetLoader]:
    return (
        MetadatasetV2 if isinstance(content, Mapping) and content.get("__class__") == "MetadatasetV2" else Metadataset
    )


def traverse_metadataset(path: Source, *, split_part: str, **settings: Any) -> list[TraversedDatasetReference]:
    """The data sets that a metadataset names, and those within it; they need not exist.

    Args:
        path: the metadataset.
        split_part: part of its split.
        settings: as `DatasetLoader` has them.
    """
    found: list[TraversedDatasetReference] = load_dataset(path, **settings).traverse(split_part=split_part)
    return found


def prepare_metadataset(path: str | os.PathLike[str]) -> None:
    """Index the joins of a metadataset."""
    own = own_loader(path)
    if own is not None:
        own.prepare()
        return
    prepare(path, trust=AS_ENERGON)


def _loaded(leaf: FlatLeaf, flat: Flat, **settings: Any) -> LoadedDataset:
    aux = {name: open_side_store(reference) for name, reference in leaf.aux.items()}
    common = {"subset": leaf.subset, "shuffle_over_epochs": leaf.multiplier, **settings}
    factory: BaseCoreDatasetFactory
    if leaf.join is not None:
        factory = joined_factory(leaf, **{"decoder": SampleDecoder(), **common})
    else:
        said = {
            "split_part": leaf.split_part,
            "subflavors": dict(leaf.subflavors) or None,
            "dataset_config": leaf.dataset_config,
            "split_config": leaf.split_config,
            "aux": aux,
            **common,
        }
        factory = own_factory(leaf.path, **said) or get_dataset_from_config(leaf.path, **said)
    return LoadedDataset(
        dataset=factory,
        weight=prod(share.at(0) for share in leaf.shares) if flat.mode == "weights" else None,
        repetitions=float(leaf.repetitions) if flat.mode == "repetitions" else None,
        aux=aux or None,
    )


def _traversed(leaf: FlatLeaf) -> TraversedDatasetReference:
    aux = {name: path_of_store(reference) for name, reference in leaf.aux.items()}
    return TraversedDatasetReference(
        path=EPath(leaf.path), split_part=leaf.split_part, aux=aux, subflavors=dict(leaf.subflavors)
    )
