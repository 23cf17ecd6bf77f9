"""A sample as text: its structure as YAML, tensors and arrays by shape, range and first values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

_SHOWN_VALUES = 3
_WIDTH = 10**9  # of a line: none is broken


def format_sample_detailed(sample: Any) -> str:
    """The fields of a sample as YAML.

    Args:
        sample: a dict, a dataclass, or anything that holds such.
    """
    return yaml.safe_dump(_plain(sample), sort_keys=False, width=_WIDTH, allow_unicode=True).rstrip("\n")


def format_sample_compact(sample: Any) -> str:
    """A sample in one line: its type and key."""
    key = sample.get("__key__") if isinstance(sample, Mapping) else getattr(sample, "__key__", None)
    return type(sample).__name__ if key is None else f"{type(sample).__name__}(__key__={key!r})"


def default_get_batch_keys(batch: Any) -> list[str] | None:
    """The keys of the samples of a batch, as its field or entry ``__key__``, ``__keys__`` or ``keys`` tells them.

    Args:
        batch: a batch; of a list, the first value counts.

    Returns:
        the keys; ``None`` where it has no such list of text.
    """
    if isinstance(batch, list):
        return default_get_batch_keys(batch[0]) if batch else None
    for name in ("__key__", "__keys__", "keys"):
        found = (
            batch.get(name) if isinstance(batch, Mapping) else getattr(batch, name, None) if name != "keys" else None
        )
        if isinstance(found, list) and all(isinstance(key, str) for key in found):
            return found
    return None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {type(value).__name__: fields}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _in_words(value)


def _in_words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"np.ndarray(shape={value.shape}, dtype={value.dtype}{_values(value)})"
    if hasattr(value, "dtype") and hasattr(value, "device"):
        return f"Tensor(shape={value.shape}, dtype={value.dtype}, device={value.device}{_values(value)})"
    return repr(value)


def _values(array: Any) -> str:
    """Range and first values of a tensor or array that has any."""
    flat = array.reshape(-1)
    if not len(flat):
        return ""
    first = flat[:_SHOWN_VALUES]
    shown = ", ".join(map(repr, first if isinstance(array, np.ndarray) else first.tolist()))
    more = ", ..." if len(flat) > _SHOWN_VALUES else ""
    return f", min={flat.min().item()}, max={flat.max().item()}, values=[{shown}{more}]"
