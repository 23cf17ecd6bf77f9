"""What is made of a batch in the caller's process: tensors of its arrays, page-locked copies of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from omniloom.data.kinds import map_tensors
from omniloom.data.media.decoder import to_tensor


def finisher(*, late: bool, pin: bool) -> Callable[[Any], Any] | None:
    """The function that finishes batches.

    Args:
        late: arrays stand for tensors (the pipeline worked without torch).
        pin: copy tensors to page-locked memory.
    """
    if pin:
        return pinned_arrays if late else pinned
    return map_arrays if late else None


def pinned(batch: Any) -> Any:
    """A batch with its tensors copied to page-locked memory."""
    return map_tensors(batch, _pin)


def pinned_arrays(batch: Any) -> Any:
    """The same of a batch whose arrays stand for tensors."""
    return pinned(map_arrays(batch))


def _pin(tensor: Any) -> Any:
    return tensor.pin_memory()


def map_arrays(value: Any) -> Any:
    """A batch with its arrays made tensors over the same memory, in place where it is a dataclass or a dict."""
    if isinstance(value, np.ndarray):
        return to_tensor(value)
    if isinstance(value, dict):
        for name, one in value.items():
            if isinstance(one, np.ndarray | list):
                value[name] = map_arrays(one)
    elif isinstance(value, list):
        if value and isinstance(value[0], np.ndarray):
            return [map_arrays(one) for one in value]
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            one = getattr(value, name)
            if isinstance(one, np.ndarray | list):
                setattr(value, name, map_arrays(one))
    return value
