"""A lane goes on under a mix that has changed: other weights, or leaves that were added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.moving import MovingStream
from omniloom.data.plan.plan import Plan
from omniloom.data.plan.stream import PlanStream


def rebase_lane(
    plan: Plan, saved_leaves: Sequence[tuple[str, int, float]], lane: Lane, stream: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The state of a lane under ``plan``, of its state under a plan with the same leaves but other weights.

    Every leaf goes on from the row it had come to; the blend starts anew. A packing window that was
    open begins anew as well: up to a window of samples comes again. A leaf that is new in a mix that counts epochs
    begins with the epoch of the mix that is running.

    Args:
        plan: the plan as it is now.
        saved_leaves: (name, rows, weight) of the leaves when the state was saved.
        lane: the lane.
        stream: its state then; ``None`` at its start.
    """
    if stream is None:
        return None
    now = {leaf.name: leaf for leaf in plan.leaves}
    leaves = tuple(replace(now[name], rows=rows, weight=weight, shares=()) for name, rows, weight in saved_leaves)
    then = replace(plan, leaves=leaves)
    # A stream whose weights changed says in its state what its block holds.
    before = MovingStream(then, lane) if "counts" in stream else PlanStream(then, lane)
    before.load_state_dict(stream)
    cursors = before.cursors()
    carried = before.carried()
    started = plan.start_cursors(replace(lane, lap=lane.lap + carried.get("lap", 0)))
    saved_names = {leaf.name for leaf in leaves}
    cursors |= {name: rows for name, rows in started.items() if name not in saved_names}
    return {"index": 0, "cursors": cursors, "base": cursors} | carried
