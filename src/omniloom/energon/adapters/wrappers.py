"""Energon's wrapper datasets: each gives the description of another data set, and has nothing of its own.

What cannot be described, as it would have a state or an order of its own, is refused with the way that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.calls import Call, gives_many
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.iter_map import IterMap
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.seeding import BATCH, POSTENCODE
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Plan
from omniloom.energon.adapters.blends import NotOneToOneError, blended, chained, concatenated, in_sequence
from omniloom.energon.adapters.dataset import own_of
from omniloom.energon.adapters.own import Blended, Chained, Shuffled, described
from omniloom.energon.adapters.own_stage import OwnStage
from omniloom.errors import ConfigError, SkipSample


class MapDataset:
    """A function on each value; one on samples may be a generator function and give several."""

    def __new__(
        cls,
        dataset: Dataset,
        map_fn: Callable[[Any], Any],
        *,
        failure_tolerance: int | None = None,
        **_settings: Any,
    ) -> Any:
        """The data set of what ``map_fn`` makes of each value; it may fail ``failure_tolerance`` times in a row."""
        map_fn = _tolerating(map_fn, failure_tolerance)
        ready = _with_tensors(dataset)
        pipeline = ready.pipeline
        if isinstance(pipeline, Make) and pipeline.encode is None:
            return replace(ready, pipeline=replace(pipeline, encode=map_fn, encode_call="map_fn"), user_code=True)
        if isinstance(pipeline, Batch | Group):
            calls = (*pipeline.calls, ("map_fn", BATCH, map_fn))
            return replace(ready, pipeline=replace(pipeline, calls=calls), user_code=True)
        _one_for_one(map_fn, "MapDataset")
        if isinstance(pipeline, IterMap) and not isinstance(pipeline, OwnStage):
            mapped = replace(pipeline, function=_MappedResults(pipeline.function, map_fn))
            return replace(ready, pipeline=mapped, user_code=True)
        if isinstance(pipeline, Pack):
            _one_for_one(pipeline.pack, "MapDataset over packs")
            packed = replace(pipeline, pack=in_sequence((pipeline.pack, map_fn)) or map_fn)
            return replace(ready, pipeline=packed, user_code=True)
        return replace(ready, pipeline=Map(pipeline, ("map_fn", POSTENCODE, map_fn)), user_code=True)


class FilterDataset:
    """The values that a function says yes to."""

    def __new__(cls, dataset: Dataset, *, filter_fn: Callable[[Any], bool], **_settings: Any) -> Any:
        """The data set without the values that ``filter_fn`` refuses; they are counted as left out."""

        def passed(value: Any) -> Any:
            if not filter_fn(value):
                raise SkipSample("filtered")
            return value

        return MapDataset(dataset, passed)


class BatchDataset:
    """Batches of so many values."""

    def __new__(
        cls,
        dataset: Dataset,
        batch_size: int,
        batcher: Callable[[list[Any]], Any],
        *,
        drop_last: bool = False,
        failure_tolerance: int | None = None,
        **_settings: Any,
    ) -> Any:
        """The data set of what ``batcher`` makes of ``batch_size`` values."""
        source = _as_samples(_with_tensors(dataset))
        calls: tuple[Call, ...] = (("batcher", BATCH, _tolerating(batcher, failure_tolerance)),)
        pipeline = Batch(source.pipeline, batch_size, calls, drop_last=drop_last)
        plan = source.plan
        if isinstance(plan, InOrder) and not isinstance(source.pipeline, IterMap):
            plan = replace(plan, unit_rows=plan.unit_rows * batch_size)
        return with_plan(replace(source, pipeline=pipeline, batch_size=batch_size, user_code=True), plan)


class GroupBatchDataset:
    """Batches of values of one group each."""

    def __new__(
        cls,
        dataset: Dataset,
        fixed_batch_size: int | None,
        sample_group_key: Callable[[Any], Any],
        batcher: Callable[[list[Any]], Any],
        *,
        drop_last: bool = False,
        failure_tolerance: int | None = None,
        **_settings: Any,
    ) -> Any:
        """The data set of batches; ``sample_group_key`` gives the group and its batch size, or ``None``."""
        source = _as_samples(_with_tensors(dataset))
        if not _can_wait(source.pipeline):
            raise ConfigError("GroupBatchDataset: " + _CANNOT_WAIT)
        calls: tuple[Call, ...] = (("batcher", BATCH, _tolerating(batcher, failure_tolerance)),)
        pipeline = Group(source.pipeline, sample_group_key, fixed_batch_size, calls, drop_last=drop_last)
        plan = _one_unit_a_lane(source) if not isinstance(source.pipeline, IterMap) else source.plan
        return with_plan(replace(source, pipeline=pipeline, batch_size=fixed_batch_size, user_code=True), plan)


class PackingDataset:
    """Packs of samples, chosen in windows."""

    def __new__(
        cls,
        dataset: Dataset,
        buffer_size: int,
        pre_packer: Callable[[list[Any]], Sequence[Sequence[Any]]],
        final_packer: Callable[[list[Any]], Any],
        *,
        sample_encoder: Callable[[Any], Any] | None = None,
        pre_packer_failure_tolerance: int | None = None,
        final_packer_failure_tolerance: int | None = None,
        sample_encoder_failure_tolerance: int | None = None,
        **_settings: Any,
    ) -> Any:
        """The data set of packs; ``buffer_size`` is the rank's, shared by its lanes."""
        ready = _with_tensors(dataset)
        if not _gives_samples(ready.pipeline):
            raise ConfigError("PackingDataset: packs are made of samples; batch, group and map what comes of it")
        if not _can_wait(ready.pipeline):
            raise ConfigError("PackingDataset: " + _CANNOT_WAIT)
        source: Any = ready.pipeline
        config, plan = ready.worker_config, ready.plan
        window = max(1, buffer_size * config.ranks // config.run_lanes)
        if isinstance(plan, InOrder):
            window, plan = buffer_size, replace(plan, unit_rows=buffer_size)
        encoder = None if sample_encoder is None else _tolerating(sample_encoder, sample_encoder_failure_tolerance)
        pipeline = Pack(
            source,
            window_samples=window,
            select=_tolerating(pre_packer, pre_packer_failure_tolerance),
            pack=_tolerating(final_packer, final_packer_failure_tolerance),
            postencode=encoder,
        )
        return with_plan(replace(ready, pipeline=pipeline, user_code=True), plan)


class BlendDataset:
    """Samples of several data sets, drawn by weight."""

    def __new__(cls, *dataset_weights: tuple[Dataset, float], **_settings: Any) -> Any:
        """The blend. Each data set may have functions of its own on its samples, or pack or group them."""
        parts = [(_with_tensors(dataset), weight) for dataset, weight in dataset_weights]
        try:
            return blended(parts)
        except NotOneToOneError:
            return described(Blended(parts, worker_config=parts[0][0].worker_config))


class MixBatchDataset:
    """Batches of samples of several data sets, drawn by weight."""

    def __new__(
        cls,
        *dataset_weights: tuple[Dataset, float],
        batch_size: int,
        batch_mix_fn: Callable[[list[Any]], Any] = list,
        **_settings: Any,
    ) -> Any:
        """The data set of what ``batch_mix_fn`` makes of the samples of a batch."""
        return BatchDataset(BlendDataset(*dataset_weights), batch_size, batch_mix_fn)


class ConcatDataset:
    """Data sets for evaluation, one after the other."""

    def __new__(cls, *datasets: Dataset, **_settings: Any) -> Any:
        """The data sets as one."""
        parts = [_with_tensors(dataset) for dataset in datasets]
        try:
            return concatenated(parts)
        except NotOneToOneError:
            return described(Chained(parts, worker_config=parts[0].worker_config))


class RepeatDataset:
    """A data set several times, or for ever."""

    def __new__(cls, dataset: Any, *, repeats: float | None = None, **_settings: Any) -> Any:
        """The data set ``repeats`` times; ``None``: without end."""
        dataset = described(dataset)
        plan = dataset.plan
        if own_of(dataset) is not None and repeats is not None and repeats != int(repeats):
            raise ConfigError("RepeatDataset: a data set of your own is repeated whole times; LimitDataset cuts it")
        if isinstance(plan, InOrder):
            if repeats is None or repeats == int(repeats):
                return with_plan(dataset, replace(plan, passes=None if repeats is None else int(repeats)))
            whole = replace(plan, passes=None, units=int(plan.pass_units * Fraction(str(repeats))))
            return with_plan(dataset, whole)
        if plan.endless:
            return dataset
        if repeats is None:
            return with_plan(dataset, replace(plan, repeat=True))
        times = Fraction(str(repeats))
        passes = [times * (1 if leaf.passes is None else leaf.passes) for leaf in plan.leaves]
        more = tuple(
            replace(leaf, passes=int(one) if one.denominator == 1 else one)
            for leaf, one in zip(plan.leaves, passes, strict=True)
        )
        return with_plan(dataset, replace(plan, leaves=more))


class LimitDataset:
    """The beginning of a data set; each pass begins anew."""

    def __new__(cls, dataset: Dataset, length: int, **_settings: Any) -> Any:
        """The first ``length`` values (batches, packs or samples) of each rank."""
        return described(dataset).limited(length)


class EpochizeDataset:
    """A data set in passes of so many batches of each rank; the next pass goes on."""

    def __new__(cls, dataset: Dataset, length: int, worker_config: Any = None) -> Any:
        """The data set with ``virtual_epoch_length=length``."""
        return replace(described(dataset), virtual_epoch_length=length)


class ShuffleBufferDataset:
    """A data set whose rows are shuffled among so many neighbours of a lane at least.

    Of one of a user's own the values are shuffled, in blocks of so many.
    """

    def __new__(cls, dataset: Any, size: int, **_settings: Any) -> Any:
        """The data set with ``shuffle_buffer_size=size``. One for evaluation becomes one that is dealt by rows."""
        dataset = described(dataset)
        if own_of(dataset) is not None:
            return described(Shuffled(dataset, size, worker_config=dataset.worker_config))
        plan = dataset.plan
        if isinstance(plan, InOrder):
            leaves = tuple(replace(leaf, passes=plan.passes) for leaf in plan.leaves)
            plan = Plan(leaves, seed=dataset.worker_config.seed_offset)
        block_rows = max(plan.shuffle.block_rows, 2 * size if plan.shuffle.runs else size)
        return with_plan(dataset, replace(plan, shuffle=_mixed(plan.shuffle, block_rows)))


class Transparent:
    """A wrapper whose work the loader does by itself: ``GcDataset``, ``WatchdogDataset``, ``LogSampleDataset``."""

    def __new__(cls, dataset: Dataset, *_arguments: Any, **_settings: Any) -> Any:
        """The data set itself."""
        return described(dataset)


class IterMapDataset:
    """A function on the stream of samples, which gives another stream.

    A saved place is exact where the function's results depend only on the samples that it took since the result
    before: Energon asks for the same. In an evaluation each lane is given its share of the rows as one stream.
    """

    def __new__(cls, dataset: Dataset, iter_map_fn: Callable[[Iterator[Any]], Iterator[Any]], **_settings: Any) -> Any:
        """The data set of what ``iter_map_fn`` makes of an iterator of samples."""
        source = _as_samples(_with_tensors(dataset))
        if not _gives_samples(source.pipeline):
            raise ConfigError("IterMapDataset: a stream of samples expected; batch, pack and group what comes of it")
        if not _can_wait(source.pipeline):
            raise ConfigError("IterMapDataset: " + _CANNOT_WAIT)
        pipeline = IterMap(source.pipeline, iter_map_fn)
        return with_plan(replace(source, pipeline=pipeline, user_code=True), _one_unit_a_lane(source))


@dataclass(frozen=True)
class _MappedResults:
    """A function on a stream, and one on each of its results."""

    function: Callable[[Iterator[Any]], Iterator[Any]]
    map_fn: Callable[[Any], Any]

    def __call__(self, samples: Iterator[Any]) -> Iterator[Any]:
        return map(self.map_fn, self.function(samples))


def _tolerating(function: Callable[..., Any], tolerance: int | None) -> Callable[..., Any]:
    """The function, which may fail so many times in a row; ``None``: as it says itself, or the fault policy."""
    if tolerance is None:
        return function
    marked = partial(function)  # which is a generator function where the other one is, and pickled with its mark
    marked.__failure_tolerance__ = tolerance  # type: ignore[attr-defined]
    return marked


def _mixed(shuffle: Shuffle, block_rows: int) -> Shuffle:
    return replace(shuffle, block_rows=block_rows)


def with_plan(dataset: Dataset, plan: Plan | InOrder) -> Dataset:
    """The data set over another plan."""
    return replace(dataset, plan=plan, pipeline=_over(dataset.pipeline, plan))


def _one_unit_a_lane(dataset: Dataset) -> Plan | InOrder:
    """The plan of a data set, in which an evaluation gives each lane its share of the rows as one stream."""
    plan = dataset.plan
    if not isinstance(plan, InOrder):
        return plan
    lanes = dataset.worker_config.run_lanes
    return replace(plan, unit_rows=max(1, -(-sum(leaf.rows for leaf in plan.leaves) // lanes)))


def _over(stage: Any, plan: Plan | InOrder) -> Any:
    return replace(stage, source=plan if isinstance(stage, Make) else _over(stage.source, plan))


def _with_tensors(dataset: Any) -> Any:
    """A data set, or what a factory builds, that gives tensors within its pipeline and not only at its end."""
    dataset = described(dataset)
    if not isinstance(dataset, Dataset):
        return _with_tensors(dataset.build())
    finish = dataset.finish
    if finish is None:
        return dataset
    return MapDataset(replace(dataset, finish=None), finish)


def _as_samples(dataset: Dataset) -> Dataset:
    """A data set whose values can be collected: batches of one sample count as samples."""
    pipeline = dataset.pipeline
    if isinstance(pipeline, Batch) and pipeline.size == 1 and not gives_many(pipeline.calls):
        plain = replace(make_of(pipeline), encode=chained(pipeline), encode_call="encode_sample")
        return replace(dataset, pipeline=plain, batch_size=None)
    if isinstance(pipeline, Batch | Group):
        raise ConfigError("batches cannot be collected to batches again; say the size that is wanted at once")
    return dataset


def _gives_samples(pipeline: Any) -> bool:
    """Whether values are made of single samples, also by way of data sets of a user's own."""
    while isinstance(pipeline, Map):
        pipeline = pipeline.source
    if isinstance(pipeline, OwnStage):
        return all(map(_gives_samples, pipeline.inner))
    return isinstance(pipeline, Make)


_CANNOT_WAIT = "values of a data set of your own that are batches or shuffled cannot wait for others; collect first"


def _can_wait(pipeline: Any) -> bool:
    """Whether a saved place can name a value that waits for others: by the one sample or pack that it is made of."""
    while isinstance(pipeline, Map):
        pipeline = pipeline.source
    if isinstance(pipeline, OwnStage):
        return not isinstance(pipeline.object_of_user, Shuffled) and all(map(_can_wait, pipeline.inner))
    return not isinstance(pipeline, Batch | Group)


def _one_for_one(function: Callable[..., Any], what: str) -> None:
    if gives_many((("", 0, function),)):
        raise ConfigError(f"{what}: a generator function may come first over the samples, or over batches")
