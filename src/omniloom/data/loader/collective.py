"""States between ranks: gathered, scattered, agreed upon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omniloom.data.loader.config import WorkerConfig, running_distributed
from omniloom.errors import StateError


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


def agree_on_presence(source: object, config: WorkerConfig) -> None:
    """Raise StateError on all ranks when a state is there on some of them only.

    Without torch.distributed, or with one rank, there is nobody to agree with; and where only some ranks of the job
    have loaders and say no `data_parallel_group`, nobody knows which they are.
    """
    distributed = running_distributed()
    if distributed is None or config.ranks == 1 or not _is_group(distributed, config):
        return
    here = source is not None and all(Path(path).exists() for path in _paths(source))
    everywhere: list[Any] = [None] * config.ranks
    distributed.all_gather_object(everywhere, here, group=config.data_parallel_group)
    if any(everywhere) and not all(everywhere):
        absent = [rank for rank, present in enumerate(everywhere) if not present]
        raise StateError(
            f"ranks {', '.join(map(str, absent))} of {config.ranks} have no state to restore, the others have.\n"
            "  Going on would repeat or lose data. Give all ranks their state, or none."
        )


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
