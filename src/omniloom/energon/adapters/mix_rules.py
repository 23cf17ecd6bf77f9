"""Rules of Energon's mixes that omniloom's own are wider than; under Energon's names they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.splits import read_splits
from omniloom.data.mix.energon_join import energon_index_name
from omniloom.data.mix.flatten import FlatJoin, flatten
from omniloom.data.mix.paths import is_metadataset, resolve_path
from omniloom.data.mix.read import as_node, read_metadataset
from omniloom.data.mix.tree import Blend, Concat, Epochized, Join, Metadataset, Node, Ref
from omniloom.data.mix.values import Source
from omniloom.data.mixed import MixOpener
from omniloom.data.side.open import open_side_store
from omniloom.data.source import LeafOpener
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.errors import ConfigError, DatasetError
from omniloom.storage.urls import is_url, parent_url


def check_mix(path: Source, *, split_part: str, training: bool) -> None:
    """See that a mix keeps Energon's rules.

    A range in rows may stand at a data set, not at several together; joins that a file describes have to be prepared,
    so that not every rank of a job begins to make the same index.

    Raises:
        ConfigError: a range in rows stands at several data sets.
        DatasetError: a join is not prepared.
    """
    node = as_node(path)
    if isinstance(node, Ref) and not is_metadataset(node.path):
        return
    joins = False
    for one in _nodes(node, str(Path.cwd())):
        joins = joins or isinstance(one, Join)
        if isinstance(one, Blend | Epochized | Concat) and one.subset is not None and one.subset.rows is not None:
            raise ConfigError(
                f"{one.place}: a subset in rows is only allowed for a leaf dataset; over several, write shares such "
                'as ["0%", "50%"]'
            )
    if joins:
        for leaf in flatten(node, split_part=split_part, training=training).leaves:
            if leaf.join is not None:
                _check_join(leaf.join)


def _nodes(node: Node, folder: str) -> Iterator[Node]:
    """A node and all below it, also in metadatasets that it names."""
    yield node
    if isinstance(node, Ref):
        path = resolve_path(node.path, folder=folder, place=node.place)
        if is_metadataset(path):
            yield from _nodes(read_metadataset(path), parent_url(path))
        return
    parts: list[Node] = []
    if isinstance(node, Blend | Epochized):
        parts = [part[0] for part in node.parts]
    elif isinstance(node, Concat):
        parts = list(node.parts)
    elif isinstance(node, Metadataset):
        parts = list(node.splits.values())
    for part in parts:
        yield from _nodes(part, folder)


def _check_join(join: FlatJoin) -> None:
    """See that the index of a join that a file on a disk describes is there."""
    if join.cache_folder is None or is_url(join.cache_folder):
        return
    opener = MixOpener(LeafOpener(None, "", SPLIT_YAML, DATASET_YAML, None, trust=AS_ENERGON), open_side_store)
    columns = opener.join_columns(join, opener.open_columns(join, "join"))
    splits = [column.leaf.split_config or SPLIT_YAML for column in join.columns]
    name = energon_index_name(columns, splits)
    if name is None or (Path(join.cache_folder) / name).is_file():
        return
    excluded = [
        read_splits(column.leaf.path, split_config=split).exclude
        for column, split in zip(join.columns, splits, strict=True)
    ]
    if any(sum("/" in one for one in entries) > 1 for entries in excluded):
        return  # Energon names such an index by chance
    metadataset = join.cache_folder.removesuffix(".cache")
    raise DatasetError(
        f"{metadataset}: a join is not prepared, or its data sets have been prepared anew since. "
        f"Run `energon prepare {metadataset}`."
    )
