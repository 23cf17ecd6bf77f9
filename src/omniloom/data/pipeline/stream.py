"""Describe, open, pull: what every stage of the pipeline is.

A stage is a frozen value that can be printed, compared and pickled. `open` gives the stream of one
lane. A stream has three methods; there is no reset. What it gives are pairs of the key that a value
was made from and the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from omniloom.data.pipeline.desk import Desk
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import ItemKey, SampleKey
from omniloom.storage.urls import redacted

State = dict[str, Any]
"""Counters that cannot be recomputed. JSON can hold it. Each stage adds its own names to its source's."""

Item = tuple[ItemKey, Any]
"""The key of the sample or pack that a value was made from (of a batch: of its first one), and the value."""


class KeyStream(Protocol):
    """The stream of a plan: keys of the samples of one lane."""

    def __next__(self) -> SampleKey: ...

    def peek(self, count: int) -> Sequence[SampleKey]:
        """Keys that come next, as many of ``count`` as are known, without drawing them."""

    def state_dict(self) -> State:
        """The place after the key that came last."""

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""


class KeyStage(Protocol):
    """A plan: what comes next."""

    def open(self, lane: Lane) -> KeyStream:
        """The keys of one lane, from its start."""


class Stream(Protocol):
    """The stream of a stage that works: values of one lane."""

    def __next__(self) -> Item: ...

    def state_dict(self) -> State:
        """The place after the value that came last."""

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""


class RemakingStream(Stream, Protocol):
    """A stream that can make a value again that it gave before: what stages that hold values back draw from."""

    def remake(self, key: Any) -> Item | None:
        """The value of a key, made anew; ``None`` where that cannot be done now. The stream's place stays."""


class Stage(Protocol):
    """A stage that works: a frozen value."""

    def open(self, lane: Lane, desk: Desk) -> Stream:
        """The values of one lane, from its start."""


def describe(stage: object) -> str:
    """A pipeline as text, one stage a line, the plan first."""
    lines: list[str] = []
    node: object | None = stage
    while node is not None and is_dataclass(node):
        shown = [f"{f.name}={_short(getattr(node, f.name))}" for f in fields(node) if f.name != "source"]
        lines.append(f"{type(node).__name__}({', '.join(shown)})")
        node = getattr(node, "source", None)
    return "\n".join(reversed(lines))


def _short(value: object) -> str:
    if callable(value) and not isinstance(value, type):
        return str(getattr(value, "__qualname__", type(value).__name__))
    if isinstance(value, tuple) and len(value) > 3:
        return f"({len(value)} x {type(value[0]).__name__})"
    shown = repr(value)
    return redacted(shown) if "://" in shown else shown
