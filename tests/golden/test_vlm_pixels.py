"""Pixels of the layouts against the processors of transformers, on photographs and on noise: within one level."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.errors import ConfigError
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.layouts import AnyResolution, CentreCrop, DynamicTiles, Layout, PadToSquare, Squash, TilePlan, padded
from omniloom.vlm.preprocessor_config import image_processor_from, image_processor_of

pytest.importorskip("transformers", reason="transformers' processors are the oracle")
CLIP = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
SIZES = [(64, 48), (300, 500), (1000, 333), (335, 337), (336, 336), (33, 700)]


def _clip() -> Any:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil  # noqa: PLC0415

    return CLIPImageProcessorPil(**CLIP)


def _siglip() -> Any:
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil  # noqa: PLC0415

    return SiglipImageProcessorPil(size={"height": 384, "width": 384}, resample=3)


def _llava() -> Any:
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil  # noqa: PLC0415

    return LlavaImageProcessorPil(do_pad=True, **CLIP)


def _llava_next() -> Any:
    from transformers.models.llava_next.image_processing_pil_llava_next import (  # noqa: PLC0415
        LlavaNextImageProcessorPil,
    )

    return LlavaNextImageProcessorPil(**CLIP)


def _internvl() -> Any:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil  # noqa: PLC0415

    half = [0.5, 0.5, 0.5]
    return GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448},
        crop_to_patches=True,
        min_patches=1,
        max_patches=6,
        image_mean=half,
        image_std=half,
        resample=3,
    )


ROWS = [
    pytest.param(_clip, "clip", CentreCrop(), 336, id="clip"),
    pytest.param(_siglip, "siglip", Squash(), 384, id="siglip"),
    pytest.param(_llava, "clip", PadToSquare(), 336, id="llava-1.5"),
    pytest.param(_llava_next, "clip", AnyResolution(), 336, id="llava-next"),
    pytest.param(_internvl, "siglip", DynamicTiles(max_tiles=6), 448, id="internvl"),
]


def _images() -> list[Image.Image]:
    noise = np.random.default_rng(0)
    made = [Image.fromarray(noise.integers(0, 256, (height, width, 3), dtype=np.uint8)) for width, height in SIZES]
    photos = Path(__file__).resolve().parents[2] / "../shared/data/photos"
    return made + [Image.open(path).convert("RGB") for path in sorted(photos.rglob("*.jp*g"))[:2]]


@pytest.mark.parametrize(("reference", "tower", "layout", "side"), ROWS)
def test_pixels_are_the_reference_processors(
    reference: Callable[[], Any], tower: str, layout: Layout, side: int
) -> None:
    processor = ImageProcessor(tile_pixels=side, tile_tokens=1, tower=tower, layout=layout)
    theirs = reference()
    deviation = np.asarray(processor.statistics.deviation)[:, None, None]
    for image in _images():
        expected = np.asarray(theirs(image, return_tensors="np")["pixel_values"])
        expected = expected.reshape(-1, 3, side, side)
        plan = processor.plan(image)
        found = processor.pixels(image, plan)
        assert found.shape == expected.shape, image.size
        assert found.dtype == np.float32
        assert len(found) == plan.tiles
        levels = np.abs((found - expected) * deviation * 255).max()
        assert levels <= 1, f"{levels} levels at {image.size}"


@pytest.mark.parametrize(("reference", "tower", "layout", "side"), ROWS)
def test_a_models_own_configuration_says_the_same(
    reference: Callable[[], Any], tower: str, layout: Layout, side: int, tmp_path: Path
) -> None:
    reference().save_pretrained(tmp_path)
    found = image_processor_of(tmp_path, patch_pixels=14)
    assert found.tile_pixels == side
    assert found.layout == layout
    assert found.statistics == ImageProcessor(tile_pixels=side, tile_tokens=1, tower=tower).statistics
    assert found.tile_tokens == (side // 14) ** 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_processor_type": "PixtralImageProcessor"}, "'PixtralImageProcessor' is not known"),
        ({"resample": 2}, "resample is 2; 3 expected"),
        ({"image_mean": [0.1, 0.2, 0.3]}, "no known tower's"),
        ({"rescale_factor": 0.5}, "rescale_factor is 0.5"),
        ({"crop_size": {"height": 300, "width": 400}}, "one side of a square expected"),
    ],
)
def test_a_configuration_that_no_layout_follows_is_told(change: dict[str, Any], message: str) -> None:
    config = {**_clip().to_dict(), "image_processor_type": "CLIPImageProcessor", **change}
    with pytest.raises(ConfigError, match=message):
        image_processor_from(config, where="preprocessor_config.json", patch_pixels=14)


def test_an_image_is_the_same_from_bytes_arrays_and_tensors() -> None:
    torch = pytest.importorskip("torch")
    image = _images()[1]
    stream = io.BytesIO()
    image.save(stream, "PNG")
    array = np.asarray(image)
    processor = ImageProcessor(tile_pixels=56, tile_tokens=16, layout=DynamicTiles(max_tiles=4))
    forms = [
        stream.getvalue(),
        image,
        array,
        torch.from_numpy(array.copy()).permute(2, 0, 1),
        torch.from_numpy(array.copy()).permute(2, 0, 1).float() / 255,
    ]
    made = [processor.pixels(form, processor.plan(form)) for form in forms]
    assert all(np.array_equal(made[0], other) for other in made[1:])


def test_palette_and_transparency_do_not_disturb() -> None:
    """Megatron resizes palette images by nearest neighbour and shows the colour behind full transparency."""
    plain = Image.linear_gradient("L").convert("RGB")
    palette = plain.convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    see_through = Image.new("RGBA", (40, 40), (255, 0, 255, 0))
    processor = ImageProcessor(tile_pixels=32, tile_tokens=1, tower="none")
    as_palette = processor.pixels(palette, processor.plan(palette))
    assert np.abs(as_palette - processor.pixels(plain, processor.plan(plain))).max() <= 2 / 255
    assert processor.pixels(see_through, processor.plan(see_through)).min() >= 0.999


def test_fewer_tiles_where_they_would_not_fit() -> None:
    processor = ImageProcessor(tile_pixels=448, tile_tokens=256, layout=DynamicTiles(max_tiles=12))
    images = [Image.new("RGB", (640, 480))]
    tiles = [processor.plan_within(images, max_tokens=budget)[0].tiles for budget in (4000, 3000, 1600, 700, 100)]
    # 4:3 of at most 12 tiles is (4, 3), of 8 and 6 (3, 2), each with a thumbnail; of 4 and fewer (1, 1)
    assert tiles == [13, 7, 1, 1, 1]


def test_long_images_are_what_a_square_of_them_would_give() -> None:
    """A page 20 times as high as wide in a square, the middle of one 400 times as high: as by Pillow without a step."""
    down, across = np.linspace(0, 40, 20_000)[:, None], np.linspace(0, 3, 1000)[None]
    grey = (127 + 100 * np.sin(down + across)).astype(np.uint8)
    page = Image.fromarray(np.stack([grey] * 3, 2))
    whole = padded(page, colour=(122, 116, 104)).resize((336, 336), Image.Resampling.BICUBIC)
    strip = page.crop((100, 0, 150, 20_000))
    middle = strip.resize((336, 134_400), Image.Resampling.BICUBIC).crop((0, 67_032, 336, 67_368))
    layouts: list[tuple[Layout, Image.Image, Image.Image]] = [
        (PadToSquare(), page, whole),
        (CentreCrop(), strip, middle),
    ]
    for layout, image, expected in layouts:
        (tile,) = layout.cut(image, TilePlan(), tile_pixels=336)
        assert np.abs(np.asarray(tile).astype(int) - np.asarray(expected)).max() <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_line_of_pixels_does_not_take_all_memory() -> None:
    """A square of its height would be 12.7 GB; so would its rows, as wide as a tile."""
    program = (
        "import resource; from PIL import Image; from omniloom.vlm.layouts import CentreCrop, PadToSquare, TilePlan\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); line = Image.new('RGB', (1, 65000), 'red')\n"
        "for layout in (PadToSquare(), CentreCrop()): print(layout.cut(line, TilePlan(), tile_pixels=336)[0].size)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told.stdout == "(336, 336)\n(336, 336)\n", told.stderr
