"""A state as tensors for torch's distributed checkpoint: uint8, one of JSON a lane, of a size that does not change.

Each rank saves the lanes it owns under names of their own, so a checkpoint that was saved on some ranks
can be loaded on others. Nothing of it is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omniloom.data.loader.state import RankState, damaged, unpack_lane
from omniloom.errors import StateError

HEAD = "omniloom_loader"
LANE = "omniloom_lane_{:05d}"
_CURSOR_BYTES = 13  # twelve digits and a comma
_LANE_BYTES = 192  # everything but the cursors
_KEY_BYTES = 40  # of a sample that waits
_HEAD_BYTES = 4_096


def to_tensors(state: RankState, *, lists: int, keys: int = 0) -> dict[str, Any]:
    """The head and the lanes as uint8 tensors, padded with blanks.

    Args:
        state: the state.
        lists: lists of a number a leaf that the state of a lane holds at most.
        keys: samples that there is room for to wait in windows and groups of a lane.

    Raises:
        StateError: more of them wait.
    """
    plain = state.to_plain()
    lanes = plain.pop("lane_states")
    plain["rank"] = 0  # the head is the same on all ranks
    names = len(plain["leaves"])
    head = json.dumps(plain, separators=(",", ":")).encode()
    size = _LANE_BYTES + _CURSOR_BYTES * names * lists + _KEY_BYTES * keys
    tensors = {HEAD: _tensor(head, -(-(len(head) + 256) // _HEAD_BYTES) * _HEAD_BYTES)}
    for index, lane in lanes.items():
        tensors[LANE.format(int(index))] = _tensor(json.dumps(lane, separators=(",", ":")).encode(), size)
    return tensors


def from_tensors(tensors: Mapping[str, Any], *, where: str, lanes: int) -> RankState:
    """The state that was made tensors.

    Args:
        tensors: the head and lanes: those of a rank of a run with ``lanes`` lanes, or all.
        where: what is read, for messages.
        lanes: lanes of this run.

    Raises:
        StateError: it is none, or is of another number of lanes than what was asked for.
    """
    if HEAD not in tensors:
        raise StateError(f"{where}: no {HEAD!r} among {sorted(map(str, tensors))[:5]}")
    head = RankState.from_plain({**_json(tensors[HEAD], HEAD, where), "lane_states": {}}, where=where)
    names = [leaf[0] for leaf in head.mix.leaves]
    prefix = LANE.split("{", maxsplit=1)[0]
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            plain = _json(tensor, name, where)
            try:
                head.lane_states[int(name.removeprefix(prefix))] = unpack_lane(plain, names)
            except (KeyError, TypeError, ValueError) as error:
                raise damaged(f"{where}: tensor {name!r}", error) from error
    if head.lanes != lanes and len(head.lane_states) < head.lanes:
        raise StateError(
            f"{where}: saved with {head.lanes} lanes, and this run asked for those of {lanes}.\n"
            f"  Give WorkerConfig(lanes={head.lanes}); without it, lanes follow ranks and workers."
        )
    return head


def _tensor(data: bytes, size: int) -> Any:
    import torch  # noqa: PLC0415 - only a caller that wants tensors needs it

    if len(data) > size:
        raise StateError(
            f"a lane's state takes {len(data)} bytes, and its tensor has {size}: many samples wait in groups.\n"
            "  Bound them by `group_buffer_size` of the task encoder, or use save_state_rank instead."
        )
    return torch.frombuffer(bytearray(data.ljust(size)), dtype=torch.uint8)


def _json(tensor: Any, name: str, where: str) -> Any:
    try:
        return json.loads(bytes(tensor.cpu().numpy()))
    except ValueError as error:
        raise StateError(f"{where}: tensor {name!r} does not hold JSON: {error}") from None
