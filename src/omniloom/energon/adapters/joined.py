"""`JoinedWebdatasetFactory`: several data sets side by side as one, described."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omniloom.data.leaf import Leaf
from omniloom.data.mix.flatten import FlatLeaf
from omniloom.data.mix.join_index import Column, join_index_path
from omniloom.data.mix.join_rows import JoinRows
from omniloom.data.mix.joiners import find_joiner
from omniloom.data.mix.tree import JoinerName, Nonmatch
from omniloom.data.mixed_cook import JoinCook
from omniloom.energon.adapters.factories import BaseCoreDatasetFactory, get_dataset_from_config
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.errors import ConfigError

Columns = Sequence[BaseCoreDatasetFactory] | Mapping[str, BaseCoreDatasetFactory]


class JoinedWebdatasetFactory(BaseCoreDatasetFactory):
    """Data sets whose samples are joined by their keys, the first one's in their order.

    Args:
        inner_datasets: the data sets; by name, the joiner is handed them so.
        joiner: a sample class, which joins by its ``from_joined``, or a function.
        nonmatch: what becomes of a row without a partner in each data set but the first; ``None``: an error in all.
        join_index: a path beside which the index is kept, such as that of Energon's, which has no other effect;
            ``None``: the user's cache.
        settings: as `BaseCoreDatasetFactory` has them, of the joined rows.
    """

    def __init__(
        self,
        inner_datasets: Columns,
        *,
        joiner: Callable[..., Any] | JoinerName,
        nonmatch: Sequence[Nonmatch] | None = None,
        join_index: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self.names: tuple[str, ...] | None = None
        if isinstance(inner_datasets, Mapping):
            self.names, inner_datasets = tuple(inner_datasets), tuple(inner_datasets.values())
        self.inner_datasets = tuple(inner_datasets)
        if len(self.inner_datasets) < 2:
            raise ConfigError(f"a join of {len(self.inner_datasets)} data sets; at least two expected")
        self.joiner = joiner
        every: list[Nonmatch] = ["error"] * len(self.inner_datasets)
        self.nonmatch = tuple(nonmatch or every)
        self.join_index = join_index
        super().__init__(path=self.inner_datasets[0].path, **settings)

    def leaf(self) -> Leaf:
        """The joined data set, opened; its index is built where it is not there."""
        leaves = tuple(one.leaf() for one in self.inner_datasets)
        columns = [Column(leaf.rows, rule, leaf.path) for leaf, rule in zip(leaves, self.nonmatch, strict=True)]
        folder = None if self.join_index is None else os.path.dirname(os.fspath(self.join_index))  # noqa: PTH120 - or URL
        path = join_index_path(columns, cache_folder=folder)
        cook = JoinCook(leaves, find_joiner(self.joiner, trust=AS_ENERGON), self.names)
        primary = leaves[0]
        return self._in_range(
            Leaf(f"{primary.name}, joined", JoinRows(tuple(leaf.rows for leaf in leaves), path), cook, primary.path)
        )


def joined_factory(leaf: FlatLeaf, *, decoder: Any, **settings: Any) -> JoinedWebdatasetFactory:
    """The factory of a join that a mix describes.

    Args:
        leaf: the join as a leaf of the mix.
        decoder: decodes the parts.
        settings: as `BaseCoreDatasetFactory` has them.
    """
    join = leaf.join
    if join is None:
        raise ConfigError(f"{leaf.place}: a join expected")
    columns = [
        get_dataset_from_config(
            column.leaf.path,
            split_part=column.leaf.split_part,
            subflavors=dict(column.leaf.subflavors) or None,
            dataset_config=column.leaf.dataset_config,
            split_config=column.leaf.split_config,
            decoder=decoder,
        )
        for column in join.columns
    ]
    names = [column.name for column in join.columns]
    return JoinedWebdatasetFactory(
        dict(zip(names, columns, strict=True)) if all(names) else columns,  # type: ignore[arg-type]
        joiner=join.joiner,
        nonmatch=[column.nonmatch for column in join.columns],
        join_index=None if join.cache_folder is None else f"{join.cache_folder}/index",
        decoder=decoder,
        **settings,
    )
