"""Warps of images as 3 x 3 matrices, and what Energon calls a mapper: a transform that says which warp it is.

A matrix takes ``(x, y, 1)`` in the source image to the image so far, in pixels from its upper left corner, with the
y axis down; the middle of the first pixel is ``(0.5, 0.5)``. Sizes are arrays of ``(height, width)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

T_transform = TypeVar("T_transform")
Matrix = npt.NDArray[np.float64]
Size = npt.NDArray[np.int64]


class TransformMapper(ABC, Generic[T_transform]):
    """A transform as a warp.

    Args:
        transform: the transform that it stands for.

    Attributes:
        source_type: the class of the transforms that a mapper stands for.
    """

    source_type: ClassVar[type]

    def __init__(self, transform: T_transform) -> None:
        self.transform = transform

    def __call__(self, sample: Any) -> Any:
        """The transform itself on an image."""
        return self.transform(sample)  # type: ignore[operator]

    @abstractmethod
    def apply_transform(self, matrix: Matrix, dst_size: Size) -> tuple[Matrix, Size, Any]:
        """The warp and size after this transform, drawn anew where it is random.

        Args:
            matrix: the warp so far.
            dst_size: ``(height, width)`` of the image so far.

        Returns:
            the warp, the size, and what was drawn.
        """

    def fill(self) -> Any:
        """Value of the pixels from outside the image; ``None``: it has no say in it."""
        return None

    def interpolation(self) -> Any:
        """Torchvision's interpolation mode; ``None``: it has no say in it."""
        return None

    @staticmethod
    def translate(x: float, y: float) -> Matrix:
        """Move by pixels."""
        return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=np.float64)

    @staticmethod
    def rotate(angle: float) -> Matrix:
        """Turn counter-clockwise about the corner, in radians."""
        cos, sin = np.cos(angle), np.sin(angle)
        return np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]], dtype=np.float64)

    @staticmethod
    def scale(x: float, y: float) -> Matrix:
        """Stretch from the corner."""
        return np.diag(np.array([x, y, 1], dtype=np.float64))

    @staticmethod
    def shear(x: float, y: float) -> Matrix:
        """Slant: x grows by ``x`` for each row, y by ``y`` for each column."""
        return np.array([[1, x, 0], [y, 1, 0], [0, 0, 1]], dtype=np.float64)

    @staticmethod
    def hflip() -> Matrix:
        """Mirror at the left border."""
        return np.diag(np.array([-1, 1, 1], dtype=np.float64))

    @staticmethod
    def vflip() -> Matrix:
        """Mirror at the upper border."""
        return np.diag(np.array([1, -1, 1], dtype=np.float64))


class CustomTransform(TransformMapper[Any]):
    """A transform of the user's own: derive from it and override ``apply_transform``."""


def homography(
    sources: list[tuple[float, float]] | list[list[float]], targets: list[tuple[float, float]] | list[list[float]]
) -> Matrix:
    """The perspective warp that takes four points ``(x, y)`` to four others: eight equations, solved.

    Args:
        sources: the points.
        targets: where they go.
    """
    rows, values = [], []
    for (x, y), (u, v) in zip(sources, targets, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    solved = np.linalg.solve(np.array(rows, dtype=np.float64), np.array(values, dtype=np.float64))
    return np.append(solved, 1.0).reshape(3, 3)
