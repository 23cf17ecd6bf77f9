"""Plans Megatron's ``torch_dist`` checkpoints: whole tensors, layers stacked, one piece for each layer.

What is written loads with ``torch.distributed.checkpoint`` alone, onto any number of ranks.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from omniloom.errors import WeightsError
from omniloom.weights.filling import Plan
from omniloom.weights.layout import Extent, FileLayout, Job, Slot
from omniloom.weights.megatron_cuts import split_layer
from omniloom.weights.megatron_dist import METADATA
from omniloom.weights.megatron_folder import TRACKER
from omniloom.weights.megatron_write import LINEARS
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.torch_archive_layout import Planned, concatenated, lay_out_torch_file

_FILE_BYTES = 5_000_000_000
_FOLDER = "iter_0000001"
# How Megatron's checkpointing tells its own forms apart.
_FORMAT = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}


def plan_megatron_dist(
    source: Source,
    *,
    args: argparse.Namespace | None,
    small: Mapping[str, bytes | Path] | None = None,
    file_bytes: int = _FILE_BYTES,
) -> Plan:
    """A folder in torch's distributed form under Megatron's keys.

    Args:
        source: the model under the names of Megatron's ``torch`` checkpoints with one rank and one stage.
        args: what the checkpoint says that Megatron was run with.
        small: other files of the folder.
        file_bytes: size that a file does not exceed unless one tensor does.

    Raises:
        WeightsError: layers differ, so that they cannot be stacked.
    """
    stacks = _stacks(source)
    files: list[FileLayout] = []
    jobs: list[Job] = []
    places: dict[tuple[str, int], tuple[str, Extent]] = {}
    batch: list[tuple[str, int, str]] = []
    filled = 0
    for key, names in stacks.items():
        for number, name in enumerate(names):
            size = source.info(name).size_bytes
            if batch and filled + size > file_bytes:
                _add_file(source, stacks, batch, files, places)
                batch, filled = [], 0
            batch.append((key, number, name))
            filled += size
            jobs.append(Job(name, (Slot(f"{_FOLDER}/__0_{len(files)}.distcp", name),)))
    if batch:
        _add_file(source, stacks, batch, files, places)
    extra, extra_bytes = _extra_states(stacks, f"__0_{len(files)}.distcp")
    common = _saved({"args": args, "checkpoint_version": 3.0, "iteration": 1} if args is not None else {"iteration": 1})
    return Plan(
        tuple(files),
        tuple(jobs),
        {
            **(small or {}),
            TRACKER: b"1",
            f"{_FOLDER}/{METADATA}": _metadata(source, stacks, places, extra),
            f"{_FOLDER}/__0_{len(files)}.distcp": extra_bytes,
            f"{_FOLDER}/metadata.json": json.dumps({**_FORMAT, "common_backend_version": 1}).encode(),
            f"{_FOLDER}/common.pt": common,
        },
    )


def _stacks(source: Source) -> dict[str, list[str]]:
    """For each key, the names that are stacked under it; a key without layers has one."""
    stacks: dict[str, dict[int, str]] = {}
    single: dict[str, list[str]] = {}
    for name in source.tensors:
        layer = split_layer(name)
        if layer is None:
            single[name] = [name]
        else:
            before, number, after = layer
            stacks.setdefault(before + after.removeprefix("."), {})[number] = name
    for key, by_number in stacks.items():
        infos = {source.info(name) for name in by_number.values()}
        if len(infos) != 1 or sorted(by_number) != list(range(len(by_number))):
            raise WeightsError(f"{source.where}: layers of {key!r} differ or have gaps, so they cannot be stacked")
    return single | {key: [by_number[n] for n in sorted(by_number)] for key, by_number in stacks.items()}


def _is_stack(key: str, names: list[str]) -> bool:
    return names != [key]


def _add_file(
    source: Source,
    stacks: Mapping[str, list[str]],
    batch: list[tuple[str, int, str]],
    files: list[FileLayout],
    places: dict[tuple[str, int], tuple[str, Extent]],
) -> None:
    layouts = []
    for key, _, name in batch:
        info = source.info(name)
        shape = (1, *info.shape) if _is_stack(key, stacks[key]) else info.shape
        layouts.append(lay_out_torch_file("", Planned(name, TensorInfo(shape, info.dtype))))
    file = f"__0_{len(files)}.distcp"
    layout, extents = concatenated(f"{_FOLDER}/{file}", layouts)
    files.append(layout)
    places.update({(key, number): (file, extent) for (key, number, _), extent in zip(batch, extents, strict=True)})


def _extra_states(stacks: Mapping[str, list[str]], file: str) -> tuple[dict[str, tuple[str, Extent]], bytes]:
    """Empty extra state for every linear map of every layer: Megatron does not load a checkpoint without it."""
    empty = _saved([None])
    places: dict[str, tuple[str, Extent]] = {}
    for key, names in stacks.items():
        module, _, kind = key.rpartition(".")
        if kind == "weight" and module.endswith(LINEARS) and _is_stack(key, names):
            for number in range(len(names)):
                extent = Extent(len(places) * len(empty), len(empty))
                places[f"{module}._extra_state/shard_{number}_{len(names)}"] = (file, extent)
    return places, empty * len(places)


def _metadata(
    source: Source,
    stacks: Mapping[str, list[str]],
    places: Mapping[tuple[str, int], tuple[str, Extent]],
    extra: Mapping[str, tuple[str, Extent]],
) -> bytes:
    described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    stored: dict[MetadataIndex, _StorageInfo] = {}
    for key, names in stacks.items():
        info = source.info(names[0])
        stacked = _is_stack(key, names)
        chunks = []
        for number in range(len(names)):
            shape = (1, *info.shape) if stacked else info.shape
            offsets = torch.Size((number, *(0 for _ in info.shape)) if stacked else tuple(0 for _ in info.shape))
            chunks.append(ChunkStorageMetadata(offsets, torch.Size(shape)))
            file, extent = places[key, number]
            stored[MetadataIndex(key, offsets)] = _StorageInfo(file, extent.offset, extent.size_bytes)
        size = torch.Size((len(names), *info.shape) if stacked else info.shape)
        described[key] = TensorStorageMetadata(TensorProperties(dtype=info.dtype), size, chunks)
    for key, (file, extent) in extra.items():
        described[key] = BytesStorageMetadata()
        stored[MetadataIndex(key)] = _StorageInfo(file, extent.offset, extent.size_bytes)
    keys = {key: (key,) for key in described}
    return pickle.dumps(Metadata(described, planner_data=keys, storage_data=stored))


def _saved(data: object) -> bytes:
    stream = io.BytesIO()
    torch.save(data, stream)
    return stream.getvalue()
