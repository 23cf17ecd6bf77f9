"""The stages that a task encoder's steps make: what its ``build_`` methods give where they are not overridden."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.calls import Call
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.errors import ConfigError

if TYPE_CHECKING:
    from omniloom.data.task import TaskEncoder


def encoded(encoder: TaskEncoder[Any, Any, Any, Any], make: Make) -> Make:
    """Samples after ``encode_sample`` or ``preencode_sample``."""
    first = "preencode_sample" if encoder.overrides("preencode_sample") else "encode_sample"
    return replace(make, encode=encoder.step(first) if encoder.converts(first) else None, encode_call=first)


def packed(encoder: TaskEncoder[Any, Any, Any, Any], source: Any, *, window_samples: int | None) -> Any:
    """Packs of samples, or without a window the samples after ``postencode_sample``."""
    postencode = _one_to_one(encoder, "postencode_sample")
    if window_samples is not None:
        built_in = encoder.packer is not None and not encoder.overrides("select_samples_to_pack")
        return Pack(
            source,
            window_samples=window_samples,
            select=encoder.step("select_samples_to_pack"),
            pack=encoder.step("pack_selected_samples"),
            postencode=postencode,
            settings=str(encoder.packer) if built_in else "",
        )
    return source if postencode is None else Map(source, ("postencode_sample", seeding.POSTENCODE, postencode))


def batched(
    encoder: TaskEncoder[Any, Any, Any, Any],
    source: Any,
    *,
    batch_size: int | None,
    drop_last: bool,
    most_waiting: int | None,
) -> Any:
    """Batches, of one group each where the task encoder has a criterion; without a size, the samples or packs."""
    if encoder.overrides("batch_group_criterion"):
        criterion = encoder.step("batch_group_criterion")
        calls = _batch_calls(encoder)
        return Group(source, criterion, batch_size, calls, drop_last=drop_last, most_waiting=most_waiting)
    return source if batch_size is None else Batch(source, batch_size, _batch_calls(encoder), drop_last=drop_last)


def _batch_calls(encoder: TaskEncoder[Any, Any, Any, Any]) -> tuple[Call, ...]:
    calls: list[Call] = [("batch", seeding.BATCH if encoder.overrides("batch") else 0, encoder.step("batch"))]
    if encoder.converts("encode_batch"):
        number = seeding.ENCODE_BATCH if encoder.overrides("encode_batch") else 0
        calls.append(("encode_batch", number, encoder.step("encode_batch")))
    return tuple(calls)


def _one_to_one(encoder: TaskEncoder[Any, Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """A step that has to give one value for one, or ``None``. Raises ConfigError for a generator function."""
    if not encoder.overrides(name):
        return None
    function = encoder.step(name)
    if inspect.isgeneratorfunction(function):
        raise ConfigError(f"{name} is a generator function; only what comes before or after it may give several values")
    return function
