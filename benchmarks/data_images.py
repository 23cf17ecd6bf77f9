"""Makes the image data set: JPEG photographs of 640 x 480 and about 50 KB, cut from real photographs."""

from __future__ import annotations

import importlib.resources
import io
import json
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

WIDTH, HEIGHT = 640, 480
IMAGES_PER_SHARD = 250
TARGET_BYTES = 50_000
_QUALITIES = (95, 92, 88, 84, 80, 75, 70, 60)
_SKIMAGE_PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
_COCO = Path(__file__).resolve().parents[1] / "../shared/data/coco128/images"


def image_dataset(data_dir: Path, *, images: int) -> Path:
    """Folder with ``images`` samples (``<key>.jpg`` and ``<key>.txt``), made at the first call; without an index.

    The crops differ from one another; the sources are the 128 photographs of COCO128 where they are at hand, or
    else the photographs in the scikit-image package.
    """
    folder = data_dir / f"images-{images}"
    done = folder.with_suffix(".json")
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source, photographs = _photographs()
    draw = random.Random(20_240_607)
    sizes = []
    for first in range(0, images, IMAGES_PER_SHARD):
        with tarfile.open(
            folder / f"shard-{first // IMAGES_PER_SHARD:06d}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for number in range(first, min(first + IMAGES_PER_SHARD, images)):
                jpeg = _encode(_crop(photographs[number % len(photographs)], draw))
                sizes.append(len(jpeg))
                _add(tar, f"{number:09d}.jpg", jpeg)
                _add(tar, f"{number:09d}.txt", f"Photograph {number}.".encode())
    facts = {"samples": images, "source": source, "width": WIDTH, "height": HEIGHT, "photographs": len(photographs)}
    done.write_text(json.dumps({**facts, "mean_jpeg_bytes": round(sum(sizes) / images)}))
    return folder


def image_facts(folder: Path) -> dict[str, object]:
    """What was made: number, size, mean bytes, where the photographs come from."""
    facts: dict[str, object] = json.loads(folder.with_suffix(".json").read_text())
    return facts


def _photographs() -> tuple[str, list[Image.Image]]:
    if _COCO.is_dir():
        return "COCO128", [Image.open(path).convert("RGB") for path in sorted(_COCO.glob("*.jpg"))]
    found = list(_skimage_photographs())
    if not found:
        raise FileNotFoundError(f"No photographs: neither the folder {_COCO} nor the package scikit-image is there.")
    return "scikit-image", found


def _skimage_photographs() -> Iterator[Image.Image]:
    try:
        folder = importlib.resources.files("skimage.data")
    except ModuleNotFoundError:
        return
    for name in _SKIMAGE_PHOTOGRAPHS:
        file = folder / name
        if file.is_file():
            yield Image.open(io.BytesIO(file.read_bytes())).convert("RGB")


def _crop(photograph: Image.Image, draw: random.Random) -> Image.Image:
    """A random part of the photograph with the shape of the output, scaled to it, perhaps mirrored."""
    scale = min(photograph.width / WIDTH, photograph.height / HEIGHT) * draw.uniform(0.75, 1.0)
    width, height = WIDTH * scale, HEIGHT * scale
    left, top = draw.uniform(0, photograph.width - width), draw.uniform(0, photograph.height - height)
    part = photograph.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS, box=(left, top, left + width, top + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else part


def _encode(image: Image.Image) -> bytes:
    """JPEG at the highest of a few qualities that stays below the target, so that all have about the same size."""
    jpeg = b""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        jpeg = buffer.getvalue()
        if len(jpeg) <= TARGET_BYTES * 1.1:
            break
    return jpeg


def _add(tar: tarfile.TarFile, name: str, payload: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(payload)
    tar.addfile(member, io.BytesIO(payload))
