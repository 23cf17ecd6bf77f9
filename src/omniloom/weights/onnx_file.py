"""Towers inside ONNX graphs that were exported from transformers: tensors under transformers' names again.

The exporter keeps a parameter's name where a node takes it as it is. The weight of a linear map it transposes and names
by a number; the node that multiplies by it still has the module's path in its name, so that tells what it is. Position
embeddings come in two constants, for the class token and for the grid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.source import Source, TensorInfo

_DTYPES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}
_POSITIONS = "embeddings.position_embeddings"


class OnnxTower(Source):
    """A DINOv2 in an ONNX graph.

    Args:
        path: the file.
        prefix: of the tower's parameters and nodes in the graph.

    Raises:
        WeightsError: the onnx package is missing, or the graph holds no such tower.
    """

    def __init__(self, path: Path, *, prefix: str = "backbone") -> None:
        try:
            import onnx  # noqa: PLC0415 - an extra
        except ImportError:
            raise WeightsError(f"{path}: needs the onnx package; run `pip install omniloom[onnx]`") from None
        self.where = str(path)
        self._path = path
        self._to_array = onnx.numpy_helper.to_array
        try:
            graph = onnx.load(str(path), load_external_data=False).graph
        except Exception as error:  # protobuf's decoding errors have no common public base
            raise WeightsError(f"{path}: is not a whole ONNX file ({error}). Fetch it again.") from error
        constants = {tensor.name: tensor for tensor in graph.initializer}
        # Each entry: the constants to join, and whether the matrix is to be transposed.
        self._found: dict[str, tuple[list[Any], bool]] = {
            name.removeprefix(f"{prefix}."): ([tensor], False)
            for name, tensor in constants.items()
            if name.startswith(f"{prefix}.")
        }
        for node in graph.node:
            module = node.name.strip("/").split("/")
            taken = [constants[name] for name in node.input if name in constants and not name.startswith(prefix)]
            if node.op_type == "MatMul" and module[0] == prefix and len(taken) == 1:
                self._found[_parameter(module[1:-1])] = (taken, True)
        self._found[_POSITIONS] = (_positions(list(constants.values()), self._info_of("embeddings.cls_token")), False)
        self.tensors = {name: self._info_of(name) for name in self._found}

    def read(self, name: str) -> Tensor:
        """Read a tensor in transformers' layout."""
        self.info(name)
        parts, transposed = self._found[name]
        tensors = [torch.from_numpy(self._to_array(part).copy()) for part in parts]
        whole = torch.cat(tensors, dim=1) if len(tensors) > 1 else tensors[0]
        return whole.T.contiguous() if transposed else whole

    def identity(self) -> str:
        """Path, size and time of the file."""
        status = self._path.stat()
        return f"{self._path.resolve()} {status.st_size} {status.st_mtime_ns}"

    def _info_of(self, name: str) -> TensorInfo:
        if name not in self._found:
            raise WeightsError(f"{self.where}: holds no DINOv2: there is no {name!r}")
        parts, transposed = self._found[name]
        if any(part.external_data for part in parts) or parts[0].data_type not in _DTYPES:
            raise WeightsError(f"{self.where}: {name!r} lies in another file, or is not of floating point")
        shape = [int(length) for length in parts[0].dims]
        if len(parts) > 1:
            shape[1] = sum(int(part.dims[1]) for part in parts)
        return TensorInfo(tuple(reversed(shape)) if transposed else tuple(shape), _DTYPES[parts[0].data_type])


def hf_config_of_onnx(source: Source) -> dict[str, Any]:
    """The tower's config.json, as its shapes tell it; heads have 64 channels in every DINOv2."""
    dim, _, patch, _ = source.info("embeddings.patch_embeddings.projection.weight").shape
    grid = round((source.info(_POSITIONS).shape[1] - 1) ** 0.5)
    layers = {name.split(".")[2] for name in source.tensors if name.startswith("encoder.layer.")}
    return {
        "model_type": "dinov2",
        "hidden_size": dim,
        "num_hidden_layers": len(layers),
        "num_attention_heads": dim // 64,
        "mlp_ratio": source.info("encoder.layer.0.mlp.fc1.weight").shape[0] // dim,
        "image_size": grid * patch,
        "patch_size": patch,
        "layer_norm_eps": 1e-6,
        "use_swiglu_ffn": False,
    }


def _parameter(module: list[str]) -> str:
    # "encoder", "layer.0", "attention", ...: a module of a list carries its list's name.
    path = ".".join(module).replace("encoder.encoder.", "encoder.")
    return f"{path}.weight"


def _positions(constants: list[Any], token: TensorInfo) -> list[Any]:
    """The two constants of positions: of the class token, then of the grid."""
    dim = token.shape[-1]
    loose = [one for one in constants if list(one.dims[::2]) == [1, dim] and len(one.dims) == 3 and "::" in one.name]
    class_part = [one for one in loose if one.dims[1] == 1]
    grid = [one for one in loose if one.dims[1] > 1 and round(one.dims[1] ** 0.5) ** 2 == one.dims[1]]
    if len(class_part) != 1 or len(grid) != 1:
        raise WeightsError(f"found {len(class_part)} and {len(grid)} constants of positions; expected one of each")
    return [*class_part, *grid]
