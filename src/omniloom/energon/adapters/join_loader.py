"""`JoinDatasetLoader`: the join of what several loaders name, as Energon's metadatasets make one of their YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omniloom.data.mix.tree import Nonmatch
from omniloom.data.mix.values import Range
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.factories import get_dataset_from_config
from omniloom.energon.adapters.joined import JoinedWebdatasetFactory
from omniloom.energon.adapters.loader_interface import DatasetLoaderInterface
from omniloom.energon.adapters.mixes import DatasetLoader, LoadedDataset, LoadedDatasetList


@dataclass(frozen=True, kw_only=True)
class JoinedDatasetInfo:
    """One data set of a join.

    Attributes:
        dataset: names it.
        nonmatch: what becomes of a row without a partner in it.
    """

    dataset: DatasetLoader
    nonmatch: Nonmatch = "error"


@dataclass(frozen=True, kw_only=True)
class JoinDatasetLoader(DatasetLoaderInterface):
    """The join of some data sets; its index is built where it is not there.

    Attributes:
        datasets: the data sets; by name, the joiner is handed them so.
        joiner: a sample class, or a function.
        cache_path: folder of the index; ``None``: the user's cache.
        split_part: part of the splits, where a data set names none.
        split_config: name of the split files in ``.nv-meta``.
        subflavors: added to those of each data set.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one.
    """

    datasets: Sequence[JoinedDatasetInfo] | Mapping[str, JoinedDatasetInfo]
    joiner: Callable[..., Any]
    cache_path: EPath | None = None
    split_part: str | None = None
    split_config: str | None = None
    subflavors: Mapping[str, Any] | None = None
    shuffle_over_epochs_multiplier: int | None = 1

    def get_dataset(
        self,
        *,
        training: bool,
        split_part: str | None = None,
        worker_config: Any,
        subflavors: Mapping[str, Any] | None = None,
        shuffle_over_epochs_multiplier: int | None = 1,
        subset: Range = None,
        **settings: Any,
    ) -> JoinedWebdatasetFactory:
        """The join, described.

        Args:
            training: shuffle it.
            split_part: part of the splits.
            worker_config: rank, world and workers.
            subflavors: the outermost ones.
            shuffle_over_epochs_multiplier: epochs that are shuffled as one.
            subset: range of the joined rows.
            settings: as `BaseCoreDatasetFactory` has them.
        """
        infos = list(self.datasets.values()) if isinstance(self.datasets, Mapping) else list(self.datasets)
        columns = [self._column(info.dataset, split_part, subflavors or {}) for info in infos]
        return JoinedWebdatasetFactory(
            dict(zip(self.datasets, columns, strict=True)) if isinstance(self.datasets, Mapping) else columns,
            joiner=self.joiner,
            nonmatch=[info.nonmatch for info in infos],
            join_index=None if self.cache_path is None else self.cache_path / "index",
            training=training,
            worker_config=worker_config,
            shuffle_over_epochs=shuffle_over_epochs_multiplier,
            subset=subset,
            **settings,
        )

    def get_datasets(self, **settings: Any) -> LoadedDatasetList:
        """The join as the one data set of a mix. Arguments as for `get_dataset`."""
        return LoadedDatasetList(datasets=[LoadedDataset(dataset=self.get_dataset(**settings))])

    def _column(self, loader: DatasetLoader, split_part: str | None, outer: Mapping[str, Any]) -> Any:
        subflavors = {**(loader.subflavors or {}), **(self.subflavors or {}), **outer}
        said: dict[str, Any] = {
            "dataset_config": loader.dataset_config,
            "split_config": loader.split_config or self.split_config,
        }
        return get_dataset_from_config(
            loader.path,  # type: ignore[arg-type]
            split_part=loader.split_part or self.split_part or split_part,
            subflavors=subflavors or None,
            **{name: one for name, one in said.items() if one is not None},
        )
