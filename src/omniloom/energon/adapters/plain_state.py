"""States of a user's own as plain values that JSON can hold, and back: tuples, bytes, tensors and arrays are marked."""

from __future__ import annotations

import base64
import sys
from typing import Any

import numpy as np

from omniloom.energon.adapters.random_state import SystemRngState
from omniloom.errors import StateError

_MARK = "__of__"


def plain(value: Any, *, where: str) -> Any:
    """A state as plain values.

    Args:
        value: None, numbers, texts, bytes, tensors, arrays, the states of `SystemRng`, and lists, tuples, sets and
            dicts of these.
        where: whose it is, for messages.

    Raises:
        StateError: something else is in it.
    """
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, list):
        return [plain(one, where=where) for one in value]
    if isinstance(value, dict):
        return _mapping(value, where)
    marked = next((mark for kind, mark in _MARKED if isinstance(value, kind)), None)
    return _array(value, where) if marked is None else marked(value, where)


def _mapping(value: dict[Any, Any], where: str) -> Any:
    pairs = [(name, plain(one, where=f"{where}.{name}")) for name, one in value.items()]
    if all(isinstance(name, str) and name != _MARK for name, _ in pairs):
        return dict(pairs)
    return {_MARK: "dict", "value": [[plain(name, where=where), one] for name, one in pairs]}


def _collection(value: Any, where: str) -> Any:
    kind = "tuple" if isinstance(value, tuple) else type(value).__name__
    return {_MARK: kind, "value": [plain(one, where=where) for one in value]}


def _bytes(value: Any, _where: str) -> Any:
    return {_MARK: "bytes", "value": base64.b64encode(value).decode()}


def _system_random(value: SystemRngState, where: str) -> Any:
    parts = {"torch": value.torch, "numpy": value.numpy, "random": value.random}
    return {_MARK: "SystemRngState", "value": plain(parts, where=where)}


_MARKED: tuple[tuple[Any, Any], ...] = (
    ((tuple, set, frozenset), _collection),
    ((bytes, bytearray), _bytes),
    (SystemRngState, _system_random),
)


def _array(value: Any, where: str) -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return _buffer("tensor", dtype, value.shape, data)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return _buffer(kind, value.dtype.str, value.shape, value.tobytes())
    raise StateError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which a state cannot hold. Derive its "
        "class from Savable and give a state of plain values, bytes, tensors or arrays"
    )


def _buffer(kind: str, dtype: str, shape: Any, data: bytes) -> dict[str, Any]:
    return {_MARK: kind, "dtype": dtype, "shape": list(shape), "value": base64.b64encode(data).decode()}


def of_plain(value: Any) -> Any:
    """The state that `plain` made plain."""
    if isinstance(value, list):
        return [of_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {name: of_plain(one) for name, one in value.items()}
    kind, inner = value[_MARK], value["value"]
    if kind in _MADE:
        return _MADE[kind](inner)
    return _array_of(kind, value["dtype"], value["shape"], base64.b64decode(inner))


_MADE: dict[str, Any] = {
    "dict": lambda pairs: {of_plain(name): of_plain(one) for name, one in pairs},
    "tuple": lambda values: tuple(of_plain(one) for one in values),
    "set": lambda values: {of_plain(one) for one in values},
    "frozenset": lambda values: frozenset(of_plain(one) for one in values),
    "bytes": base64.b64decode,
    "SystemRngState": lambda parts: SystemRngState(**of_plain(parts)),
}


def _array_of(kind: str, dtype: str, shape: list[int], data: bytes) -> Any:
    if kind == "tensor":
        import torch  # noqa: PLC0415 - only a state that holds tensors needs it

        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).reshape(shape)
    array = np.frombuffer(data, np.dtype(dtype)).reshape(shape)
    return array.copy() if kind == "array" else array[()]
