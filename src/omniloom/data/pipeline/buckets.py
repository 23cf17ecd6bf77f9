"""Ready criteria for grouping: by length, and by the shape of images."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from omniloom.errors import ConfigError, SkipSample


@dataclass(frozen=True)
class LengthBuckets:
    """Groups by length: what is returned suits `TaskEncoder.batch_group_criterion`.

    Attributes:
        bounds: ascending lengths; a value belongs to the first bound that it does not exceed.
        per_batch: tokens (the unit of the bounds) in a batch, padding included: a bucket's batches then have
            ``per_batch // bound`` values, and the loader's ``batch_size`` is ``None``. ``None``: all batches have
            ``batch_size`` values.
    """

    bounds: Sequence[int]
    per_batch: int | None = None

    def __post_init__(self) -> None:
        if not self.bounds or self.bounds[0] < 1 or any(low >= high for low, high in pairwise(self.bounds)):
            raise ConfigError(
                f"LengthBuckets: bounds {list(self.bounds)} found; ascending lengths of 1 or more expected"
            )
        if self.per_batch is not None and self.per_batch < self.bounds[-1]:
            raise ConfigError(
                f"LengthBuckets: per_batch={self.per_batch} does not hold a value of {self.bounds[-1]}, the last bound"
            )

    @classmethod
    def spaced(cls, shortest: int, longest: int, *, ratio: float = 1.25, per_batch: int | None = None) -> LengthBuckets:
        """Bounds from ``shortest`` to ``longest``, each at most ``ratio`` times the one before: so much is padded at
        most.
        """
        if not 1 <= shortest <= longest or ratio <= 1:
            raise ConfigError(
                f"LengthBuckets: {shortest} to {longest} by {ratio} found; 1 <= shortest <= longest, ratio > 1"
            )
        bounds = [shortest]
        while bounds[-1] < longest:
            bounds.append(min(longest, max(bounds[-1] + 1, int(bounds[-1] * ratio))))
        return cls(tuple(bounds), per_batch)

    def __call__(self, length: int) -> tuple[int, int | None]:
        """The bound that ``length`` belongs to, and the number of values of a batch.

        Raises:
            SkipSample: the value is longer than the last bound; counted as ``oversize``.
        """
        place = bisect_left(self.bounds, length)
        if place == len(self.bounds):
            raise SkipSample("oversize")
        bound = self.bounds[place]
        return bound, None if self.per_batch is None else self.per_batch // bound


@dataclass(frozen=True)
class AspectBuckets:
    """Groups images by shape, so that those of a batch can be resized to one size without much distortion.

    Attributes:
        sizes: (height, width) of the buckets, in pixels.
    """

    sizes: Sequence[tuple[int, int]]

    def __post_init__(self) -> None:
        if not self.sizes or any(min(size) < 1 for size in self.sizes):
            raise ConfigError(f"AspectBuckets: sizes {list(self.sizes)} found; (height, width) of 1 or more expected")

    @classmethod
    def of(cls, pixels: int, *, step: int = 64, most_extreme: float = 2.0) -> AspectBuckets:
        """Sizes of nearly ``pixels`` pixels each, sides in multiples of ``step``, up to ``most_extreme`` : 1.

        For each width the largest height that keeps within ``pixels``.
        """
        sizes = set()
        for width in range(step, math.isqrt(int(pixels * most_extreme)) + step, step):
            height = pixels // width // step * step
            if height and max(width / height, height / width) <= most_extreme:
                sizes |= {(height, width), (width, height)}
        if not sizes:
            raise ConfigError(f"AspectBuckets: no sides in steps of {step} make {pixels} pixels")
        return cls(tuple(sorted(sizes)))

    def __call__(self, height: int, width: int) -> tuple[tuple[int, int], None]:
        """The (height, width) whose aspect is nearest (by ratio), and ``None``: batches have ``batch_size`` values."""
        wanted = math.log(height / width)
        return min(self.sizes, key=lambda size: (abs(math.log(size[0] / size[1]) - wanted), -size[0] * size[1])), None
