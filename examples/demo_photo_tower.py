"""The tower's part of the photo demo: what it makes of each photo, and the head on top of it in the model's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from demo_likely_photos import DIRECTIONS, Head
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from torch import Tensor

from omniloom.conversion.loading import load_model
from omniloom.model.llava import Llava
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.statistics import PixelStatistics

WIDTH_OF_HEAD = 2 * DIRECTIONS
"""What a head tells, and its negative: gelu(x) - gelu(-x) is x, so nothing is lost on the way to the second map."""


def look_at(model: Path, photos: Sequence[Path]) -> Tensor:
    """What a model's tower makes of each photo and of its mirror image: (photos, 2, features of the one token)."""
    opened = load_model(model)
    if not isinstance(opened, Llava):
        raise SystemExit(f"{model} is no vision-language model")
    vision = opened.config.vision
    images = ImageProcessor(
        tile_pixels=vision.image_size,
        tile_tokens=opened.config.image_tokens(vision.image_size, vision.image_size),
        tower=PixelStatistics(vision.pixel_mean, vision.pixel_std),
    )
    rows = []
    for number, path in enumerate(photos, 1):
        with Image.open(path) as file:
            photo = file.convert("RGB")
        views = [images.pixels(view, images.plan(view)) for view in (photo, ImageOps.mirror(photo))]
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            rows.append(torch.cat([opened.seen(torch.from_numpy(view))[:, 0] for view in views]).float())
        if number % 100 == 0 or number == len(photos):
            print(f"  {number} of {len(photos)} photos", flush=True)
    return torch.stack(rows)


def put_head(model: Path, head: Head) -> None:
    """Make a head the first map of the projector."""
    path = model / "model.safetensors"
    tensors = load_file(path)
    for name, value in (("weight", head.weight), ("bias", head.bias)):
        old = tensors[f"projector.fc1.{name}"]
        both = torch.zeros_like(old, dtype=torch.float32)
        both[: len(value)], both[WIDTH_OF_HEAD // 2 : WIDTH_OF_HEAD // 2 + len(value)] = value, -value
        tensors[f"projector.fc1.{name}"] = both.to(old.dtype)
    save_file(tensors, path)
