"""Sizes from headers: as Pillow says for whole images, and a typed refusal for everything else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from omniloom.data.media.image_kinds import KINDS, sniff_image
from omniloom.data.media.probe import image_size, probe_image
from omniloom.errors import SampleError
from tests.unit.image_files import encoded, exif, photograph, with_app1

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
REFUSALS = ("empty-member", "not-an-image", "corrupt-image", "truncated-image")
FORMS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA", "PCX", "SGI", "DDS"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [(1, 1), (33, 7), (300, 401)])
def test_size_of_every_format(form: str, size: tuple[int, int]) -> None:
    data = encoded(photograph(*size), form)
    header = probe_image(data)
    assert (image_size(data), header.kind.name) == (size, form)


@pytest.mark.parametrize("settings", [{"lossless": True}, {"quality": 50}, {"exif": exif(1)}, {"quality": 5}])
def test_kinds_of_webp(settings: dict[str, object]) -> None:
    assert image_size(encoded(photograph(77, 66), "WEBP", **settings)) == (77, 66)


def test_an_animated_webp() -> None:
    frames = [photograph(50, 40, seed=seed) for seed in range(3)]
    assert image_size(encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])) == (50, 40)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_the_beginning_of_a_file_is_enough(form: str) -> None:
    assert image_size(encoded(photograph(300, 200), form)[:1_000]) == (300, 200)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
@pytest.mark.parametrize("form", FORMS)
def test_no_cut_of_a_file_gives_another_size(form: str) -> None:
    data = encoded(photograph(40, 30), form)
    for length in [*range(min(len(data), 700)), len(data) - 1]:
        assert _told(data[:length]) in {(40, 30), *REFUSALS}, length


def _told(data: bytes) -> tuple[int, int] | str:
    try:
        return image_size(data)
    except SampleError as error:
        return error.reason


def test_real_files() -> None:
    if not SHARED.is_dir():
        pytest.skip("the small real data sets are not at hand")
    files = [
        *SHARED.glob("photos/*.jpg"),
        *SHARED.glob("docs_ocr/*.png"),
        *sorted(SHARED.glob("coco128/images/*"))[:40],
    ]
    assert len(files) > 60
    for path in files:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            assert image_size(data) == ImageOps.exif_transpose(image).size
            assert image_size(data, orient=False) == image.size


def test_segments_and_padding_before_the_size() -> None:
    jpeg = with_app1(encoded(photograph(64, 32)), b"Exif\0\0" + exif(6))
    padded = jpeg[:2] + b"\xff\xff\xff" + jpeg[2:]
    assert image_size(padded) == (32, 64)


def test_marks_are_told_apart() -> None:
    names = {kind.name for kind in KINDS}
    assert len(names) == len(KINDS)
    assert sniff_image(b"\0\0\0\x1cftypmif1\0\0\0\0avifmiafmif1") == next(k for k in KINDS if k.name == "AVIF")
    assert sniff_image(b"\0\0\0\x18ftypmif1\0\0\0\0heicmif1") == next(k for k in KINDS if k.name == "HEIF")
    assert sniff_image(b"RIFF\0\0\0\0WAVE") is None
    assert sniff_image(b"") is None
