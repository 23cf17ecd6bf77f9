"""How a task encoder puts data sets together: what ``build_train_datasets`` and its kin do where nobody overrides them.

The getters call these methods only where one is overridden; else the engine builds the same at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from omniloom.data import stages
from omniloom.data.cook import CookStep, find_cooker
from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline import running
from omniloom.data.pipeline.make import Make
from omniloom.data.plan.in_order import InOrder
from omniloom.data.recipe import evaluation_unit, lane_share
from omniloom.data.side.store import DecodeFileStore, PrimaryFileStore
from omniloom.energon.adapters.blends import in_sequence
from omniloom.energon.adapters.own import described
from omniloom.energon.adapters.wrappers import (
    BlendDataset,
    ConcatDataset,
    EpochizeDataset,
    IterMapDataset,
    LimitDataset,
    MapDataset,
    RepeatDataset,
    ShuffleBufferDataset,
    with_plan,
)
from omniloom.errors import ConfigError


def cooked(
    encoder: Any,
    dataset: Dataset,
    *,
    subflavors: Mapping[str, Any] | None,
    primary: Callable[[], Any],
    aux: Mapping[str, Any],
) -> Dataset:
    """The data set of what the first fitting cooker makes of crude samples; without cookers, the crude ones.

    Args:
        encoder: has the cookers.
        dataset: the crude samples.
        subflavors: what is said of them.
        primary: gives the data set itself as a store.
        aux: its stores by name.

    Raises:
        ConfigError: there are cookers, but none for it.
    """
    cooker = find_cooker(encoder.cookers, subflavors, where=", ".join(dataset.paths))
    if cooker is None:
        return dataset
    stores = {name: _decoded(store, encoder.decoder) for name, store in aux.items() if name != "primary"}
    own = partial(PrimaryFileStore, _decoded(aux.get("primary") or primary(), encoder.decoder))
    cache = running.current_cache if cooker.need_cache else None
    step = CookStep(encoder.step("cook_crude_sample"), cooker, stores, own if cooker.need_primary else None, cache)
    make = dataset.pipeline
    if not isinstance(make, Make) or make.encode is not None:
        made: Dataset = MapDataset(dataset, step)
        return made
    cooks = tuple(in_sequence([cook, step]) for cook in make.cooks or [None] * len(make.leaves))
    return replace(dataset, pipeline=replace(make, cooks=cooks), user_code=True)


def _decoded(store: Any, decoder: Any) -> Any:
    return store if decoder is None or isinstance(store, DecodeFileStore) else DecodeFileStore(store, decoder=decoder)


def encoded(encoder: Any, dataset: Any) -> Dataset:
    """The data set of what ``encode_sample`` or ``preencode_sample`` makes of its samples."""
    ready: Dataset = described(dataset)
    if isinstance(ready.pipeline, Make):
        return replace(ready, pipeline=stages.encoded(encoder, ready.pipeline), user_code=True)
    first = "preencode_sample" if encoder.overrides("preencode_sample") else "encode_sample"
    if not encoder.converts(first):
        return ready
    function = encoder.step(first)
    wrapper: Any = IterMapDataset if inspect.isgeneratorfunction(function) else MapDataset
    made: Dataset = wrapper(ready, OfEach(function) if wrapper is IterMapDataset else function)
    return made


@dataclass(frozen=True)
class OfEach:
    """A generator function on one value as one on a stream of them."""

    function: Callable[[Any], Iterator[Any]]

    def __call__(self, values: Iterator[Any]) -> Iterator[Any]:
        """All that it gives for each value."""
        for value in values:
            yield from self.function(value)


def batched(
    encoder: Any,
    dataset: Any,
    *,
    batch_size: int | None,
    batch_drop_last: bool,
    packing_buffer_size: int | None,
) -> Dataset:
    """The data set of packs, groups or batches of its encoded samples.

    Args:
        encoder: says what they are.
        dataset: the encoded samples.
        batch_size: values in a batch; ``None``: they come one by one.
        batch_drop_last: leave out a batch that is not full.
        packing_buffer_size: samples of a lane among which packs are chosen.
    """
    dataset = described(dataset)
    waiting = lane_share(encoder.group_buffer_size, dataset.worker_config)
    source = stages.packed(encoder, dataset.pipeline, window_samples=packing_buffer_size)
    pipeline = stages.batched(encoder, source, batch_size=batch_size, drop_last=batch_drop_last, most_waiting=waiting)
    plan = dataset.plan
    if isinstance(plan, InOrder):
        unit = evaluation_unit(encoder, batch_size=batch_size, packing_buffer_size=packing_buffer_size)
        plan = replace(plan, unit_rows=unit)
    return with_plan(replace(dataset, pipeline=pipeline, batch_size=batch_size, user_code=True), plan)


def training_of(
    encoder: Any,
    datasets: Sequence[Any],
    *,
    blend_mode: Any,
    shuffle_buffer_size: int | None,
    virtual_epoch_length: int,
    repeat: bool,
    **batching: Any,
) -> Dataset:
    """One data set for training of several: blended, shuffled, encoded, batched, cut into passes.

    Args:
        encoder: what a sample and a batch are.
        datasets: the data sets with their weights or repetitions.
        blend_mode: whether weights or repetitions count.
        shuffle_buffer_size: rows of a lane that are shuffled among themselves at least.
        virtual_epoch_length: batches of each rank in a pass; 0: no end.
        repeat: go on for ever.
        batching: as for ``build_batch``.
    """
    counts = getattr(blend_mode, "value", blend_mode) != "dataset_weight"
    if not counts and not repeat:
        raise ConfigError("repeat=False does not go with weights: a blend by weight has no end of its own")
    built = [_repeated(one, repetitions=counts) for one in datasets]
    if not counts:
        built = [RepeatDataset(one) for one in built]  # before they are blended, or rows would count and not weights
    if len(built) == 1:
        dataset = built[0]
    else:
        weights = [
            float(one.plan.epoch_rows) if counts else loaded.weight for one, loaded in zip(built, datasets, strict=True)
        ]
        dataset = BlendDataset(*zip(built, weights, strict=True))
    if repeat:
        dataset = RepeatDataset(dataset)
    if shuffle_buffer_size is not None and shuffle_buffer_size > 1:
        dataset = ShuffleBufferDataset(dataset, shuffle_buffer_size)
    dataset = encoder.build_batch(encoder.build_encode_sample(dataset, worker_config=dataset.worker_config), **batching)
    whole: Dataset = EpochizeDataset(dataset, virtual_epoch_length) if virtual_epoch_length else dataset
    return whole


def evaluation_of(encoder: Any, datasets: Sequence[Any], *, limit: int | None, **batching: Any) -> Dataset:
    """One data set for evaluation of several, one after the other; ``limit``: batches of each rank at most."""
    dataset = ConcatDataset(*(loaded.dataset.build() for loaded in datasets))
    encode = encoder.build_encode_sample(dataset, worker_config=dataset.worker_config)
    made: Dataset = encoder.build_batch(encode, **batching)
    limited: Dataset = LimitDataset(made, limit) if limit else made
    return limited


def accepted(function: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a user's version of a signature has."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return settings
    names = {one.name for one in parameters}
    return {name: value for name, value in settings.items() if name in names}


def _repeated(loaded: Any, *, repetitions: bool) -> Dataset:
    dataset: Dataset = described(loaded.dataset.build())
    times = loaded.repetitions if repetitions else None
    if times is None or times == 1:
        return dataset
    passes = Fraction(times).limit_denominator(1_000_000)
    whole = int(passes) if passes.denominator == 1 else passes
    plan: Any = dataset.plan
    return with_plan(dataset, replace(plan, leaves=tuple(replace(leaf, passes=whole) for leaf in plan.leaves)))
