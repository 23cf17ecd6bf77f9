"""A sample as text: its structure as YAML, tensors and arrays by shape, range, first and last values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import islice
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


def format_sample_compact(sample: Any, depth: int = 3, max_items: int = 10, max_str_len: int = 50) -> str:
    """A sample in one line, for messages.

    Args:
        sample: a dict, a dataclass, or anything that holds such.
        depth: levels that are shown; what lies below is ``...``.
        max_items: entries of a level that are shown at most.
        max_str_len: characters of a text that are shown at most.
    """

    def short(value: Any) -> str:
        return format_sample_compact(value, depth - 1, max_items, max_str_len)

    if isinstance(sample, str):
        return repr(sample if len(sample) <= max_str_len else f"{sample[:max_str_len]}...")
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        fields = (f"{one.name}={short(getattr(sample, one.name))}" for one in dataclasses.fields(sample))
        return f"{type(sample).__name__}({', '.join(fields) if depth > 0 else '...'})"
    if isinstance(sample, Mapping):
        entries = (f"{name}: {short(value)}" for name, value in islice(sample.items(), max_items))
        return f"{{{', '.join(entries) if depth > 0 else '...'}}}"
    if isinstance(sample, list | tuple):
        listed = ", ".join(map(short, sample[:max_items])) if depth > 0 else "..."
        return f"[{listed}]" if isinstance(sample, list) else f"({listed})"
    text = _in_words(sample, values=False)
    return text if len(text) <= max_str_len or hasattr(sample, "dtype") else f"{text[:max_str_len]}..."


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


def _in_words(value: Any, *, values: bool = True) -> str:
    if isinstance(value, np.ndarray):
        return f"np.ndarray(shape={value.shape}, dtype={value.dtype}{_values(value) if values else ''})"
    if hasattr(value, "dtype") and hasattr(value, "device"):
        shown = _values(value) if values else ""
        return f"Tensor(shape={value.shape}, dtype={value.dtype}, device={value.device}{shown})"
    return repr(value)


def _values(array: Any) -> str:
    """Range, first and last values of a tensor or array that has any."""
    flat = array.reshape(-1)
    if not len(flat):
        return ""
    pieces = [flat] if len(flat) <= 2 * _SHOWN_VALUES else [flat[:_SHOWN_VALUES], flat[-_SHOWN_VALUES:]]
    listed = [map(repr, piece if isinstance(array, np.ndarray) else piece.tolist()) for piece in pieces]
    shown = ", ..., ".join(", ".join(piece) for piece in listed)
    return f", min={flat.min().item()}, max={flat.max().item()}, values=[{shown}]"
