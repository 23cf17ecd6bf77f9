"""Folders in the form of Hugging Face: safetensors or ``.bin`` files, whole or in shards with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range
from omniloom.weights.filling import Plan
from omniloom.weights.layout import FileLayout, Job, Slot
from omniloom.weights.safetensors_file import SafetensorsFile, lay_out_safetensors
from omniloom.weights.source import Joined, Source
from omniloom.weights.torch_archive import ArchiveSource, TorchArchive, named_tensors

# In the order in which they are looked for; an index comes before the single file that it may describe.
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLES = (
    "model.safetensors",
    "pytorch_model.bin",
    "open_clip_model.safetensors",
    "diffusion_pytorch_model.safetensors",
)
SHARD_BYTES = 5_000_000_000


class Sharded(Source):
    """The tensors of a folder with an index.

    Args:
        index: the index file.

    Raises:
        WeightsError: the index is unsound, shards are missing, or index and shards disagree.
    """

    def __init__(self, index: Path) -> None:
        self.where = str(index.parent)
        weight_map = _weight_map(index)
        files = sorted(set(weight_map.values()))
        missing = [name for name in files if not (index.parent / name).is_file()]
        if missing:
            raise WeightsError(
                f"{index}: names {len(files)} shards, of which {len(missing)} are missing: {', '.join(missing)}. Fetch "
                "them, or the folder again."
            )
        self._shards = {name: open_tensor_file(index.parent / name) for name in files}
        self._weight_map = weight_map
        absent = [name for name, file in weight_map.items() if name not in self._shards[file].tensors]
        extra = [name for shard in self._shards.values() for name in shard.tensors if name not in weight_map]
        if absent or extra:
            raise WeightsError(
                f"{index}: does not describe its shards: {len(absent)} tensors are not where it says "
                f"({', '.join(absent[:10])}), {len(extra)} are not in it ({', '.join(extra[:10])}). Fetch the folder "
                "again."
            )
        self.tensors = {name: self._shards[file].tensors[name] for name, file in weight_map.items()}

    def read(self, name: str) -> Tensor:
        """Read from the shard that holds it."""
        self.info(name)
        return self._shards[self._weight_map[name]].read(name)

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read from the shard that holds it."""
        self.info(name)
        return self._shards[self._weight_map[name]].read_range(name, wanted)

    def identity(self) -> str:
        """Those of all shards."""
        return "\n".join(shard.identity() for shard in self._shards.values())

    def close(self) -> None:
        """Close all shards."""
        for shard in self._shards.values():
            shard.close()


def is_hf_folder(path: Path) -> bool:
    """Whether a folder has weight files under Hugging Face's names."""
    return path.is_dir() and any((path / name).is_file() for name in (*INDEXES, *SINGLES))


def open_hf_folder(folder: Path) -> Source:
    """The tensors of a folder, under the names they have there.

    Raises:
        WeightsError: there are none, or they are unsound.
    """
    for name in INDEXES:
        if (folder / name).is_file():
            return Sharded(folder / name)
    for name in SINGLES:
        if (folder / name).is_file():
            return open_tensor_file(folder / name)
    loose = sorted(folder.glob("*.safetensors"))
    if loose:
        return Joined(*(SafetensorsFile(path) for path in loose))
    raise WeightsError(f"{folder}: holds no weights; expected one of {', '.join((*SINGLES, *INDEXES))}")


def open_tensor_file(path: Path) -> Source:
    """The tensors of one ``.safetensors``, ``.bin``, ``.pt`` or ``.pth`` file."""
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    archive = TorchArchive(path)
    data: Any = archive.data
    for key in ("state_dict", "model"):
        if isinstance(data, Mapping) and isinstance(data.get(key), Mapping):
            data = data[key]
    return ArchiveSource(archive, named_tensors(data))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file.

    Raises:
        WeightsError: the file is missing or is not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{path}: is missing") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise WeightsError(f"{path}: is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path}: is a JSON {type(data).__name__}; expected an object")
    return data


def plan_safetensors(
    source: Source, *, small: Mapping[str, bytes | Path], shard_bytes: int = SHARD_BYTES, order: list[str] | None = None
) -> Plan:
    """A folder of safetensors files with an index where there are several.

    Args:
        source: what is written, under its names.
        small: other files of the folder.
        shard_bytes: size that a file does not exceed unless one tensor does.
        order: names in the order in which they are written; ``None`` is the source's.
    """
    shards: list[list[str]] = [[]]
    filled = 0
    for name in order or list(source.tensors):
        size = source.info(name).size_bytes
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    if len(shards) == 1:
        files = ["model.safetensors"]
    else:
        files = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    layouts: list[FileLayout] = []
    jobs: list[Job] = []
    for file, names in zip(files, shards, strict=True):
        infos = {name: source.info(name) for name in names}
        layouts.append(lay_out_safetensors(file, infos, metadata={"format": "pt"}))
        jobs += [Job(name, (Slot(file, name),)) for name in names]
    index: dict[str, bytes | Path] = {}
    if len(shards) > 1:
        where = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        told = {"metadata": {"total_size": source.size_bytes}, "weight_map": where}
        index = {INDEXES[0]: (json.dumps(told, indent=2) + "\n").encode()}
    return Plan(tuple(layouts), tuple(jobs), {**small, **index})


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index}: has no weight_map")
    for name, file in weight_map.items():
        if not isinstance(file, str) or PurePosixPath(file).name != file or "\\" in file or file in {"", ".", ".."}:
            raise WeightsError(f"{index}: puts {name!r} into {file!r}, which is not a file name within its folder")
    return {str(name): str(file) for name, file in weight_map.items()}
