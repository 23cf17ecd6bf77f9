"""Reads Megatron's ``torch`` checkpoints: one file per tensor-parallel rank and pipeline stage, made whole again.

    FOLDER/latest_checkpointed_iteration.txt          the iteration, or "release"
    FOLDER/iter_0000001/mp_rank_TT/model_optim_rng.pt         TT: tensor-parallel rank; one stage
    FOLDER/iter_0000001/mp_rank_TT_PPP/model_optim_rng.pt     PPP: pipeline stage

Only the model is read: optimizer and random states stay untouched, and nothing that the pickles name is imported.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.megatron_cuts import Cut, Part, cut_of, part_of, split_layer
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.torch_archive import LazyTensor, TorchArchive, named_tensors

TRACKER = "latest_checkpointed_iteration.txt"
FILE = "model_optim_rng.pt"
_RANK = re.compile(r"^mp_rank_(\d+)(?:_(\d{3}))?$")
_ITERATION = re.compile(r"^(iter_\d+|release)$")

_Slices = list[tuple[TorchArchive, LazyTensor]]


def iteration_folder(path: Path) -> Path:
    """The folder of one iteration: the one the tracker names, the only one there is, or the path itself.

    Raises:
        WeightsError: there is none, or there are several and no tracker.
    """
    if _ITERATION.match(path.name) or (path / ".metadata").is_file():
        return path
    if any(_RANK.match(inner.name) for inner in path.iterdir() if inner.is_dir()):
        return path
    tracker = path / TRACKER
    if tracker.is_file():
        told = tracker.read_text().strip()
        name = "release" if told == "release" else f"iter_{int(told):07d}" if told.isdecimal() else ""
        if not name or not (path / name).is_dir():
            raise WeightsError(f"{tracker}: says {told[:40]!r}, for which there is no folder. Correct it.")
        return path / name
    found = sorted(inner for inner in path.iterdir() if inner.is_dir() and _ITERATION.match(inner.name))
    if len(found) == 1:
        return found[0]
    raise WeightsError(
        f"{path}: holds {len(found)} folders iter_* and no {TRACKER}. Name one of them, or write its number there."
    )


def is_megatron_folder(path: Path) -> bool:
    """Whether a folder holds Megatron's checkpoints, of either form."""
    if not path.is_dir():
        return False
    names = [inner.name for inner in path.iterdir() if inner.is_dir()]
    return (path / TRACKER).is_file() or any(_RANK.match(name) or _ITERATION.match(name) for name in names)


class MegatronFolder(Source):
    """A whole model under the names that it has with one rank and one stage.

    Args:
        path: the checkpoint's folder, with or without the iteration's.

    Attributes:
        args: what Megatron was run with; empty where the checkpoint does not say.
        alone: the part that names without a prefix belong to.
        tensor_parallel_size: ranks that it was cut for.
        pipeline_parallel_size: stages that it was cut for.

    Raises:
        WeightsError: ranks are missing, disagree, or are unsound.
    """

    def __init__(self, path: Path) -> None:
        folder = iteration_folder(path)
        self.where = str(path)
        self._archives = _open_ranks(folder)
        self.tensor_parallel_size = 1 + max(tensor for _, tensor in self._archives)
        self.pipeline_parallel_size = 1 + max(stage for stage, _ in self._archives)
        first = self._archives[0, 0].data
        given = first.get("args") if isinstance(first, Mapping) else None
        self.args = given if isinstance(given, argparse.Namespace) else argparse.Namespace()
        self._check_complete(folder)
        self._slices = _across_stages(
            self._archives, ranks=self.tensor_parallel_size, stages=self.pipeline_parallel_size
        )
        self.alone = kind_of(self._slices)
        self._cuts = cuts_of({name: slices[0][1].info for name, slices in self._slices.items()}, alone=self.alone)
        self.tensors = {name: self._whole_info(name, slices) for name, slices in self._slices.items()}

    def read(self, name: str) -> Tensor:
        """Read the slices of all ranks and join them."""
        self.info(name)
        slices = [archive.read(lazy) for archive, lazy in self._slices[name]]
        try:
            return self._cuts[name].merge(slices)
        except WeightsError as error:
            raise WeightsError(f"{self.where}: {name!r} {error}") from error

    def identity(self) -> str:
        """Path, size and time of every rank's file."""
        return "\n".join(archive.file.identity for archive in self._archives.values())

    def close(self) -> None:
        """Unmap all files."""
        for archive in self._archives.values():
            archive.file.close()

    def _check_complete(self, folder: Path) -> None:
        told = getattr(self.args, "tensor_model_parallel_size", None)
        ranks = max(self.tensor_parallel_size, told if isinstance(told, int) else 0)
        missing = [
            f"rank {tensor} of stage {stage}"
            for stage in range(self.pipeline_parallel_size)
            for tensor in range(ranks)
            if (stage, tensor) not in self._archives
        ]
        if missing:
            raise WeightsError(f"{folder}: {', '.join(missing)} missing; found {len(self._archives)} folders mp_rank_*")

    def _whole_info(self, name: str, slices: _Slices) -> TensorInfo:
        infos = {lazy.info for _, lazy in slices}
        if len(infos) != 1 or len(slices) != self.tensor_parallel_size:
            raise WeightsError(
                f"{self.where}: {name!r} is {' and '.join(sorted(map(str, infos)))} on {len(slices)} of "
                f"{self.tensor_parallel_size} tensor-parallel ranks; expected one shape on all"
            )
        (info,) = infos
        return TensorInfo(self._cuts[name].shape_of_whole(info.shape, self.tensor_parallel_size), info.dtype)


def kind_of(names: Mapping[str, Any]) -> Part:
    """Which part of a model a checkpoint without prefixes holds."""
    if any(name in names for name in ("conv1.weight", "embedder.weight", "class_token")):
        return "vision"
    if any(name.startswith("encoder.") for name in names):
        return "projection"
    return "language"


def cuts_of(infos: Mapping[str, TensorInfo], *, alone: Part) -> dict[str, Cut]:
    """Where each tensor of a checkpoint is cut.

    Whether an MLP is gated is seen from its shapes: fc1 then gives twice as many features as fc2 takes.

    Args:
        infos: shapes of whole tensors, or of the slices of one rank.
        alone: the part that names without a prefix belong to.
    """
    gated = {"language": False, "vision": False, "projection": False}
    for name, info in infos.items():
        if name.endswith("mlp.linear_fc1.weight"):
            second = infos.get(name.replace("linear_fc1", "linear_fc2"))
            if second is not None and len(second.shape) == 2:
                gated[part_of(name, alone=alone)[0]] |= info.shape[0] == 2 * second.shape[1]
    return {
        name: cut_of(name, alone=alone, gated_vision=gated["vision"], gated_language=gated["language"])
        for name in infos
    }


def named_chunks(archive: TorchArchive) -> list[dict[str, LazyTensor]]:
    """The model of one rank's file: one dict of tensors, or one for each virtual stage; without TE's extra state.

    Raises:
        WeightsError: there is no model in the file.
    """
    data = archive.data
    if isinstance(data, Mapping):
        if isinstance(data.get("model"), Mapping):
            return [_weights_only(named_tensors(data["model"]))]
        chunks = sorted((key for key in data if re.fullmatch(r"model\d+", str(key))), key=lambda key: int(key[5:]))
        if chunks:
            return [_weights_only(named_tensors(data[key])) for key in chunks]
    raise WeightsError(f"{archive.file.path}: holds no 'model'; expected a checkpoint of Megatron")


def _weights_only(tensors: dict[str, LazyTensor]) -> dict[str, LazyTensor]:
    return {name: lazy for name, lazy in tensors.items() if not name.endswith("_extra_state")}


def _open_ranks(folder: Path) -> dict[tuple[int, int], TorchArchive]:
    archives: dict[tuple[int, int], TorchArchive] = {}
    for inner in sorted(folder.iterdir()):
        found = _RANK.match(inner.name)
        if found is not None and (inner / FILE).is_file():
            archives[int(found[2] or 0), int(found[1])] = TorchArchive(inner / FILE)
        elif inner.name.startswith("mp_rank_") and inner.is_dir():
            raise WeightsError(
                f"{inner}: is not a rank of a dense model with a {FILE}. Checkpoints of experts are not read."
            )
    if (0, 0) not in archives:
        raise WeightsError(f"{folder}: holds no mp_rank_00/{FILE}")
    return archives


def _across_stages(archives: Mapping[tuple[int, int], TorchArchive], *, ranks: int, stages: int) -> dict[str, _Slices]:
    """Slices of every tensor, rank by rank, with the layers numbered through all stages.

    With virtual stages, chunk ``v`` of all stages comes before chunk ``v + 1`` of any.
    """
    chunks = {place: named_chunks(archive) for place, archive in archives.items()}
    found: dict[str, _Slices] = defaultdict(list)
    first_layer = 0
    for chunk in range(max(len(own) for own in chunks.values())):
        for stage in range(stages):
            layers: set[int] = set()
            for rank in range(ranks):
                for name, lazy in _chunk(chunks[stage, rank], chunk).items():
                    whole, layer = _renumbered(name, first_layer)
                    layers |= layer
                    found[whole].append((archives[stage, rank], lazy))
            first_layer += len(layers)
    return dict(found)


def _chunk(chunks: list[dict[str, LazyTensor]], number: int) -> dict[str, LazyTensor]:
    return chunks[number] if number < len(chunks) else {}


def _renumbered(name: str, first_layer: int) -> tuple[str, set[int]]:
    part, inner = part_of(name, alone="language")
    layer = split_layer(inner)
    if part != "language" or layer is None:
        return name, set()
    before, number, after = layer
    return f"{name.removesuffix(inner)}{before}{number + first_layer}{after}", {number}
