"""What a metadataset comes to: its flat leaves with rows, shares and where each stands."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from typing import Any

from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.place import absolute_root
from omniloom.data.kinds import Sample
from omniloom.data.mix.flatten import Flat, flatten
from omniloom.data.mix.read import read_metadataset
from omniloom.data.mix.tree import Ref
from omniloom.data.mixed import MixOpener
from omniloom.data.plan.order import Shuffle
from omniloom.data.side import open_side_store
from omniloom.data.source import LeafOpener


def mix_facts(path: str | os.PathLike[str], *, trust: bool = False) -> dict[str, Any]:
    """Each part of a metadataset's split as plain values.

    Joins that were not prepared are; weights that change are told as they are at the start.

    Args:
        path: the YAML file.
        trust: whether code that its data sets name may be imported, as for `get_train_dataset`. Joiners are not looked
            for.

    Returns:
        ``path``, and by part of the split: ``mode`` (``weights``, ``repetitions``, ``concat`` or ``single``) and
        ``leaves``: ``name``, ``path``, ``split_part``, ``rows``, ``share`` of the draws (0 to 1), ``repetitions``,
        ``subset``, ``subflavors``, ``joined`` (paths of the others), ``places`` in the file.

    Raises:
        ConfigError: it is not a metadataset, or does not fit together.
        DatasetError: a data set is not there or not prepared.
    """
    absolute = absolute_root(path)
    opener = MixOpener(LeafOpener(None, "", SPLIT_YAML, DATASET_YAML, None, trust=trust), open_side_store)
    parts = {}
    for part in read_metadataset(absolute).splits:
        flat = _without_joiners(flatten(Ref(path=absolute), split_part=part, training=True))
        parts[part] = {"mode": flat.mode, "leaves": _leaves(flat, opener)}
    return {"path": absolute, "split_parts": parts}


def _without_joiners(flat: Flat) -> Flat:
    joined = (
        leaf if leaf.join is None else replace(leaf, join=replace(leaf.join, joiner=Sample)) for leaf in flat.leaves
    )
    return replace(flat, leaves=tuple(joined))


def _leaves(flat: Flat, opener: MixOpener) -> list[dict[str, Any]]:
    opened = opener.open_training(flat, shuffle=lambda _: Shuffle(), default=Shuffle(), repeat=True)
    total = sum(leaf.weight_at(0, {}) for leaf in opened.plan_leaves) or 1.0
    by_name = {leaf.name: leaf for leaf in opened.plan_leaves}
    found = []
    for name, ways in opener.ways(flat):
        leaf = by_name[name]
        first = ways[0]
        found.append(
            {
                "name": name,
                "path": first.path,
                "split_part": first.split_part,
                "rows": leaf.rows,
                "share": leaf.weight_at(0, {}) / total,
                "repetitions": float(sum((way.repetitions for way in ways), Fraction(0))),
                "subset": None if first.subset is None else str(first.subset),
                "subflavors": dict(first.subflavors),
                "joined": [] if first.join is None else [column.leaf.path for column in first.join.columns[1:]],
                "places": [str(way.place) for way in ways],
            }
        )
    return found
