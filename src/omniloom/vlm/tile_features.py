"""What a vision tower has made of an image beforehand, in place of the image.

Where a tower is not trained, its features can be made once and kept in a data set: training then needs none of its
work, on any number of ranks. They may come from elsewhere as well: from another program, or from a model of how a photo
would look that nobody has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from omniloom.data.convert.image_type import FEATURES_PART
from omniloom.errors import SampleError

_TILES_TOKENS_WIDTH = 3  # dimensions


@dataclass(frozen=True)
class TileFeatures:
    """Features of the tiles of an image, as the projector's maps take them (`omniloom.model.llava.Llava.seen`).

    Attributes:
        values: float16 or float32 (tiles, tokens, features).
    """

    values: npt.NDArray[Any]

    @classmethod
    def of(cls, value: Any, part: str = FEATURES_PART) -> TileFeatures:
        """The features in a part of a sample.

        Args:
            value: float array or tensor (tiles, tokens, features), or (tokens, features) of a single tile.
            part: its name, for messages.

        Raises:
            SampleError: ``bad-features``: it is no such array, or has numbers that are not finite.
        """
        values = np.asarray(value)
        if values.ndim == _TILES_TOKENS_WIDTH - 1:
            values = values[None]
        if values.ndim != _TILES_TOKENS_WIDTH or not values.size or values.dtype.kind != "f":
            raise SampleError(
                f"the part {part!r} holds {values.dtype} of shape {values.shape}; floats of (tiles, tokens, features) "
                "expected",
                reason="bad-features",
            )
        if not np.isfinite(values).all():
            raise SampleError(f"the part {part!r} has numbers that are not finite", reason="bad-features")
        return cls(values)
