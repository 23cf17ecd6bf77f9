"""Bad samples as a list that a split file's ``exclude`` takes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from omniloom.data.index.braces import collapse_braces
from omniloom.data.index.layout import SPLIT_YAML, write_sidecar_file
from omniloom.data.index.splits import encode_splits, read_splits
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.storage.files import replace_file
from omniloom.storage.urls import name_of


def exclude_entries(names: Sequence[str]) -> list[str]:
    """Entries of ``exclude`` for these shards and ``<shard>/<key>`` samples; braces in names are escaped.

    Neighbours are not drawn together to ranges: a list that people read and edit names each sample.
    """
    return [entry for name in names for entry in collapse_braces([name])]


def write_quarantine(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Write a YAML file whose ``exclude`` can be pasted into a split file. Raises StorageError."""
    replace_file(path, dump_yaml({"exclude": exclude_entries(names)}))


def exclude_from_split(
    root: str | os.PathLike[str], names: Sequence[str], *, split_config: str = SPLIT_YAML
) -> tuple[str, int]:
    """Add shards and samples to the ``exclude`` of a data set's split file.

    Returns:
        The file, and how many entries were new.

    Raises:
        DatasetError: there is no such file, or it is damaged.
        StorageError: it cannot be written.
    """
    splits = read_splits(root, split_config=split_config)
    new = [name for name in dict.fromkeys(names) if name not in splits.exclude]
    name = name_of(splits.path)
    if new:
        kept = exclude_entries(sorted(splits.exclude))
        text = encode_splits(splits.parts, name=name, exclude=[*kept, *exclude_entries(new)])
        write_sidecar_file(root, name, text)
    return splits.path, len(new)
