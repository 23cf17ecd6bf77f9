"""What a model's ``preprocessor_config.json`` says of images, as an `ImageProcessor`.

One row for each kind of processor that Hugging Face models of this family come with. A setting that would change pixels
in a way that no layout does is an error, never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.vlm.image_processor import ImageProcessor, tile_tokens
from omniloom.vlm.layouts import AnyResolution, CentreCrop, DynamicTiles, Layout, PadToSquare, Squash
from omniloom.vlm.statistics import PIXEL_STATISTICS, PixelStatistics

Config = Mapping[str, Any]

BICUBIC = 3
_RESCALE = 1 / 255
_SUFFIXES = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")


def image_processor_of(
    folder: str | Path, *, patch_pixels: int, class_tokens: int = 0, pixel_shuffle: bool = False
) -> ImageProcessor:
    """The image processor of a model's folder.

    Args:
        folder: has ``preprocessor_config.json``.
        patch_pixels: side of a patch of the vision tower.
        class_tokens: class and register tokens that the language model is given.
        pixel_shuffle: whether four neighbouring patches are one token.

    Raises:
        ConfigError: there is no such file, or it says something that is not known here.
    """
    path = Path(folder) / "preprocessor_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable: {error}. Expected a model's folder.") from error
    return image_processor_from(
        config, where=str(path), patch_pixels=patch_pixels, class_tokens=class_tokens, pixel_shuffle=pixel_shuffle
    )


def image_processor_from(
    config: Config, *, where: str, patch_pixels: int, class_tokens: int = 0, pixel_shuffle: bool = False
) -> ImageProcessor:
    """The image processor that a configuration describes.

    Args:
        config: content of ``preprocessor_config.json``.
        where: the file, for messages.
        patch_pixels, class_tokens, pixel_shuffle: as for `image_processor_of`.

    Raises:
        ConfigError: it says something that is not known here.
    """
    named = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    kind = next((named.removesuffix(suffix) for suffix in _SUFFIXES if named.endswith(suffix)), named)
    if kind not in _KINDS:
        raise ConfigError(f"{where}: image processor {named!r} is not known; one of {', '.join(_KINDS)} expected")
    for name, usual in (("do_rescale", True), ("do_normalize", True), ("do_resize", True), ("resample", BICUBIC)):
        if config.get(name, usual) != usual:
            raise ConfigError(f"{where}: {name} is {config[name]!r}; {usual!r} expected, which is what layouts do")
    if abs(config.get("rescale_factor", _RESCALE) - _RESCALE) > 1e-9:
        raise ConfigError(f"{where}: rescale_factor is {config['rescale_factor']!r}; 1/255 expected")
    side = _side(config, where)
    if kind == "LlavaNext" and not config.get("image_grid_pinpoints"):
        raise ConfigError(f"{where}: no image_grid_pinpoints, the sizes of its canvases")
    return ImageProcessor(
        tile_pixels=side,
        tile_tokens=tile_tokens(
            tile_pixels=side, patch_pixels=patch_pixels, class_tokens=class_tokens, pixel_shuffle=pixel_shuffle
        ),
        tower=_tower(config, where),
        layout=_KINDS[kind](config, side),
    )


def _side(config: Config, where: str) -> int:
    """Side of a tile: of the crop where there is one, else of the size."""
    found = config.get("crop_size") if config.get("do_center_crop") else None
    size = found or config.get("size") or {}
    if isinstance(size, int):
        return size
    sides = {size[name] for name in ("height", "width", "shortest_edge") if size.get(name)}
    if len(sides) != 1:
        raise ConfigError(f"{where}: size is {dict(size)}; one side of a square expected")
    return int(sides.pop())


def _tower(config: Config, where: str) -> str:
    """The tower whose statistics these are."""
    found = PixelStatistics(tuple(config.get("image_mean", ())), tuple(config.get("image_std", ())))
    for name, known in PIXEL_STATISTICS.items():
        pairs = zip((*known.mean, *known.deviation), (*found.mean, *found.deviation), strict=False)
        if len(found.mean) == len(found.deviation) == 3 and all(abs(a - b) < 1e-6 for a, b in pairs):
            return name
    raise ConfigError(
        f"{where}: image_mean and image_std are {list(found.mean)}, {list(found.deviation)}: no known tower's"
    )


def _clip(config: Config, side: int) -> Layout:
    if config.get("do_pad"):
        mean = config["image_mean"]
        return PadToSquare((int(mean[0] * 255), int(mean[1] * 255), int(mean[2] * 255)))
    return CentreCrop() if config.get("do_center_crop") else Squash()


def _squash(config: Config, side: int) -> Layout:
    return Squash()


def _any_resolution(config: Config, side: int) -> Layout:
    return AnyResolution(tuple((width // side, height // side) for height, width in config["image_grid_pinpoints"]))


def _tiles(config: Config, side: int) -> Layout:
    if not config.get("crop_to_patches"):
        return Squash()
    return DynamicTiles(
        max_tiles=config.get("max_patches", 12),
        min_tiles=config.get("min_patches", 1),
        thumbnail=config.get("use_thumbnail", True),
    )


_KINDS: dict[str, Callable[[Config, int], Layout]] = {
    "CLIP": _clip,
    "Llava": _clip,
    "Siglip": _squash,
    "LlavaNext": _any_resolution,
    "GotOcr2": _tiles,
    "InternVL": _tiles,
}
