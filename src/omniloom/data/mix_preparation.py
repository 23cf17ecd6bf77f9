"""Preparing a metadataset: the indexes of its joins, once, before many ranks ask for them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.place import absolute_root
from omniloom.data.mix.energon_join import energon_index_name, write_energon_index
from omniloom.data.mix.flatten import FlatJoin, flatten
from omniloom.data.mix.join_index import join_index_path
from omniloom.data.mix.read import read_metadataset
from omniloom.data.mix.tree import Ref
from omniloom.data.mixed import MixOpener
from omniloom.data.side import open_side_store
from omniloom.data.source import LeafOpener
from omniloom.storage.files import remove_file
from omniloom.storage.urls import is_url

logger = logging.getLogger("omniloom")


@dataclass(frozen=True)
class PreparedJoin:
    """A join that was prepared.

    Attributes:
        split_part: part of the metadataset's split that it stands in.
        rows: joined rows.
        path: its index.
        energon_path: its index for Energon; ``None`` for data sets that Energon cannot join.
    """

    split_part: str
    rows: int
    path: str
    energon_path: str | None


def prepare_metadataset(path: str | os.PathLike[str], *, trust: bool = False) -> list[PreparedJoin]:
    """Find the partners of all joins of a metadataset, of all its parts and of those within it.

    Training does it as well where it was not done; doing it before spares every rank the work. Beside omniloom's own
    index it writes the one that Energon looks for.

    Args:
        path: the YAML file.
        trust: whether code that the data sets name may be run, as for `get_train_dataset`.

    Raises:
        ConfigError: the metadataset is not one.
        DatasetError: a data set is not prepared, or rows lack partners that they have to have.
    """
    absolute = absolute_root(path)
    opener = MixOpener(LeafOpener(None, "", SPLIT_YAML, DATASET_YAML, None, trust=trust), open_side_store)
    written: set[Path] = set()
    prepared = [
        _prepare(opener, part, join, written)
        for part in read_metadataset(absolute).splits
        for join in _joins(absolute, part)
    ]
    _remove_stale(written)
    return prepared


def _joins(path: str, part: str) -> Iterator[FlatJoin]:
    for leaf in flatten(Ref(path=path), split_part=part, training=False).leaves:
        if leaf.join is not None:
            yield leaf.join


def _remove_stale(written: set[Path]) -> None:
    """Remove Energon's indexes of joins that the metadataset does not have any more, as Energon does."""
    for folder in {path.parent for path in written}:
        for path in set(folder.glob("join_index_*.bin")) - written:
            remove_file(path)


def _prepare(opener: MixOpener, part: str, join: FlatJoin, written: set[Path]) -> PreparedJoin:
    columns = opener.join_columns(join, opener.open_columns(join, "join"))
    path = join_index_path(columns, cache_folder=join.cache_folder)
    lines = np.load(path, mmap_mode="r")
    splits = [column.leaf.split_config or SPLIT_YAML for column in join.columns]
    name = energon_index_name(columns, splits)
    if name is None or join.cache_folder is None or is_url(join.cache_folder):
        return PreparedJoin(part, len(lines), path, None)
    energon_path = Path(join.cache_folder) / name
    if energon_path in written:
        logger.warning(
            "%s: Energon keeps the joins of two split parts in one file, as its name says nothing of parts; it holds "
            "the rows of the first one. Here each part has its own.",
            energon_path,
        )
    else:
        energon_path.parent.mkdir(parents=True, exist_ok=True)
        write_energon_index(energon_path, columns, splits, lines)
        written.add(energon_path)
    return PreparedJoin(part, len(lines), path, str(energon_path))
