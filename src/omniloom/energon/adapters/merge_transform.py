"""`MergeTransform`: several transforms of torchvision as one warp, so that an image is sampled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from omniloom.energon.adapters.warp_mappers import MAPPERS
from omniloom.energon.adapters.warps import CustomTransform, Matrix, Size, TransformMapper
from omniloom.errors import ConfigError

try:
    from torchvision.transforms import InterpolationMode
except ImportError as error:
    raise ImportError("transforms need torchvision: pip install omniloom[transforms]") from error

_PILLOW = {
    InterpolationMode.NEAREST: Image.Resampling.NEAREST,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
}


class MergeTransform(torch.nn.Module):
    """Transforms of torchvision, and `CustomTransform`, one after the other as one warp.

    An image of Pillow stays one; a tensor of shape ``(..., height, width)`` stays one, of its type.

    Args:
        transforms: the transforms. Those that say a fill value or an interpolation have to agree.

    Raises:
        ConfigError: they do not agree, or one is no warp.
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__()
        self.transforms = [_mapper(transform) for transform in transforms]
        self.fill_value = _agreed("fill values", [one.fill() for one in self.transforms], self.transforms)
        modes = [one.interpolation() for one in self.transforms]
        self.interpolation = _agreed("interpolations", modes, self.transforms) or InterpolationMode.BILINEAR
        if self.interpolation not in _PILLOW:
            raise ConfigError(f"{self.interpolation} is not possible; nearest, bilinear and bicubic are")

    def forward(self, image: Any) -> Any:
        """The image after all transforms."""
        pillow = isinstance(image, Image.Image)
        size: Size = np.array((image.height, image.width) if pillow else image.shape[-2:], dtype=np.int64)
        matrix: Matrix = np.eye(3)
        for transform in self.transforms:
            matrix, size, _ = transform.apply_transform(matrix, size)
        inverse = np.linalg.inv(matrix)
        back: Matrix = (inverse / inverse[2, 2]).astype(np.float64)
        return self._warp_pillow(image, back, size) if pillow else self._warp_tensor(image, back, size)

    def _warp_pillow(self, image: Image.Image, back: Matrix, size: Size) -> Image.Image:
        fill = self.fill_value
        if isinstance(fill, int | float):
            fill = tuple(type(fill)(fill) for _ in image.getbands())
        straight = np.allclose(back[2, :2], 0)
        method = Image.Transform.AFFINE if straight else Image.Transform.PERSPECTIVE
        data = back.flatten()[: 6 if straight else 8].tolist()
        return image.transform((int(size[1]), int(size[0])), method, data, _PILLOW[self.interpolation], fillcolor=fill)

    def _warp_tensor(self, image: torch.Tensor, back: Matrix, size: Size) -> torch.Tensor:
        height, width = size.tolist()
        rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        points = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1).double() @ torch.from_numpy(back).T
        from_zero_to_one = points[..., :2] / points[..., 2:] / torch.tensor([image.shape[-1], image.shape[-2]])
        grid = (2 * from_zero_to_one - 1).float()[None].to(image.device)
        flat = image.reshape(1, -1, *image.shape[-2:]).float()
        warped = self._sampled(flat, grid)
        if self.fill_value:
            fill = torch.as_tensor(self.fill_value, dtype=torch.float32, device=image.device).reshape(1, -1, 1, 1)
            warped = warped + fill * (1 - self._sampled(torch.ones_like(flat[:, :1]), grid))
        shaped = warped.reshape(*image.shape[:-2], height, width)
        return shaped.to(image.dtype) if image.is_floating_point() else shaped.round().to(image.dtype)

    def _sampled(self, image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(image, grid, mode=self.interpolation.value, align_corners=False)


def _mapper(transform: Any) -> TransformMapper[Any]:
    if isinstance(transform, CustomTransform):
        return transform
    for mapper in MAPPERS:
        if isinstance(transform, mapper.source_type):
            return mapper(transform)
    known = ", ".join(mapper.source_type.__name__ for mapper in MAPPERS)
    raise ConfigError(f"{type(transform).__name__} is no warp; possible are {known} and CustomTransform")


def _agreed(what: str, values: Iterable[Any], transforms: Sequence[Any]) -> Any:
    """The one value that those that are not ``None`` have."""
    found = [(value, one) for value, one in zip(values, transforms, strict=True) if value is not None]
    for value, one in found[1:]:
        if value != found[0][0]:
            first, other = (type(mapper).__name__ for mapper in (found[0][1], one))
            raise ConfigError(f"{what} are not equal: {found[0][0]} ({first}) and {value} ({other})")
    return found[0][0] if found else None
