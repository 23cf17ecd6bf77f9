"""Every image spec of Energon: type, shape and range as its published table says; raw and uint8; names of parts."""

from __future__ import annotations

import copy
import gzip
import io
import json
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from omniloom.data.kinds import CrudeSample
from omniloom.data.media.decoder import IMAGE_SPECS, SampleDecoder
from omniloom.data.media.image_options import ImageOptions
from omniloom.data.media.lazy import Lazy
from omniloom.errors import ConfigError, SampleError
from tests.unit.image_files import encoded, png

# 3 wide, 2 high: red, green, blue / white, black, half-transparent red
COLORS = [[(255, 0, 0, 255), (0, 255, 0, 255), (0, 0, 255, 255)], [(255,) * 4, (0, 0, 0, 255), (255, 0, 0, 255)]]
ROWS = b"".join(b"\0" + bytes(level for color in row for level in color) for row in COLORS)
IMAGE = png(3, 2, bits=8, color=6, rows=ROWS)
PARTS = {"png": IMAGE, "0.png": IMAGE, "txt": b"t", "cls": b"7"}
GREYS = [[76, 150, 29], [255, 0, 76]]  # ITU-R 601-2: 0.299 R + 0.587 G + 0.114 B

# spec: (array type, dtype, shape, where the colours of the upper left pixel are)
TABLE: dict[str, tuple[type, Any, tuple[int, ...]]] = {
    "l8": (np.ndarray, np.uint8, (2, 3)),
    "rgb8": (np.ndarray, np.uint8, (2, 3, 3)),
    "rgba8": (np.ndarray, np.uint8, (2, 3, 4)),
    "l": (np.ndarray, np.float32, (2, 3)),
    "rgb": (np.ndarray, np.float32, (2, 3, 3)),
    "rgba": (np.ndarray, np.float32, (2, 3, 4)),
    "torchl8": (torch.Tensor, torch.uint8, (2, 3)),
    "torchrgb8": (torch.Tensor, torch.uint8, (3, 2, 3)),
    "torchrgba8": (torch.Tensor, torch.uint8, (4, 2, 3)),
    "torchl": (torch.Tensor, torch.float32, (2, 3)),
    "torchrgb": (torch.Tensor, torch.float32, (3, 2, 3)),
    "torch": (torch.Tensor, torch.float32, (3, 2, 3)),
    "torchrgba": (torch.Tensor, torch.float32, (4, 2, 3)),
    "uint8": (torch.Tensor, torch.uint8, (3, 2, 3)),
}
MODES = {"pill": "L", "pil": "RGB", "pilrgb": "RGB", "pilrgba": "RGBA"}


def test_the_tables_are_complete() -> None:
    assert set(IMAGE_SPECS) == {*TABLE, *MODES, "raw"}


@pytest.mark.parametrize("spec", TABLE)
def test_arrays_and_tensors(spec: str) -> None:
    kind, dtype, shape = TABLE[spec]
    value = SampleDecoder(image_decode=spec).decode("png", IMAGE)
    assert isinstance(value, kind)
    assert (value.dtype, tuple(value.shape)) == (dtype, shape)
    levels = np.asarray(value).astype(np.float64) * (255 if "float" in str(dtype) or dtype is np.float32 else 1)
    if len(shape) == 2:
        assert levels == pytest.approx(np.array(GREYS), abs=1)
    else:
        channels_last = levels.transpose(1, 2, 0) if kind is torch.Tensor else levels
        assert channels_last == pytest.approx(np.array(COLORS)[..., : channels_last.shape[-1]], abs=1e-4)


@pytest.mark.parametrize("spec", MODES)
def test_images_of_pillow(spec: str) -> None:
    value = SampleDecoder(image_decode=spec).decode("png", IMAGE)
    assert (value.mode, value.size) == (MODES[spec], (3, 2))
    expected = GREYS if MODES[spec] == "L" else np.array(COLORS)[..., : len(MODES[spec])]
    assert np.asarray(value).astype(int) == pytest.approx(np.array(expected), abs=1)


def test_raw_is_the_bytes() -> None:
    assert SampleDecoder(image_decode="raw").decode("jpg", b"anything") == b"anything"


def test_an_unknown_spec_is_refused_with_the_list() -> None:
    with pytest.raises(ConfigError, match="image_decode='rgb16' found; expected one of uint8, raw, torch"):
        SampleDecoder(image_decode="rgb16")


@pytest.mark.parametrize("spec", ["uint8", "torchl", "rgba8", "pil"])
def test_a_decoder_pickles(spec: str) -> None:
    decoder = SampleDecoder(image_decode=spec, images=ImageOptions(background=(0, 0, 0)), lazy=True)
    again = pickle.loads(pickle.dumps(decoder))
    assert again == decoder
    assert again.decode("a.png", IMAGE).get() is not None


def test_names_of_parts() -> None:
    decoder = SampleDecoder(image_decode="l8")
    assert decoder.decode("0001.seg.PNG", IMAGE).shape == (2, 3)  # images in any case
    assert decoder.decode("x.txt", "é".encode()) == "é"
    assert decoder.decode("x.TXT", b"t") == b"t"  # the rest as written, as Energon does
    assert decoder.decode("cls", b" 7\n") == 7
    assert decoder.decode("json", b'{"a": [1]}') == {"a": [1]}
    assert decoder.decode("pkl", b"anything") == b"anything"
    assert decoder.decode("pdf", b"%PDF-1.7") == b"%PDF-1.7"
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    assert decoder.decode("npy", stream.getvalue()).tolist() == [0, 1, 2]


def test_energons_other_two_methods() -> None:
    decoder = SampleDecoder(image_decode="l8", guess_content=True)
    sample = decoder({"__key__": "k", "png": IMAGE, "txt": b"t"})
    assert (sample["__key__"], sample["png"].shape, sample["txt"]) == ("k", (2, 3), "t")
    assert decoder.config() == {
        "image_decode": "l8", "av_decode": "AVDecoder", "video_decode_audio": False, "guess_content": True,
    }  # fmt: skip


def test_packed_parts() -> None:
    decoder = SampleDecoder(image_decode="l8")
    assert decoder.decode("json.gz", gzip.compress(b'{"a": 1}')) == {"a": 1}
    assert decoder.decode("0.png.gz", gzip.compress(IMAGE)).shape == (2, 3)
    assert decoder.decode("gz", gzip.compress(b"bytes")) == b"bytes"
    assert decoder.describe("json.gz") == "unpacked; then a JSON value"
    for data in (b"", gzip.compress(b"text" * 99)[:-9], b"no gzip"):
        with pytest.raises(SampleError) as error:
            decoder.decode("txt.gz", data)
        assert error.value.reason == "corrupt-gzip"


@pytest.mark.parametrize(("part", "head", "extra"), [
    ("heic", b"\0\0\0\x18ftypheic", "heif"), ("jxl", b"\xff\x0a", "jxl"), ("pdf", b"%PDF-1.7", "pdf"),
])  # fmt: skip
def test_a_missing_extra_is_named(part: str, head: bytes, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"Install it: `pip install omniloom\[{extra}\]`"):
        SampleDecoder(pdf_pages=True).decode(part, head + bytes(40))


def test_arrays_that_need_pickle_are_not_read() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    for data in (stream.getvalue(), b"", b"PK\3\4broken"):
        with pytest.raises(SampleError) as error:
            SampleDecoder().decode("npy", data)
        assert error.value.reason == "corrupt-array"


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    entry = zipfile.ZipInfo("a.npy")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(entry, "w") as file:
        for _ in range(1_100):
            file.write(bytes(1 << 20))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 60,)})
    for name, data in (("npz", stream.getvalue()), ("npy", header.getvalue() + bytes(80))):
        with pytest.raises(SampleError) as error:
            SampleDecoder().decode(name, data)
        assert error.value.reason in ("too-large", "corrupt-array")


def test_content_may_decide() -> None:
    guessing = SampleDecoder(image_decode="l8", guess_content=True)
    assert guessing.decode("bin", IMAGE).shape == (2, 3)
    assert guessing.decode("bin", b"no image") == b"no image"
    assert guessing.decode("txt", b"a text") == "a text"
    assert SampleDecoder(image_decode="l8").decode("bin", IMAGE) == IMAGE


def test_json_as_python_reads_it_is_a_choice() -> None:
    with pytest.raises(SampleError):
        SampleDecoder().decode("json", b'{"a": NaN}')
    assert str(SampleDecoder(strict_json=False).decode("json", b'{"a": NaN}')) == "{'a': nan}"
    with pytest.raises(SampleError) as error:
        SampleDecoder(strict_json=False).decode("json", b"[" * 100_000)
    assert error.value.reason == "depth"


def test_texts() -> None:
    decoder = SampleDecoder()
    assert decoder.decode("txt", b"\xef\xbb\xbfa\n\nb") == "a\n\nb"
    for data in ("é".encode("latin-1"), "text".encode("utf-16")):
        with pytest.raises(SampleError, match="byte 0 of the text is not UTF-8") as error:
            decoder.decode("txt", data)
        assert error.value.reason == "encoding"


def test_a_gray_jpeg_for_every_spec() -> None:
    jpeg = encoded(Image.new("L", (5, 4), 90))
    for spec in IMAGE_SPECS:
        value = SampleDecoder(image_decode=spec).decode("jpg", jpeg)
        if spec != "raw":
            assert np.asarray(value).reshape(-1).max() in (255, 1, 90, np.float32(90) / np.float32(255))


class _Counting:
    """Decodes and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: bytes) -> Any:
        self.calls += 1
        return json.loads(gzip.decompress(data))


def test_a_lazy_value_is_made_once_when_asked_for() -> None:
    decode = _Counting()
    lazy = Lazy(gzip.compress(b"[1]"), decode, name="json.gz")
    assert (decode.calls, lazy.is_decoded) == (0, False)
    assert lazy.get() == [1]
    assert lazy.get() is lazy.get()
    assert (decode.calls, lazy.is_decoded, lazy.data) == (1, True, None)


def test_a_lazy_image_knows_its_size_without_decoding() -> None:
    lazy = SampleDecoder(lazy=True).decode("png", IMAGE)
    assert isinstance(lazy, Lazy)
    assert (lazy.size(), lazy.is_decoded) == ((3, 2), False)
    again = pickle.loads(pickle.dumps(lazy))
    assert tuple(again.get().shape) == (3, 2, 3)
    assert (again.size(), pickle.loads(pickle.dumps(again)).size()) == ((3, 2), (3, 2))
    assert SampleDecoder(lazy=True).decode("txt", b"t") == "t"  # texts are not worth it


def test_a_lazy_fault_shows_at_each_use() -> None:
    lazy = SampleDecoder(lazy=True).decode("png", IMAGE[:40])
    for _ in range(2):
        with pytest.raises(SampleError):
            lazy.get()


def test_a_dict_of_parts_decodes_what_is_looked_at() -> None:
    decoder = SampleDecoder(image_decode="l8")
    sample = CrudeSample(__key__="k", **{name: decoder.later(name, data) for name, data in PARTS.items()})
    assert not any(sample.peek(name).is_decoded for name in ("png", "0.png"))
    assert (sample.peek("png").size(), sample["txt"], sample["cls"]) == ((3, 2), "t", 7)
    again = pickle.loads(pickle.dumps(sample))
    assert sample["png"].shape == (2, 3)
    assert (sample.peek("png").is_decoded, sample.peek("0.png").is_decoded) == (True, False)
    assert not again.peek("png").is_decoded
    for made in (dict(again), {**again}, dict(again.items()), dict(zip(again, again.values(), strict=True))):
        assert made["0.png"].shape == (2, 3)
    assert (again | {"more": 1})["png"].shape == (2, 3)
    assert sample.copy()["0.png"].shape == (2, 3)
    assert dict(**again)["png"].shape == again.setdefault("png").shape == (2, 3)
    assert copy.deepcopy(copy.copy(sample))["0.png"].shape == (2, 3)
    last = CrudeSample(png=decoder.later("png", IMAGE))
    assert last.popitem()[1].shape == (2, 3)
    assert (sample.get("absent", 5), sample.pop("0.png").shape, "0.png" in sample) == (5, (2, 3), False)


def test_a_broken_part_of_a_dict_costs_nothing_until_it_is_looked_at() -> None:
    sample = CrudeSample(jpg=SampleDecoder().later("jpg", b"no image"), txt="t")
    assert sample["txt"] == "t"
    with pytest.raises(SampleError) as error:
        sample["jpg"]
    assert error.value.reason == "not-an-image"


def test_laziness_is_a_choice() -> None:
    assert SampleDecoder(lazy=False, image_decode="l8").later("png", IMAGE).shape == (2, 3)
    assert SampleDecoder(late=True, image_decode="l8").later("png", IMAGE).shape == (2, 3)
    assert SampleDecoder(image_decode="raw").later("png", IMAGE) == IMAGE
    assert SampleDecoder(image_decode="l8").decode("png", IMAGE).shape == (2, 3)
