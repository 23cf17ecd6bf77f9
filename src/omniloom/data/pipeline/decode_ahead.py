"""Media parts that are decoded when they are looked at are decoded by threads just before somebody looks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from omniloom.data.media.lazy import Lazy


def lazies_of(sample: Any) -> Iterator[Lazy[Any]]:
    """The undecoded parts of a sample: values of a dict, fields of a dataclass, and of lists and tuples in these."""
    if isinstance(sample, dict):
        values: Any = dict.values(sample)  # not the dict's own `values`, which may decode
    elif dataclasses.is_dataclass(sample):
        values = [getattr(sample, field.name, None) for field in dataclasses.fields(sample)]
    else:
        values = (sample,)
    for value in values:
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Lazy) and not one.is_decoded:
                yield one


def decode(sample: Any) -> None:
    """Decode the undecoded parts of a sample. What is faulty shows when it is looked at."""
    for lazy in lazies_of(sample):
        with contextlib.suppress(Exception):
            lazy.get()
