"""Plans Megatron's ``torch`` checkpoints: which slice of which tensor goes into the file of which rank and stage."""

from __future__ import annotations

import argparse
import copy
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniloom.errors import WeightsError
from omniloom.weights.filling import Plan
from omniloom.weights.layout import Job, Slot
from omniloom.weights.megatron_cuts import Part, layers_of_stages, part_of, place_on_stages, split_layer
from omniloom.weights.megatron_folder import FILE, TRACKER, cuts_of, kind_of
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.torch_archive_layout import Planned, lay_out_torch_file
from omniloom.weights.view import complain

ITERATION = 1
LINEARS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


@dataclass(frozen=True)
class Parallelism:
    """How many ways a checkpoint is cut.

    Attributes:
        tensor: tensor-parallel ranks.
        pipeline: pipeline stages.
        layers: layers of each stage; ``None`` where all have the same number.
    """

    tensor: int = 1
    pipeline: int = 1
    layers: tuple[int, ...] | None = None


def plan_megatron(
    source: Source,
    parallelism: Parallelism,
    *,
    args: argparse.Namespace | None,
    tied: bool,
    transformer_engine: bool = True,
    small: Mapping[str, bytes | Path] | None = None,
) -> Plan:
    """A folder with one file for each rank and stage, and the tracker.

    Args:
        source: the model under Megatron's names with one rank and one stage.
        parallelism: how it is cut.
        args: what the files say that Megatron was run with; ``None`` leaves it out, as the converters of towers do.
        tied: whether the head is the embedding.
        transformer_engine: add the empty extra state that TE's modules expect.
        small: other files of the folder.

    Raises:
        WeightsError: tensors do not divide among the ranks (all are listed), or layers among the stages.
    """
    alone = kind_of(source.tensors)
    stages = _stages(source, alone, parallelism)
    cuts = cuts_of(source.tensors, alone=alone)
    complain(
        source.where,
        {
            f"that cannot be cut for {parallelism.tensor} ranks": [
                f"{name!r} {list(info.shape)}"
                for name, info in source.tensors.items()
                if not cuts[name].fits(info.shape, parallelism.tensor)
            ]
        },
    )
    models: dict[tuple[int, int], OrderedDict[str, Planned | None]] = defaultdict(OrderedDict)
    jobs: list[Job] = []
    for name, info in source.tensors.items():
        slots: list[Slot] = []
        slice_info = TensorInfo(cuts[name].shape_of_slice(info.shape, parallelism.tensor), info.dtype)
        for stage, inner in place_on_stages(name, alone=alone, stages=stages, tied=tied):
            for rank in range(parallelism.tensor):
                models[stage, rank][inner] = Planned(inner, slice_info)
                slots.append(Slot(rank_file(stage, rank, parallelism), inner, cuts[name], rank, parallelism.tensor))
                if transformer_engine:
                    _add_extra_state(models[stage, rank], inner)
        jobs.append(Job(name, tuple(slots)))
    files = tuple(
        lay_out_torch_file(rank_file(stage, rank, parallelism), _contents(model, args, parallelism))
        for (stage, rank), model in sorted(models.items())
    )
    return Plan(files, tuple(jobs), {**(small or {}), TRACKER: str(ITERATION).encode()})


def rank_file(stage: int, rank: int, parallelism: Parallelism) -> str:
    """Path of a rank's file within the checkpoint's folder."""
    suffix = f"_{stage:03d}" if parallelism.pipeline > 1 else ""
    return f"iter_{ITERATION:07d}/mp_rank_{rank:02d}{suffix}/{FILE}"


def number_of_layers(names: Sequence[str], alone: Part) -> int:
    """Layers of the language model, counted in the names."""
    found = set()
    for name in names:
        part, inner = part_of(name, alone=alone)
        layer = split_layer(inner)
        if part == "language" and layer is not None:
            found.add(layer[1])
    return len(found)


def _stages(source: Source, alone: Part, parallelism: Parallelism) -> tuple[range, ...]:
    layers = number_of_layers(list(source.tensors), alone)
    if not layers and parallelism.pipeline > 1:
        raise WeightsError(f"{source.where}: holds no language model, and nothing else is cut into pipeline stages")
    return layers_of_stages(layers, stages=parallelism.pipeline, sizes=parallelism.layers)


def _contents(
    model: OrderedDict[str, Planned | None], args: argparse.Namespace | None, parallelism: Parallelism
) -> dict[str, Any]:
    if args is None:
        return {"model": model}
    told = copy.copy(args)
    told.tensor_model_parallel_size = parallelism.tensor
    told.pipeline_model_parallel_size = parallelism.pipeline
    return {"args": told, "checkpoint_version": 3.0, "iteration": ITERATION, "model": model}


def _add_extra_state(model: OrderedDict[str, Planned | None], name: str) -> None:
    module, _, kind = name.rpartition(".")
    if kind == "weight" and module.endswith(LINEARS):
        model[f"{module}._extra_state"] = None
