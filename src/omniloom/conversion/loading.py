"""Weights straight into a model: whole on one device, or only the slices that a rank holds.

A model is made on the meta device, cut (parameters become ``DTensor`` or are replaced by their local part), given
memory with ``to_empty``, and filled here. Each rank reads the bytes of its own slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from omniloom.conversion.published import common_dtype, open_published, prefix_of, with_fresh_values
from omniloom.model.build import build
from omniloom.weights.changes import Range
from omniloom.weights.source import Source
from omniloom.weights.view import check_shapes

Box = Sequence[Range]
"""One range for each axis along which a tensor is cut."""


def load_model(
    path: Path,
    *,
    config: Path | None = None,
    fresh: Iterable[str] = (),
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> nn.Module:
    """A published model in any form, whole on one device.

    Args:
        path: file or folder.
        config: its config, where the form does not say what model it holds.
        fresh: parts that may be missing and then start anew.
        device: where its parameters go.
        dtype: of its parameters; ``None`` is the dtype that most of the file's numbers have.
        seed: of the values that start anew.

    Raises:
        WeightsError: tensors are left over on either side or have other shapes; all of them are listed.
        ConfigError: the config is missing or cannot be honoured.
    """
    published = open_published(path, config=config, fresh=fresh)
    source = with_fresh_values(published, seed=seed)
    model = build(published.config, device="meta", dtype=dtype or common_dtype(source)).to_empty(device=device)
    load_weights(model, source, prefix=prefix_of(published.config))
    published.source.close()
    return model


def load_weights(
    model: nn.Module,
    source: Source,
    *,
    prefix: str = "",
    boxes: Mapping[str, Box] | None = None,
    whole: Mapping[str, tuple[int, ...]] | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> None:
    """Fill the parameters of a model.

    Args:
        model: its parameters have memory; a ``DTensor`` is filled with its local part.
        source: tensors under our names.
        prefix: of the model's names within a whole model, such as ``language_model.``.
        boxes: which part of its tensor a plain parameter holds, for parameters that were cut by other means.
        whole: names and shapes of the whole model, where this one is a stage of it, or has parameters that are not
            read (`omniloom.model.lora`); ``None``: those of the model.
        tell: told of tensors done, tensors in all, and the name at hand.

    Raises:
        WeightsError: names are left over on either side or shapes differ; all of them are listed.
    """
    boxes = boxes or {}
    parameters = {prefix + name: parameter for name, parameter in model.named_parameters()}
    own = {name: _whole_shape(parameter, source, boxes.get(name), name) for name, parameter in parameters.items()}
    check_shapes(source, own if whole is None else whole)
    if whole is not None:
        parameters = {name: parameter for name, parameter in parameters.items() if name in whole}
    for number, (name, parameter) in enumerate(parameters.items(), start=1):
        fill_parameter(parameter, source, name, box=boxes.get(name))
        if tell is not None:
            tell(number, len(parameters), name)


@torch.no_grad()
def fill_parameter(parameter: Tensor, source: Source, name: str, *, box: Box | None = None) -> None:
    """Read one parameter, or the part of it that this rank holds, and copy it in.

    Args:
        parameter: a plain tensor or a ``DTensor``.
        source: tensors under our names.
        name: its name there.
        box: the part that a plain tensor holds; ``None`` is all of it.
    """
    if isinstance(parameter, DTensor):
        local = parameter.to_local()
        if not local.numel():
            return
        local.copy_(read_box(source, name, local_box(parameter)))
        return
    parameter.copy_(read_box(source, name, box or ()))


def local_box(tensor: DTensor) -> Box:
    """The part of a ``DTensor`` that this rank holds."""
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return [
        Range(axis, start, start + length)
        for axis, (start, length, total) in enumerate(zip(offset, shape, tensor.shape, strict=True))
        if length != total
    ]


def read_box(source: Source, name: str, box: Box) -> Tensor:
    """Read part of a tensor: of the bytes only the longest cut's, then a view.

    Args:
        source: where it is read.
        name: the tensor.
        box: ranges along the axes that are cut.
    """
    if not box:
        return source.read(name)
    info = source.info(name)
    first, *rest = sorted(box, key=lambda one: ((one.stop - one.start) / max(info.shape[one.axis], 1), one.axis))
    tensor = source.read_range(name, first)
    for one in rest:
        tensor = tensor.narrow(one.axis, one.start, one.stop - one.start)
    return tensor


def _whole_shape(parameter: Tensor, source: Source, box: Box | None, name: str) -> tuple[int, ...]:
    shape = list(parameter.shape)
    for one in box or ():
        if name in source.tensors and one.stop - one.start == shape[one.axis]:
            shape[one.axis] = source.info(name).shape[one.axis]
    return tuple(shape)
