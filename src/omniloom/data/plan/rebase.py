"""A lane goes on under a mix that has changed: other weights, or leaves that were added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.moving import MovingStream
from omniloom.data.plan.plan import Plan
from omniloom.data.plan.stream import PlanStream


def rebase_lane(
    plan: Plan,
    saved_leaves: Sequence[tuple[str, int, float]],
    lane: Lane,
    stream: dict[str, Any] | None,
    *,
    saved_passes: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """The state of a lane under ``plan``, of its state under a plan with the same leaves but other weights.

    Every leaf goes on from the row it had come to; the blend starts anew. A packing window that was
    open begins anew as well: up to a window of samples comes again. A leaf that is new in a mix that counts epochs, or
    was left out, begins with the epoch of the mix that is running.

    Args:
        plan: the plan as it is now.
        saved_leaves: (name, rows, weight) of the leaves when the state was saved.
        lane: the lane.
        stream: its state then; ``None`` at its start.
        saved_passes: passes of the leaves that ended, when the state was saved; ``None``: as in ``plan``.
    """
    if stream is None:
        return None
    now = {leaf.name: leaf for leaf in plan.leaves}
    leaves = tuple(replace(now[name], rows=rows, weight=weight, shares=()) for name, rows, weight in saved_leaves)
    if saved_passes is not None:
        leaves = tuple(replace(leaf, passes=_passes(saved_passes.get(leaf.name))) for leaf in leaves)
    then = replace(plan, leaves=leaves)
    # A stream whose weights changed says in its state what its block holds.
    before = MovingStream(then, lane) if "counts" in stream else PlanStream(then, lane)
    before.load_state_dict(stream)
    cursors = before.cursors()
    carried = before.carried()
    started = plan.start_cursors(replace(lane, lap=lane.lap + carried.get("lap", 0)))
    drawn_names = {leaf.name for leaf in leaves if leaf.rows}
    cursors |= {name: rows for name, rows in started.items() if name not in drawn_names}
    return {"index": 0, "cursors": cursors, "base": cursors} | carried


def _passes(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)
