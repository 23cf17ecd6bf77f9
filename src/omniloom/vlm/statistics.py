"""Mean and standard deviation of the pixels that each vision tower was trained on."""

from __future__ import annotations

from typing import NamedTuple

from omniloom.errors import ConfigError

Triple = tuple[float, float, float]


class PixelStatistics(NamedTuple):
    """What pixels from 0 to 1 are normalised by, per channel (red, green, blue).

    Attributes:
        mean: subtracted.
        deviation: divided by.
    """

    mean: Triple
    deviation: Triple


_CLIP = PixelStatistics((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_HALF = PixelStatistics((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = PixelStatistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

PIXEL_STATISTICS: dict[str, PixelStatistics] = {
    "clip": _CLIP,
    "radio": _CLIP,
    "cradio-g": _CLIP,
    "radio-g": PixelStatistics(_CLIP.mean, (0.2230, 0.2240, 0.2250)),
    "siglip": _HALF,
    "qwen-vl": _HALF,
    "kimi-vit": _HALF,
    "internvit": _IMAGENET,
    "internvit300M": _IMAGENET,
    "dinov2": _IMAGENET,
    "none": PixelStatistics((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""The statistics by tower, under Megatron's names of vision models and two more."""


def pixel_statistics(tower: str) -> PixelStatistics:
    """The statistics of a tower.

    Raises:
        ConfigError: there are none of that name.
    """
    found = PIXEL_STATISTICS.get(tower)
    if found is None:
        raise ConfigError(f"no pixel statistics for tower {tower!r}; there are {', '.join(PIXEL_STATISTICS)}")
    return found
