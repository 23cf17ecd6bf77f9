"""Restore keys: what a sample, a pack or a batch was made of, as plain values by which it is made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from omniloom.data.sample import ItemKey, PackKey, SampleKey
from omniloom.errors import StateError


class BatchKey(NamedTuple):
    """The identity of a batch.

    Attributes:
        items: keys of its samples or packs.
        part: which batch of them, where ``batch`` or ``encode_batch`` makes several.
    """

    items: tuple[ItemKey, ...]
    part: int = 0


def plain_key(key: ItemKey | BatchKey) -> tuple[Any, ...]:
    """The key as nested tuples of numbers and words: what ``__restore_key__`` holds.

    A sample: ``(data set, epoch, row, part)``. A pack: ``("pack", part, *samples)``. A batch: ``("batch", part,
    *samples or packs)``.
    """
    if isinstance(key, SampleKey):
        return tuple(key)
    if isinstance(key, PackKey):
        return ("pack", key.part, *map(tuple, key.samples))
    return ("batch", key.part, *map(plain_key, key.items))


def listed_key(key: ItemKey) -> list[Any]:
    """The plain form of a sample's or pack's key as JSON would give it back."""
    return [list(one) if isinstance(one, tuple) else one for one in plain_key(key)]


def key_of(plain: Any, *, leaves: int) -> ItemKey | BatchKey:
    """The key of its plain form; lists stand for tuples, as JSON gives them, and a list of keys for a batch.

    Args:
        plain: what `plain_key` gave.
        leaves: data sets in the mix.

    Raises:
        StateError: it is none.
    """
    if not isinstance(plain, Sequence) or isinstance(plain, str) or not plain:
        raise _no_key(plain)
    head, *rest = plain
    if isinstance(head, int):
        if not 3 <= len(plain) <= 4 or not all(isinstance(n, int) for n in plain) or not 0 <= head < leaves:
            raise _no_key(plain)
        return SampleKey(*plain)
    part = 0
    if head in ("pack", "batch"):
        if not rest or not isinstance(rest[0], int):
            raise _no_key(plain)
        part, *rest = rest
    else:
        head, rest = "batch", list(plain)
    keys = [key_of(one, leaves=leaves) for one in rest]
    if head == "pack" and keys and all(isinstance(key, SampleKey) for key in keys):
        return PackKey(tuple(keys), part)  # type: ignore[arg-type]
    if head == "batch" and keys and not any(isinstance(key, BatchKey) for key in keys):
        return BatchKey(tuple(keys), part)  # type: ignore[arg-type]
    raise _no_key(plain)


def with_restore_key(value: Any, key: ItemKey | BatchKey) -> Any:
    """The value with its ``__restore_key__`` set, where it has room for one."""
    if isinstance(value, dict):
        if "__restore_key__" in value:
            value["__restore_key__"] = plain_key(key)
    elif hasattr(value, "__restore_key__"):
        try:
            value.__restore_key__ = plain_key(key)
        except AttributeError:  # frozen
            return dataclasses.replace(value, __restore_key__=plain_key(key))
    return value


def restore(pipeline: Any, plain: Any, *, leaves: int) -> Any:
    """The sample, pack or batch of a restore key, made again by the stage of a pipeline that had made it.

    Raises:
        StateError: it is no restore key, or none of this pipeline.
    """
    key = key_of(plain, leaves=leaves)
    for sample in _samples(key):
        rows = _rows(pipeline, sample.dataset)
        if rows is not None and not 0 <= sample.row < rows:
            raise StateError(f"restore_sample: {plain!r} names row {sample.row} of a data set that has {rows} rows")
    stage = pipeline
    while stage is not None:
        if isinstance(key, getattr(stage, "makes", ())):
            return stage.make(key)
        stage = getattr(stage, "source", None)
    raise StateError(
        f"restore_sample: {plain!r} names a {type(key).__name__[:-3].lower()}, and this data set makes none"
    )


def _samples(key: ItemKey | BatchKey) -> tuple[SampleKey, ...]:
    """The samples that a key names."""
    if isinstance(key, BatchKey):
        return tuple(sample for item in key.items for sample in _samples(item))
    return key.samples if isinstance(key, PackKey) else (key,)


def _rows(pipeline: Any, dataset: int) -> int | None:
    """Rows of a data set, as the plan of a pipeline knows them."""
    stage = pipeline
    while hasattr(stage, "source"):
        stage = stage.source
    leaves = getattr(stage, "leaves", ())
    return leaves[dataset].rows if dataset < len(leaves) else None


def renumbered(state: Mapping[str, Any], before: Sequence[str], now: Sequence[str]) -> dict[str, Any]:
    """The samples that a lane holds back, by the positions that their data sets have in a changed mix.

    Args:
        state: the lane's state.
        before: names of the leaves when it was saved.
        now: names of the leaves.

    Returns:
        the fields of the state that hold keys.
    """
    place = {number: now.index(name) for number, name in enumerate(before) if name in now}
    fields = {name: [_renumbered(key, place) for key in state[name]] for name in ("again", "waiting") if name in state}
    return {name: [key for key in keys if key] for name, keys in fields.items()}


def _renumbered(plain: Sequence[Any], place: Mapping[int, int]) -> list[Any]:
    """The plain form of a sample's or pack's key; empty where its data set is not read any more."""
    head, *rest = plain
    if isinstance(head, int):
        return [place[head], *rest] if head in place else []
    samples = [key for one in rest[1:] if (key := _renumbered(one, place))]
    return [head, rest[0], *samples] if samples else []


def _no_key(plain: Any) -> StateError:
    shown = tuple(plain) if isinstance(plain, list) else plain
    return StateError(
        f"restore_sample: {shown!r} found; (data set, epoch, row[, part]), ('pack', part, *samples) or "
        "('batch', part, *samples) expected"
    )
