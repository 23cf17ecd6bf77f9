"""States between ranks: gathered, scattered, agreed upon."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

from omniloom.data.loader.config import WorkerConfig, running_distributed
from omniloom.errors import StateError

logger = logging.getLogger("omniloom")


def gather_states(plain: dict[str, Any], config: WorkerConfig, dst_rank: int) -> list[dict[str, Any]] | None:
    """All ranks' states on global rank ``dst_rank``, in rank order; ``None`` on the others."""
    distributed = running_distributed()
    if config.ranks == 1:
        return [plain]
    if distributed is None:
        raise StateError(
            f"save_state_global on {config.ranks} ranks needs torch.distributed, which is not initialised.\n"
            "  Call init_process_group first, or use save_state_rank on each rank."
        )
    _check_group(distributed, config, what="save_state_global")
    at_destination = config.global_rank() == dst_rank
    gathered: list[Any] | None = [None] * config.ranks if at_destination else None
    distributed.gather_object(plain, gathered, dst=dst_rank, group=config.data_parallel_group)
    return gathered


def first_rank(config: WorkerConfig) -> int:
    """Rank in the whole job of the first rank of the data-parallel group."""
    distributed = running_distributed()
    if distributed is None or config.data_parallel_group is None:
        return 0
    return int(distributed.get_global_rank(config.data_parallel_group, 0))


def share_states(states: Sequence[Mapping[str, Any]] | None, config: WorkerConfig, src_rank: int) -> Any:
    """The list of states that rank ``src_rank`` of the data-parallel group has, on all its ranks."""
    distributed = running_distributed()
    if distributed is None:
        raise StateError("restore_state_global with src_rank needs torch.distributed, which is not initialised")
    _check_group(distributed, config, what="restore_state_global with src_rank")
    group = config.data_parallel_group
    source = distributed.get_global_rank(group, src_rank) if group is not None else src_rank
    box = [states if config.number == src_rank else None]
    distributed.broadcast_object_list(box, src=source, group=group)
    return box[0]


def disagreement(source: object, config: WorkerConfig, *, of: str = "") -> StateError | None:
    """What `agree_on_presence` raises; ``None`` where the ranks agree."""
    try:
        agree_on_presence(source, config, of=of)
    except StateError as error:
        return error
    return None


def agree_on_presence(source: object, config: WorkerConfig, *, of: str = "") -> None:
    """Raise StateError on all ranks when a state is there on some of them only, or when some never ask for one.

    The ranks tell each other through the job's key-value store, so that one that does not come is waited for no longer
    than ``restore_timeout_seconds``, and is named. Without torch.distributed, or with one rank, there is nobody to
    agree with; and where only some ranks of the job have loaders and say no `data_parallel_group`, nobody knows which
    they are.

    Args:
        source: what is restored, or ``None``.
        config: rank, world and group.
        of: what tells the loaders of a job apart.
    """
    distributed = running_distributed()
    if distributed is None or config.ranks == 1 or not _is_group(distributed, config):
        return
    here = source is not None and all(Path(path).exists() for path in _paths(source))
    members = distributed.get_process_group_ranks(config.data_parallel_group or distributed.group.WORLD)
    name = f"omniloom/restore/{sha1(f'{members} {of}'.encode(), usedforsecurity=False).hexdigest()}"
    _ROUNDS[name] = _ROUNDS.get(name, -1) + 1
    board = PresenceBoard(distributed.distributed_c10d._get_default_store(), f"{name}/{_ROUNDS[name]}", config.ranks)
    board.tell(config.number, here)
    board.agree(config.restore_timeout_seconds)


_ROUNDS: dict[str, int] = {}
"""How often this process has asked, by the loader's kind: each time is a round of its own on all ranks."""

_LOOK_SECONDS = 0.05
_TOLD_AFTER_SECONDS = 15.0


class PresenceBoard:
    """Where the ranks of a group tell whether they have a state.

    Args:
        store: a key-value store that all ranks see, such as a ``TCPStore``.
        name: of this round; no other has it.
        ranks: ranks of the group.
    """

    def __init__(self, store: Any, name: str, ranks: int) -> None:
        self._store, self._name, self._ranks = store, name, ranks

    def tell(self, rank: int, present: bool) -> None:
        """Say whether a rank has a state."""
        self._store.set(f"{self._name}/{rank}", "1" if present else "0")
        if present:
            self._store.add(f"{self._name}/present", 1)
        self._store.add(f"{self._name}/came", 1)

    def agree(self, timeout_seconds: float) -> None:
        """Wait until all ranks have said so. Raises StateError where some have a state and others not, or never say."""
        begin = time.monotonic()
        is_told = False
        while self._store.add(f"{self._name}/came", 0) < self._ranks:
            waited = time.monotonic() - begin
            if waited > timeout_seconds:
                raise StateError(
                    f"{_spoken(self._silent())} of {self._ranks} did not ask for a state within {timeout_seconds:g} s; "
                    "the others did.\n  Perhaps their state is missing. Give all ranks their state, or none: "
                    "then all call restore_state_rank(None), or nobody. WorkerConfig(restore_timeout_seconds=) gives "
                    "more time; loader.rewind() begins anew all the same."
                )
            if waited > _TOLD_AFTER_SECONDS and not is_told:
                logger.warning("restoring waits for %s of %d", _spoken(self._silent()), self._ranks)
                is_told = True
            time.sleep(_LOOK_SECONDS)
        if 0 < self._store.add(f"{self._name}/present", 0) < self._ranks:
            absent = [rank for rank in range(self._ranks) if self._store.get(f"{self._name}/{rank}") == b"0"]
            raise StateError(
                f"{_spoken(absent)} of {self._ranks} have no state to restore, the others have.\n"
                "  Going on would repeat or lose data. Give all ranks their state, or none."
            )

    def _silent(self) -> list[int]:
        return [rank for rank in range(self._ranks) if not self._store.check([f"{self._name}/{rank}"])]


def _spoken(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:20])) + (f" and {len(ranks) - 20} more" if len(ranks) > 20 else "")
    return f"ranks {shown}"


def _is_group(distributed: Any, config: WorkerConfig) -> bool:
    """Whether the data-parallel group, or without one the whole job, has as many ranks as have loaders."""
    return bool(distributed.get_world_size(config.data_parallel_group) == config.ranks)


def _check_group(distributed: Any, config: WorkerConfig, *, what: str) -> None:
    if not _is_group(distributed, config):
        size = distributed.get_world_size(config.data_parallel_group)
        raise StateError(
            f"{what}: the loaders are those of {config.ranks} ranks, and the process group has {size}.\n"
            "  Give WorkerConfig the group of the ranks that have loaders: data_parallel_group=."
        )


def _paths(source: object) -> list[str | Path]:
    if isinstance(source, str | Path):
        return [source]
    if isinstance(source, Sequence):
        return [path for one in source for path in _paths(one)]
    return []
