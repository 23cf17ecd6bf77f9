"""States that Energon 7 saved, read without importing or running anything that they name."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniloom.errors import StateError, WeightsError
from omniloom.weights.restricted_pickle import Inert, load_restricted

_MODULE = "megatron.energon"


class _FlexState(dict[str, Any]):
    """Stands for Energon's dict of that name."""


_BUILDERS = {(f"{_MODULE}.state", "FlexState"): _FlexState}


@dataclass(frozen=True)
class EnergonState:
    """What a state of Energon's says.

    Attributes:
        ranks: of each rank in the file, the worker whose turn it is, micro-batch size, and workers' states.
    """

    ranks: tuple[Mapping[str, Any], ...]

    def to_told(self) -> dict[str, Any]:
        """What is to be told of it."""
        first = self.ranks[0]
        workers = [worker for rank in self.ranks for worker in rank["workers"]]
        return {
            "saved_by": "Energon",
            "ranks_in_the_file": len(self.ranks),
            "workers_a_rank": len(first["workers"]),
            "next_worker": first["next_worker_id"],
            "micro_batch_size": first["micro_batch_size"],
            "batches_by_worker": [worker["batches"] for worker in workers],
            "rows_read_by_data_set": {
                f"data set {number}": rows
                for number, rows in enumerate(map(sum, zip(*_leaf_rows(workers), strict=True)))
            },
        }


def _leaf_rows(workers: list[dict[str, Any]]) -> Iterator[list[int]]:
    return (worker["leaf_rows"] for worker in workers)


def read_energon_state(path: Path) -> EnergonState | None:
    """The state of Energon's in a file that torch saved; ``None`` where it holds none.

    Raises:
        StateError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((one for one in archive.namelist() if one.endswith("/data.pkl")), None)
            data = None if name is None else archive.read(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise StateError(f"{path}: not a file that torch.save wrote: {error}") from error
    if data is None:
        return None
    try:
        found = load_restricted(data, where=str(path), builders=_BUILDERS, persistent=lambda _: None)
    except WeightsError as error:
        raise StateError(str(error)) from error
    if isinstance(found, dict) and "dataloader_state_dict" in found:
        found = found["dataloader_state_dict"]
    states = found if isinstance(found, list | tuple) else [found]
    ranks = [_rank(state) for state in states if _is(state, "SavableDataLoaderState")]
    return EnergonState(tuple(ranks)) if ranks and len(ranks) == len(states) else None


def _is(value: Any, name: str) -> bool:
    return isinstance(value, Inert) and value.name.startswith(_MODULE) and value.name.endswith(f".{name}")


def _rank(state: Any) -> Mapping[str, Any]:
    fields = _fields(state)
    return {
        "next_worker_id": fields.get("next_worker_id"),
        "micro_batch_size": fields.get("micro_batch_size"),
        "workers": [_worker(worker) for worker in fields.get("worker_states", ())],
    }


def _worker(worker: Any) -> dict[str, Any]:
    """Batches that a worker has given, and rows of each leaf that it had read at the checkpoint it would begin from."""
    if isinstance(worker, dict):
        return {"batches": None, **_leaves(worker)}
    checkpoint = _fields(worker)
    inner = _fields(checkpoint["state"]) if checkpoint.get("state") is not None else {}
    batches = inner.get("sample_index", 0) + checkpoint.get("offset", 0)
    return {"batches": batches, **_leaves(inner.get("dataset_state", {}))}


def _leaves(tree: Any) -> dict[str, list[Any]]:
    """Of each leaf below a node: rows that it has given; whole epochs of the worker's share, and rows in them."""
    leaves = list(_leaf_states(tree))
    whole = [
        (leaf.get("_epoch_count", 0), leaf["_sample_count"] - leaf.get("_epoch_sample_count", 0)) for leaf in leaves
    ]
    return {"leaf_rows": [leaf["_sample_count"] for leaf in leaves], "leaf_epochs": whole}


def _leaf_states(tree: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(tree, dict):
        return
    if "_sample_count" in tree:
        yield tree
    for child in tree.get("datasets", ()):
        yield from _leaf_states(child)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object that was pickled with slots or with a dict."""
    state = value.state
    if isinstance(state, tuple):
        return {**(state[0] or {}), **(state[1] or {})}
    if isinstance(state, list):  # a frozen dataclass with slots gives its values in their order
        names = {
            "SavableDataLoaderState": ("worker_states", "next_worker_id", "micro_batch_size"),
            "SavableDatasetCheckpoint": ("state", "offset"),
            "SavableDatasetState": ("rng", "dataset_state", "sample_index"),
        }[value.name.rpartition(".")[2]]
        return dict(zip(names, state, strict=True))
    return dict(state or {})
