"""Reads and plans Megatron's ``torch_dist`` checkpoints: torch's distributed format, without Megatron and unpickling.

Tensors are whole here and lie in pieces; layers are stacked: ``decoder.layers.mlp.linear_fc2.weight`` is
``[layers, out, in]``. They are shown one layer at a time under the names of ``torch`` checkpoints. What describes the
pieces, ``.metadata``, is a pickle and is read without importing anything; each piece is a file of ``torch.save``.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range
from omniloom.weights.megatron_cuts import Part
from omniloom.weights.megatron_folder import iteration_folder, kind_of
from omniloom.weights.restricted_pickle import Inert, load_restricted
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.torch_archive import LazyTensor, TorchArchive

METADATA = ".metadata"
NOT_WEIGHTS = ("optimizer.", "chained_", "rng_state", "opt_param_scheduler", "rerun_state_machine", "iteration")
_STACKED = re.compile(r"^(.*?decoder\.layers\.)(?!\d)(.+)$")


class Piece(NamedTuple):
    """A block of a tensor and the file it lies in."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


class _View(NamedTuple):
    key: str
    layer: int | None


def is_dist_folder(path: Path) -> bool:
    """Whether the checkpoint that a folder names is of this form."""
    try:
        return path.is_dir() and (iteration_folder(path) / METADATA).is_file()
    except WeightsError:
        return False


class DistFolder(Source):
    """A model of a distributed checkpoint, one layer at a time.

    Args:
        path: the checkpoint's folder, with or without the iteration's.

    Attributes:
        args: what Megatron was run with; empty where the checkpoint does not say.
        alone: the part that names without a prefix belong to.

    Raises:
        WeightsError: the metadata is unsound, or files are missing.
    """

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._folder = iteration_folder(path)
        self._infos, self._pieces = read_metadata(self._folder / METADATA)
        self._check_files()
        self.args = self._read_args()
        self._views = dict(self._one_by_one())
        self.tensors = {name: self._info_of(view) for name, view in self._views.items()}
        self.alone: Part = kind_of(self.tensors)
        self._archives: dict[tuple[str, int], TorchArchive] = {}

    def read(self, name: str) -> Tensor:
        """Put a tensor together from its pieces."""
        info = self.info(name)
        return self._assembled(name, [Range(axis, 0, length) for axis, length in enumerate(info.shape)])

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read only the pieces, and of these only the pages, that hold the range."""
        ranges = [Range(axis, 0, length) for axis, length in enumerate(self.info(name).shape)]
        ranges[wanted.axis] = wanted
        return self._assembled(name, ranges)

    def identity(self) -> str:
        """Path, size and time of every file."""
        files = sorted({piece.file for pieces in self._pieces.values() for piece in pieces})
        stats = [(self._folder / file).stat() for file in (METADATA, *files)]
        told = [
            f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in zip((METADATA, *files), stats, strict=True)
        ]
        return "\n".join([str(self._folder.resolve()), *told])

    def close(self) -> None:
        """Unmap all files."""
        self._archives.clear()

    def _assembled(self, name: str, ranges: list[Range]) -> Tensor:
        key, layer = self._views[name]
        box = ranges if layer is None else [Range(0, layer, layer + 1), *(Range(r.axis + 1, *r[1:]) for r in ranges)]
        shape = [r.stop - r.start for r in box]
        numbers = torch.Size(shape).numel()
        whole: Tensor | None = None
        covered = 0
        for piece in self._pieces[key]:
            overlap = _overlap(piece, box)
            if overlap is None:
                continue
            source, target, size = overlap
            part = self._tensor_of(key, piece)[source]
            if size == numbers:
                return part if layer is None else part.squeeze(0)
            if whole is None:
                whole = torch.empty(shape, dtype=self._infos[key].dtype)
            whole[target] = part
            covered += size
        if covered != numbers or whole is None:
            raise WeightsError(f"{self.where}: {key!r} has {covered} of {numbers} numbers of {name!r} in its pieces")
        return whole if layer is None else whole.squeeze(0)

    def _tensor_of(self, key: str, piece: Piece) -> Tensor:
        place = piece.file, piece.start
        if place not in self._archives:
            self._archives[place] = TorchArchive(
                self._folder / piece.file, start=piece.start, stop=piece.start + piece.length
            )
        archive = self._archives[place]
        expected = TensorInfo(piece.sizes, self._infos[key].dtype)
        if not isinstance(archive.data, LazyTensor) or archive.data.info != expected:
            raise WeightsError(f"{self._folder / piece.file}: at byte {piece.start} is not {expected} of {key!r}")
        return archive.read(archive.data)

    def _one_by_one(self) -> list[tuple[str, _View]]:
        views: list[tuple[str, _View]] = []
        for key, info in self._infos.items():
            found = _STACKED.match(key)
            if found is None:
                views.append((key, _View(key, None)))
            else:
                views += [(f"{found[1]}{layer}.{found[2]}", _View(key, layer)) for layer in range(info.shape[0])]
        return views

    def _info_of(self, view: _View) -> TensorInfo:
        info = self._infos[view.key]
        return info if view.layer is None else TensorInfo(info.shape[1:], info.dtype)

    def _check_files(self) -> None:
        missing = {p.file for pieces in self._pieces.values() for p in pieces if not (self._folder / p.file).is_file()}
        if missing:
            raise WeightsError(f"{self._folder}: {', '.join(sorted(missing))} missing. Copy the whole folder.")

    def _read_args(self) -> argparse.Namespace:
        common = self._folder / "common.pt"
        if common.is_file():
            data = TorchArchive(common).data
            args = data.get("args") if isinstance(data, Mapping) else None
            if isinstance(args, argparse.Namespace):
                return args
        return argparse.Namespace()


def read_metadata(path: Path) -> tuple[dict[str, TensorInfo], dict[str, list[Piece]]]:
    """Shapes of all weights in a distributed checkpoint, and where their pieces lie.

    Raises:
        WeightsError: the file is missing or unsound, or names a file outside its folder.
    """
    if not path.is_file():
        raise WeightsError(f"{path}: is missing")
    try:
        data = _state(load_restricted(path.read_bytes(), where=str(path)))
        infos = dict(_infos(data["state_dict_metadata"]))
        return infos, _pieces(data, infos)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{path}: does not describe a distributed checkpoint ({error!r})") from error


def _infos(described: Mapping[str, Any]) -> list[tuple[str, TensorInfo]]:
    found = []
    for key, entry in described.items():
        state = _state(entry)
        if (
            isinstance(state, Mapping)
            and "size" in state
            and not key.startswith(NOT_WEIGHTS)
            and "_extra_state" not in key
        ):
            properties = _state(state["properties"])
            dtype = properties["dtype"] if isinstance(properties, Mapping) else properties[0]
            found.append((key, TensorInfo(tuple(state["size"]), dtype)))
    return found


def _pieces(data: Mapping[str, Any], infos: Mapping[str, TensorInfo]) -> dict[str, list[Piece]]:
    sizes = {
        (key, tuple(_state(chunk)["offsets"])): tuple(_state(chunk)["sizes"])
        for key in infos
        for chunk in _state(data["state_dict_metadata"][key])["chunks"]
    }
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for index, storage in data["storage_data"].items():
        place, stored = _state(index), _state(storage)
        key = place["fqn"]
        if key not in infos:
            continue
        file = stored["relative_path"]
        if PurePosixPath(file).name != file or file in {"", ".", ".."} or "\\" in file:
            raise WeightsError(f"{key!r} lies in {file!r}, which is not a file name within the folder")
        if stored.get("transform_descriptors"):
            raise WeightsError(f"{key!r} is compressed or otherwise transformed, which is not read here")
        offsets = tuple(place["offset"] or (0,) * len(infos[key].shape))
        pieces[key].append(Piece(offsets, sizes[key, offsets], file, int(stored["offset"]), int(stored["length"])))
    return dict(pieces)


def _state(thing: Any) -> Any:
    return thing.state if isinstance(thing, Inert) else thing


def _overlap(piece: Piece, box: list[Range]) -> tuple[tuple[slice, ...], tuple[slice, ...], int] | None:
    source, target, size = [], [], 1
    for wanted, offset, length in zip(box, piece.offsets, piece.sizes, strict=True):
        start, stop = max(wanted.start, offset), min(wanted.stop, offset + length)
        if start >= stop:
            return None
        source.append(slice(start - offset, stop - offset))
        target.append(slice(start - wanted.start, stop - wanted.start))
        size *= stop - start
    return tuple(source), tuple(target), size
