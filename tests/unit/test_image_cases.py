"""Images as the world has them: the cases by number, with the answer that each has to get."""

from __future__ import annotations

import re
import resource
import struct
import time
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.data.media.image import decode_image, image_size, read_image
from omniloom.data.media.image_options import ImageOptions
from omniloom.errors import ConfigError, SampleError
from tests.unit.image_files import chunk, encoded, packed_zeros, photograph, png, with_app1

pytestmark = pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")

JPEG = encoded(photograph(), quality=90)
PROGRESSIVE = encoded(photograph(), quality=90, progressive=True)
PNG = encoded(photograph(), "PNG")


def reason_of(data: bytes, **settings: Any) -> str:
    with pytest.raises(SampleError) as error:
        decode_image(data, **settings)
    return error.value.reason


# --- C19: cut files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "fraction"),
    [
        (JPEG[:-1], 1.0),
        (JPEG[:-50], 0.99),
        (JPEG[: len(JPEG) // 2], 0.5),
        (PNG[: len(PNG) // 2], 0.5),
    ],
)
def test_cut_images_are_refused_and_taken_only_above_a_threshold(data: bytes, fraction: float) -> None:
    with pytest.raises(SampleError) as error:
        decode_image(data)
    assert error.value.reason == "truncated-image"
    found = read_image(data, options=ImageOptions(min_fraction=0.1))
    assert found.fraction == pytest.approx(fraction, abs=0.05)
    assert found.pixels.shape == (256, 256, 3)
    if found.fraction < 1:
        assert reason_of(data, options=ImageOptions(min_fraction=0.999)) == "truncated-image"


def test_the_fraction_of_a_progressive_jpeg_is_that_of_its_ten_passes() -> None:
    starts = [match.start() for match in re.finditer(b"\xff\xda", PROGRESSIVE)]
    assert len(starts) == 10  # libjpeg's script for three colours
    for passes in range(5, 10):
        data = PROGRESSIVE[: starts[passes]]
        assert reason_of(data) == "truncated-image"
        assert read_image(data, options=ImageOptions(min_fraction=0.1)).fraction == pytest.approx(passes / 10, abs=0.01)
    half = read_image(PROGRESSIVE[: len(PROGRESSIVE) // 2], options=ImageOptions(min_fraction=0.1))
    assert 0.4 < half.fraction < 0.7  # half of the bytes: passes differ in length


def test_the_rows_that_are_there_are_those_of_the_whole_image() -> None:
    for whole, cut in ((JPEG, JPEG[: len(JPEG) // 2]), (PNG, PNG[: len(PNG) // 2])):
        found = read_image(cut, options=ImageOptions(min_fraction=0.3))
        rows = int(found.fraction * 256) - 16  # the row of blocks at the cut, and its neighbour that is smoothed
        assert (found.pixels[:rows] == decode_image(whole)[:rows]).all()
        assert (found.pixels[-32:] != decode_image(whole)[-32:]).any()


def test_the_fraction_stands_in_the_message() -> None:
    with pytest.raises(SampleError, match=r"cut short; (4[5-9]|5[0-5])% of it is there, min_fraction=0.9"):
        decode_image(JPEG[: len(JPEG) // 2], options=ImageOptions(min_fraction=0.9))


CUTS = {
    "JPEG": {}, "PNG": {}, "GIF": {}, "BMP": {}, "WEBP": {}, "WEBP lossless": {"lossless": True}, "TIFF": {},
    "TIFF lzw": {"compression": "tiff_lzw"}, "TIFF deflate": {"compression": "tiff_deflate"}, "PPM": {}, "TGA": {},
    "TIFF jpeg": {"compression": "jpeg"}, "JPEG2000": {}, "AVIF": {}, "ICO": {}, "PCX": {}, "HEIF": {}, "JXL": {},
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_no_cut_of_any_format_gives_other_pixels(name: str) -> None:
    if name in ("HEIF", "JXL"):
        plugin = pytest.importorskip({"HEIF": "pillow_heif", "JXL": "pillow_jxl"}[name], reason="an extra")
        getattr(plugin, "register_heif_opener", bool)()
    form = name.partition(" ")[0]
    data = encoded(photograph(100, 75), form, **CUTS[name])
    whole = decode_image(data)
    for length in (len(data) // 4, len(data) // 2, len(data) * 9 // 10, len(data) - 10, len(data) - 3, len(data) - 1):
        try:
            pixels = decode_image(data[:length])
        except SampleError as error:
            if form in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "PPM", "AVIF", "HEIF"):
                assert error.reason == "truncated-image"  # noqa: PT017 - not every cut is refused
        else:
            assert (pixels == whole).all()


def test_data_that_ends_within_a_jpeg_is_refused_in_every_mode() -> None:
    for jpeg in (JPEG, encoded(photograph().convert("CMYK"), quality=90)):
        torn = jpeg[: len(jpeg) // 2] + jpeg[-40:]
        for mode in ("RGB", "L", "RGBA"):
            assert reason_of(torn, mode=mode) == "corrupt-image"
            assert reason_of(jpeg[: len(jpeg) // 2], mode=mode) == "truncated-image"


def test_garbage_after_the_end_is_no_fault() -> None:
    assert (decode_image(JPEG + b"junk" * 100) == decode_image(JPEG)).all()
    assert (decode_image(PNG + b"junk" * 100) == decode_image(PNG)).all()


# --- C21: sixteen bits ----------------------------------------------------------------------------------------------


def test_sixteen_bit_greys_keep_256_levels_and_agree_with_colors() -> None:
    ramp = (np.arange(256) * 257).astype(">u2")
    grey = png(256, 8, bits=16, color=0, rows=(b"\0" + ramp.tobytes()) * 8)
    color = png(256, 8, bits=16, color=2, rows=(b"\0" + np.repeat(ramp, 3).tobytes()) * 8)
    pixels = decode_image(grey)
    assert len(np.unique(pixels)) == 256
    assert [pixels[0, at, 0] for at in (0, 128, 255)] == pytest.approx([0, 128, 255], abs=1)
    assert (pixels == decode_image(color)).all()
    assert (decode_image(grey, mode="L") == pixels[..., 0]).all()


def test_sixteen_bits_in_other_formats() -> None:
    ramp = (np.arange(256) * 257).astype(np.uint16)[None].repeat(4, axis=0)
    tiff = encoded(Image.fromarray(ramp), "TIFF")
    pgm = b"P5 256 4 65535\n" + ramp.astype(">u2").tobytes()
    for data in (tiff, pgm):
        assert decode_image(data, mode="L")[0] == pytest.approx(np.arange(256), abs=1)


def test_values_without_a_known_white_are_refused() -> None:
    assert reason_of(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF")) == "unsupported-depth"
    assert reason_of(encoded(Image.fromarray(np.ones((4, 4), np.int32)), "TIFF")) == "unsupported-depth"


# --- C22: what is transparent ---------------------------------------------------------------------------------------

PALETTE = png(
    2,
    1,
    bits=8,
    color=3,
    rows=b"\0\0\1",
    before=chunk(b"PLTE", bytes((255, 0, 255, 7, 8, 9))) + chunk(b"tRNS", b"\0\xff"),
)
RGBA = png(2, 1, bits=8, color=6, rows=bytes((0, 10, 20, 30, 0, 7, 8, 9, 255)))
KEYED = png(
    2, 1, bits=8, color=2, rows=bytes((0, 10, 20, 30, 7, 8, 9)), before=chunk(b"tRNS", struct.pack(">HHH", 10, 20, 30))
)
GREY_KEYED = png(
    2, 1, bits=16, color=0, rows=b"\0" + struct.pack(">HH", 500, 40_000), before=chunk(b"tRNS", struct.pack(">H", 500))
)


@pytest.mark.parametrize("data", [PALETTE, RGBA, KEYED])
@pytest.mark.parametrize("background", [(255, 255, 255), (1, 2, 3)])
def test_transparent_pixels_show_the_background(data: bytes, background: tuple[int, int, int]) -> None:
    pixels = decode_image(data, options=ImageOptions(background=background))
    assert pixels.tolist() == [[list(background), [7, 8, 9]]]
    assert decode_image(data, mode="RGBA")[0, :, 3].tolist() == [0, 255]


def test_a_grey_key_of_sixteen_bits() -> None:
    assert decode_image(GREY_KEYED, mode="L").tolist() == [[255, 40_000 >> 8]]


def test_half_transparent_is_mixed() -> None:
    half = png(1, 1, bits=8, color=6, rows=bytes((0, 200, 0, 100, 128)))
    expected = [round(level * 128 / 255 + 255 * 127 / 255) for level in (200, 0, 100)]
    assert decode_image(half)[0, 0] == pytest.approx(expected, abs=1)


# --- C25: bombs -----------------------------------------------------------------------------------------------------


def _huge(width: int, height: int, *, bytes_of_rows: int) -> bytes:
    return png(width, height, bits=1, color=0, rows=b"", packed=packed_zeros(bytes_of_rows))


BOMBS = [
    _huge(20_000, 20_000, bytes_of_rows=2_501 * 20_000),
    _huge(10_000, 10_000, bytes_of_rows=1_251 * 10_000),
    _huge(13_000, 13_000, bytes_of_rows=0),
]


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_the_bombs_are_those_of_the_case() -> None:
    assert [len(data) for data in BOMBS[:2]] == pytest.approx([48_685, 12_227], rel=0.01)


@pytest.mark.parametrize("data", BOMBS)
def test_too_large_is_judged_by_the_header(data: bytes) -> None:
    before, seconds = _peak_kib(), []
    for _ in range(5):
        began = time.perf_counter()
        assert reason_of(data) == "too-large"
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05
    assert _peak_kib() - before < 32 * 1024


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
def test_the_limit_holds_for_every_format(form: str) -> None:
    data = encoded(photograph(30, 20), form)
    assert reason_of(data, options=ImageOptions(max_pixels=599)) == "too-large"
    assert decode_image(data, options=ImageOptions(max_pixels=600)).shape == (20, 30, 3)


def test_oversized_metadata_is_ignored() -> None:
    text = chunk(b"zTXt", b"Comment\0\0" + packed_zeros(200 << 20))
    profile = chunk(b"iCCP", b"p\0\0" + packed_zeros(100 << 20))
    data = png(1, 1, bits=8, color=2, rows=b"\0\1\2\3", before=text + profile)
    before = _peak_kib()
    assert decode_image(data).tolist() == [[[1, 2, 3]]]
    assert _peak_kib() - before < 32 * 1024
    many = encoded(photograph(40, 20))
    for _ in range(40):
        many = with_app1(many, b"http://ns.adobe.com/xmp/extension/\0" + bytes(65_000))
    assert decode_image(many).shape == (20, 40, 3)


# --- C27: names that lie --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<!DOCTYPE html><html><body>404</body></html>", "html"),
        (b"\n<html lang='en'>", "html"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "svg"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- made by hand --><svg/>', "svg"),
        (b"\xff\xd8\xff", "corrupt-image"),
        (b"", "empty-member"),
        (b"hello", "not-an-image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not-an-image"),
        (png(1, 1, bits=8, color=0, rows=b"\0\1")[:-20] + b"\0\0\0\0" + chunk(b"IEND", b""), "corrupt-image"),
    ],
)
def test_what_is_no_image_is_told_apart(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


def test_every_bad_checksum_is_seen() -> None:
    data = bytearray(PNG)
    data[data.index(b"IDAT") + 100] ^= 1
    assert reason_of(bytes(data)) == "corrupt-image"


def test_a_png_without_its_end_mark_is_whole() -> None:
    assert (decode_image(PNG[:-12]) == decode_image(PNG)).all()


# --- frames, scaling, extras ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations(form: str) -> None:
    frames = [Image.new("RGB", (8, 6), (level, level, level)) for level in (0, 80, 160, 240)]
    settings = {"lossless": True} if form == "WEBP" else {}
    data = encoded(frames[0], form, save_all=True, append_images=frames[1:], **settings)
    for frame, level in ((0, 0), (1, 80), ("middle", 160), (3, 240)):
        assert (decode_image(data, options=ImageOptions(frame=frame)) == level).all()  # type: ignore[arg-type]
    assert reason_of(data, options=ImageOptions(frame="refuse")) == "animated-image"
    assert reason_of(data, options=ImageOptions(frame=4)) == "no-such-frame"
    assert decode_image(encoded(frames[0], form, **settings), options=ImageOptions(frame="refuse")).shape == (6, 8, 3)


def test_pages_of_a_pdf() -> None:
    pytest.importorskip("pypdfium2", reason="extra 'pdf'")
    pages = [Image.new("RGB", (72, 36), color) for color in ("red", "blue")]
    data = encoded(pages[0], "PDF", save_all=True, append_images=pages[1:], resolution=72)
    assert image_size(data) == (144, 72)
    assert decode_image(data).shape == (72, 144, 3)
    assert decode_image(data, options=ImageOptions(frame=1))[36, 72] == pytest.approx([0, 0, 255], abs=4)
    assert reason_of(data, options=ImageOptions(frame=2)) == "no-such-frame"
    assert reason_of(data[: len(data) // 3]) == "corrupt-image"


def test_shrinking_while_decoding_is_asked_for_and_stays_above_what_is_wanted() -> None:
    data = encoded(photograph(640, 480), quality=90)
    assert decode_image(data).shape == (480, 640, 3)
    small = decode_image(data, options=ImageOptions(shrink_to=(112, 112)))
    assert 112 <= small.shape[0] < 240
    assert small.shape[0] / small.shape[1] == pytest.approx(0.75, abs=0.01)
    reference = np.asarray(photograph(640, 480).resize((small.shape[1], small.shape[0]), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - reference).mean() < 4
    assert decode_image(data, options=ImageOptions(shrink_to=(1_000, 1_000))).shape == (480, 640, 3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"background": (0, 0, 256)}, "three levels"),
        ({"max_pixels": 0}, "at least 1"),
        ({"min_fraction": 1.5}, "from 0 to 1"),
        ({"frame": -1}, "frame=-1"),
        ({"frame": "last"}, "'middle' or 'refuse'"),
        ({"shrink_to": (0, 3)}, "height, width"),
    ],
)
def test_options_are_checked(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ImageOptions(**settings)


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="'libjpeg' found; expected one of 'simplejpeg'"):
        decode_image(JPEG, options=ImageOptions(backend="libjpeg"))


def test_nothing_here_warns_of_sound_images() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in (JPEG, PROGRESSIVE, PNG, PALETTE, RGBA, KEYED):
            decode_image(data)
