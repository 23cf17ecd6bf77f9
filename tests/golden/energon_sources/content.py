"""A sample as plain JSON, so that those of two loaders can be compared: tensors and bytes by their digest."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

LEFT_OUT = ("__restore_key__", "__sources__", "__shard__")


def plain(sample: Any) -> Any:
    """Type, key, fields and sources of a sample. Restore keys differ between loaders, and paths between machines."""
    fields = sample
    if not isinstance(sample, dict):
        fields = {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
    sources = [[source.index, source.shard_name, sorted(source.file_names)] for source in fields["__sources__"]]
    values = {name: _plain(value) for name, value in fields.items() if name not in LEFT_OUT}
    return {"type": type(sample).__name__, "sources": sources, **values}


def stored(data: bytes, source: Any) -> list[Any]:
    """A value of a store and where it came from, without the path of the store."""
    shard = "" if Path(source.shard_name).is_absolute() else source.shard_name
    return [_plain(data), [source.index, shard, list(source.file_names)]]


def _plain(value: Any) -> Any:
    if hasattr(value, "numpy"):
        array = value.numpy()
        return {"tensor": [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()[:16]]}
    if isinstance(value, bytes):
        return {"bytes": hashlib.sha256(value).hexdigest()[:16]}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value
