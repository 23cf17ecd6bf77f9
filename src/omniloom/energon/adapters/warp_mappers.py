"""The warps that torchvision's transforms are, drawn as torchvision draws them: a seed gives the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from omniloom.energon.adapters.warps import Matrix, Size, TransformMapper, homography
from omniloom.errors import ConfigError

try:
    from torchvision import transforms
except ImportError as error:
    raise ImportError("transforms need torchvision: pip install omniloom[transforms]") from error


class ResizeMapper(TransformMapper[transforms.Resize]):
    """Stretch to a size, or until the shorter side has a length."""

    source_type = transforms.Resize

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        wanted = _pair_or_one(self.transform.size)
        size = _sized(wanted if len(wanted) == 2 else _by_shorter_side(dst_size, wanted[0], self.transform.max_size))
        return _stretched(matrix, dst_size, size), size, ("Resize", wanted)

    def interpolation(self) -> Any:
        """Its mode."""
        return self.transform.interpolation


class RandomResizedCropMapper(TransformMapper[transforms.RandomResizedCrop]):
    """Cut a random box out, and stretch it to a size."""

    source_type = transforms.RandomResizedCrop

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        drawn = self.transform.get_params(_image_of(dst_size), self.transform.scale, self.transform.ratio)
        top, left, height, width = drawn
        size = _sized(self.transform.size)
        moved = self.translate(-left, -top) @ matrix
        return _stretched(moved, _sized((height, width)), size), size, ("RandomResizedCrop", drawn)

    def interpolation(self) -> Any:
        """Its mode."""
        return self.transform.interpolation


class RandomHorizontalFlipMapper(TransformMapper[transforms.RandomHorizontalFlip]):
    """Mirror left and right, or not."""

    source_type = transforms.RandomHorizontalFlip

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        flips = bool(torch.rand(1) < self.transform.p)
        if flips:
            matrix = self.translate(dst_size[1], 0) @ self.hflip() @ matrix
        return matrix, dst_size, ("RandomHorizontalFlip", flips)


class RandomVerticalFlipMapper(TransformMapper[transforms.RandomVerticalFlip]):
    """Mirror up and down, or not."""

    source_type = transforms.RandomVerticalFlip

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        flips = bool(torch.rand(1) < self.transform.p)
        if flips:
            matrix = self.translate(0, dst_size[0]) @ self.vflip() @ matrix
        return matrix, dst_size, ("RandomVerticalFlip", flips)


class RandomRotationMapper(TransformMapper[transforms.RandomRotation]):
    """Turn by a random angle about the middle, or about a point."""

    source_type = transforms.RandomRotation

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        degrees = self.transform.get_params(self.transform.degrees)
        turn = self.rotate(math.radians(degrees))
        height, width = map(float, dst_size)
        x, y = self.transform.center or (width / 2, height / 2)
        about = self.translate(x, y) @ turn @ self.translate(-x, -y)
        size = dst_size
        if self.transform.expand:  # to whole pixels on either side, as Pillow has it
            corners = about @ np.array([[0, width, 0, width], [0, 0, height, height], [1, 1, 1, 1]])
            (left, top), (right, bottom) = corners[:2].min(axis=1), corners[:2].max(axis=1)
            size = _sized((math.ceil(bottom) - math.floor(top), math.ceil(right) - math.floor(left)))
            about = self.translate((size[1] - width) / 2, (size[0] - height) / 2) @ about
        return about @ matrix, size, ("RandomRotation", degrees)

    def fill(self) -> Any:
        """Value of the pixels from outside."""
        return self.transform.fill

    def interpolation(self) -> Any:
        """Its mode."""
        return self.transform.interpolation


class RandomCropMapper(TransformMapper[transforms.RandomCrop]):
    """Cut a random box of a size out, of an image that may get a border first."""

    source_type = transforms.RandomCrop

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        if self.transform.padding_mode != "constant":
            raise ConfigError(f"RandomCrop(padding_mode={self.transform.padding_mode!r}) is no warp; 'constant' is")
        target = _sized(self.transform.size)
        left, top, right, bottom = _border(self.transform.padding)
        size = dst_size + _sized((top + bottom, left + right))
        if self.transform.pad_if_needed:
            more = np.maximum(target - size, 0)
            left, top, size = left + int(more[1]), top + int(more[0]), size + 2 * more
        row, column, *_ = self.transform.get_params(_image_of(size), self.transform.size)
        moved = self.translate(left - column, top - row) @ matrix
        return moved, target, ("RandomCrop", (column, row, *target.tolist()))

    def fill(self) -> Any:
        """Value of the pixels of the border."""
        return self.transform.fill


class CenterCropMapper(TransformMapper[transforms.CenterCrop]):
    """Cut the middle out; an image that is too small gets a border."""

    source_type = transforms.CenterCrop

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        wanted = _pair_or_one(self.transform.size)
        target = _sized(wanted if len(wanted) == 2 else (wanted[0], wanted[0]))
        down, right = (
            (new - old) // 2 if new > old else -round((old - new) / 2)
            for new, old in zip(target.tolist(), dst_size.tolist(), strict=True)
        )
        return self.translate(right, down) @ matrix, target, ("CenterCrop", (down, right, *target.tolist()))


class RandomPerspectiveMapper(TransformMapper[transforms.RandomPerspective]):
    """Move the corners at random, or not."""

    source_type = transforms.RandomPerspective

    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after it."""
        if not torch.rand(1) < self.transform.p:
            return matrix, dst_size, ("RandomPerspective", None, None)
        height, width = dst_size.tolist()
        starts, ends = self.transform.get_params(width, height, self.transform.distortion_scale)
        return homography(starts, ends) @ matrix, dst_size, ("RandomPerspective", starts, ends)

    def fill(self) -> Any:
        """Value of the pixels from outside."""
        return self.transform.fill

    def interpolation(self) -> Any:
        """Its mode."""
        return self.transform.interpolation


MAPPERS: tuple[type[TransformMapper[Any]], ...] = (
    ResizeMapper,
    RandomResizedCropMapper,
    RandomHorizontalFlipMapper,
    RandomVerticalFlipMapper,
    RandomRotationMapper,
    RandomCropMapper,
    CenterCropMapper,
    RandomPerspectiveMapper,
)
"""The mappers, each by the class that it stands for."""


def _sized(size: Sequence[int]) -> Size:
    return np.array([int(side) for side in size], dtype=np.int64)


def _pair_or_one(size: int | Sequence[int]) -> tuple[int, ...]:
    return (int(size),) if isinstance(size, int | float) else tuple(size)


def _by_shorter_side(size: Size, shorter: int, longest: int | None) -> tuple[int, int]:
    """Height and width when the shorter side has a length, and the longer one one at most."""
    short, long = sorted(size.tolist())
    new_short, new_long = shorter, int(shorter * long / short)
    if longest is not None and new_long > longest:
        new_short, new_long = int(longest * new_short / new_long), longest
    return (new_long, new_short) if size[1] <= size[0] else (new_short, new_long)


def _stretched(matrix: Matrix, old: Size, new: Size) -> Matrix:
    return TransformMapper.scale(new[1] / old[1], new[0] / old[0]) @ matrix


def _border(padding: int | Sequence[int] | None) -> tuple[int, int, int, int]:
    """Left, top, right and bottom, as torchvision understands one, two or four numbers."""
    values = () if padding is None else (padding,) if isinstance(padding, int) else tuple(padding)
    if len(values) == 4:
        return values
    horizontal, vertical = (0, 0) if not values else (values[0], values[-1])
    return horizontal, vertical, horizontal, vertical


def _image_of(size: Size) -> torch.Tensor:
    """An image of a size for torchvision to draw from, without pixels."""
    return torch.empty((1, *size.tolist()), device="meta")
