"""Lists of values become one: stacked with padding where they are arrays or tensors, listed where they are not."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from omniloom.errors import DatasetError


def batch_list(batch: list[Any]) -> list[Any]:
    """The values as they are."""
    return batch


def batch_stack(batch: Sequence[Any]) -> Any:
    """Stacked along a new first dimension; all shapes must be equal."""
    if isinstance(batch[0], np.ndarray):
        return np.stack(batch)
    return sys.modules["torch"].stack(list(batch), dim=0)


def batch_pad_stack(batch: Sequence[Any]) -> Any:
    """Stacked along a new first dimension, each in the leading corner of the largest extent, zeros beyond.

    Args:
        batch: tensors (or arrays) with equally many dimensions, of one kind of dtype: the widest is the batch's.

    Raises:
        DatasetError: numbers of dimensions, or kinds of dtypes, differ.
    """
    first = batch[0]
    dtype = _common_dtype(batch)
    shapes = {tuple(value.shape) for value in batch}
    if len({len(shape) for shape in shapes}) > 1:
        raise DatasetError(f"values of {sorted(shapes)} cannot be stacked: their numbers of dimensions differ")
    extent = tuple(map(max, zip(*shapes, strict=True)))
    alike = len(shapes) == 1
    if isinstance(first, np.ndarray):
        stacked: Any = (np.empty if alike else np.zeros)((len(batch), *extent), dtype)
    else:
        torch = sys.modules["torch"]
        make = torch.empty if alike else torch.zeros
        stacked = make((len(batch), *extent), dtype=dtype, device=first.device)
    for place, value in zip(stacked, batch, strict=True):
        place[tuple(map(slice, value.shape))] = value
    return stacked


def concat_pad(batch: Sequence[Any]) -> Any:
    """Concatenated along the first dimension; the others are padded with zeros to the largest extent.

    Raises:
        DatasetError: kinds of dtypes differ.
    """
    dtype = _common_dtype(batch)
    rest = [max(extents) for extents in zip(*(tuple(value.shape[1:]) for value in batch), strict=True)]
    rows = sum(value.shape[0] for value in batch)
    first = batch[0]
    if isinstance(first, np.ndarray):
        joined: Any = np.zeros((rows, *rest), dtype)
    else:
        joined = sys.modules["torch"].zeros((rows, *rest), dtype=dtype, device=first.device)
    start = 0
    for value in batch:
        joined[(slice(start, start + value.shape[0]), *map(slice, value.shape[1:]))] = value
        start += value.shape[0]
    return joined


def _common_dtype(batch: Sequence[Any]) -> Any:
    """The dtype that holds all values: the widest of one kind. Another kind would round them, or cut them off."""
    dtypes = sorted({value.dtype for value in batch}, key=str)
    if len(dtypes) == 1:
        return dtypes[0]
    promote: Any = np.promote_types if isinstance(batch[0], np.ndarray) else sys.modules["torch"].promote_types
    common = functools.reduce(promote, dtypes)
    if len({_kind(dtype) for dtype in (*dtypes, common)}) > 1:
        raise DatasetError(f"values of {', '.join(map(str, dtypes))} cannot become one; give all of them one dtype")
    return common


def _kind(dtype: Any) -> str:
    """Whole numbers, floating point, bool...: the name without its bits."""
    name = str(dtype).removeprefix("torch.").rstrip("0123456789")
    return {"uint": "int", "bfloat": "float"}.get(name, name)


def generic_batch(batch: list[Any]) -> Any:
    """A batch by the type of the first value: tensors padded and stacked, dicts, dataclasses and namedtuples by
    field, everything else listed.
    """
    first = batch[0]
    if hasattr(first, "dtype") and hasattr(first, "shape"):
        return batch_pad_stack(batch)
    if isinstance(first, dict):
        return {key: generic_batch([value[key] for value in batch]) for key in first}
    if hasattr(first, "from_samples"):
        return first.from_samples(batch)
    names = fields_of(first)
    if names is not None:
        return type(first)(**{name: generic_batch([getattr(value, name) for value in batch]) for name in names})
    return batch_list(batch)


def generic_concat(batch: list[Any]) -> Any:
    """As `generic_batch`, but arrays and tensors are concatenated along their first dimension: what batches become."""
    first = batch[0]
    if hasattr(first, "dtype") and hasattr(first, "shape"):
        return concat_pad(batch)
    names = fields_of(first)
    if names is None:
        return batch_list(batch)
    if isinstance(first, dict):
        return {key: generic_concat([value[key] for value in batch]) for key in names}
    return type(first)(**{name: generic_concat([getattr(value, name) for value in batch]) for name in names})


def homogeneous_concat_mix(samples: list[Any]) -> Any:
    """`generic_concat` of batches of one type. Raises DatasetError where their types differ."""
    check_one_type(samples)
    return generic_concat(samples)


def check_one_type(samples: list[Any]) -> None:
    """See that batches are of one type. Raises DatasetError."""
    kinds = {type(sample).__name__ for sample in samples}
    if len(kinds) > 1:
        raise DatasetError(f"batches of one type expected; {', '.join(sorted(kinds))} found")


def concat_samples(samples: list[Any], lengths: Sequence[int]) -> dict[str, Any]:
    """One dict of the samples of a pack, field by field.

    Arrays and tensors are concatenated along their first dimension, lists are joined, everything else is listed; an
    attention that knows ``cu_lengths`` keeps the samples apart.

    Args:
        samples: dicts, dataclasses or namedtuples with the same fields.
        lengths: length of each sample in the pack.

    Returns:
        the fields, ``cu_lengths`` (int32, one more than samples: where each starts, and the end) and ``max_length``.
    """
    names = fields_of(samples[0])
    if names is None:
        raise DatasetError(f"a {type(samples[0]).__name__} has no fields to pack by; override pack_selected_samples")
    columns = {name: [one[name] if isinstance(one, dict) else getattr(one, name) for one in samples] for name in names}
    packed = {name: _concatenated(values) for name, values in columns.items()}
    return {**packed, "cu_lengths": np.cumsum([0, *lengths], dtype=np.int32), "max_length": max(lengths)}


def _concatenated(values: list[Any]) -> Any:
    if hasattr(values[0], "dtype") and len(values[0].shape) > 0:
        return concat_pad(values)
    return [one for value in values for one in value] if isinstance(values[0], list) else values


def fields_of(value: Any) -> list[str] | None:
    """Names of the fields of a dict, dataclass or namedtuple; ``None`` of anything else."""
    if isinstance(value, dict):
        return list(value)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(value._fields)
    return None


def batch_by_field(
    samples: list[Any], result_type: Any, actions: dict[str, Callable[[list[Any]], Any]], default_action: Any
) -> Any:
    """One ``result_type`` (dict, dataclass or namedtuple) of many samples, field by field."""
    names = fields_of(samples[0])
    if names is None:
        raise DatasetError(f"a {type(samples[0]).__name__} has no fields to batch by; override `batch`")
    if isinstance(samples[0], dict):
        columns = {name: [sample[name] for sample in samples] for name in names}
    else:
        columns = {name: [getattr(sample, name) for sample in samples] for name in names}
    made = {name: actions.get(name, default_action)(values) for name, values in columns.items()}
    return made if result_type is dict else result_type(**made)
