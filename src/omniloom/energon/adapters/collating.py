"""`generic_batch` and `generic_concat` as Energon has them: tensors become one, arrays of numpy are listed.

omniloom's own take arrays together as well. Under Energon's names an array is none that stands for a tensor: tensors
are made where the sample is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from omniloom.data import collate

_ARRAYS = (np.ndarray, np.generic)


def generic_batch(batch: list[Any]) -> Any:
    """A batch by the type of the first value: tensors padded and stacked, dicts, dataclasses and namedtuples by
    field, everything else listed.
    """
    return _by_type(batch, generic_batch, collate.generic_batch)


def generic_concat(batch: list[Any]) -> Any:
    """As `generic_batch`, but tensors are concatenated along their first dimension: what batches become."""
    return _by_type(batch, generic_concat, collate.generic_concat)


def homogeneous_concat_mix(samples: list[Any]) -> Any:
    """`generic_concat` of batches of one type. Raises DatasetError where their types differ."""
    collate.check_one_type(samples)
    return generic_concat(samples)


def _by_type(batch: list[Any], again: Callable[[list[Any]], Any], other: Callable[[list[Any]], Any]) -> Any:
    first = batch[0]
    if isinstance(first, _ARRAYS):
        return batch
    names = None if hasattr(first, "from_samples") else collate.fields_of(first)
    if names is None:
        return other(batch)
    if isinstance(first, dict):
        return {name: again([value[name] for value in batch]) for name in names}
    return type(first)(**{name: again([getattr(value, name) for value in batch]) for name in names})
