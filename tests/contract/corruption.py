"""Sound files, what can happen to their bytes, and a data set made of either that lint and the reader have to judge."""

from __future__ import annotations

import io
import json
import random
import tarfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.lint import LintReport, lint_dataset
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.media.decoder import SampleDecoder
from omniloom.errors import DatasetError, SampleError, ShardError, SkipSample, StorageError

TYPED = (DatasetError, StorageError, SkipSample)
"""What reading may raise; everything else is a crash."""


def sound_parts() -> dict[str, bytes]:
    """A file of every kind that the decoder knows, by part name."""
    draw = np.random.default_rng(3)
    image = Image.fromarray(draw.integers(0, 256, (24, 40, 3), dtype=np.uint8)).resize((48, 32))
    array = io.BytesIO()
    np.save(array, np.arange(12).reshape(3, 4))
    text = "Zwölf Boxkämpfer jagen Viktor"
    return {
        "jpg": _file(image, "JPEG", quality=85),
        "progressive.jpg": _file(image, "JPEG", quality=85, progressive=True, exif=Image.Exif()),
        "cmyk.jpg": _file(image.convert("CMYK"), "JPEG"),
        "png": _file(image, "PNG"),
        "palette.png": _file(image.convert("P"), "PNG", transparency=3),
        "gif": _file(image, "GIF"),
        "webp": _file(image, "WEBP"),
        "tiff": _file(image, "TIFF", compression="tiff_lzw"),
        "bmp": _file(image, "BMP"),
        "jp2": _file(image, "JPEG2000"),
        "json": json.dumps({"text": text, "boxes": [[1, 2.5, 3e2], []], "id": 7, "no": None}).encode(),
        "txt": text.encode(),
        "cls": b"12",
        "npy": array.getvalue(),
        "bin": b"\0" * 9,
    }


def _file(image: Image.Image, form: str, **settings: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **settings)
    return stream.getvalue()


def corrupt(data: bytes, draw: random.Random) -> bytes:
    """The bytes after one to three mishaps: bits flipped, bytes cut, taken out, put in, swapped, zeroed, doubled."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        size = len(changed)
        at = draw.randrange(size + 1)
        length = draw.choice((1, 1, 2, 4, 16, 64, 512))
        mishap = draw.randrange(8)
        if mishap == 0 and size:
            changed[at - 1] ^= 1 << draw.randrange(8)
        elif mishap == 1:
            del changed[at:]
        elif mishap == 2:
            del changed[at : at + length]
        elif mishap == 3:
            changed[at:at] = draw.randbytes(length)
        elif mishap == 4:
            other = draw.randrange(size + 1)
            changed[at : at + length], changed[other : other + length] = (
                changed[other : other + length],
                changed[at : at + length],
            )
        elif mishap == 5:
            changed[at : at + length] = bytes(len(changed[at : at + length]))
        elif mishap == 6:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at : at + length] = draw.randbytes(len(changed[at : at + length]))
    return bytes(changed)


def archive(samples: Sequence[tuple[str, Mapping[str, bytes]]]) -> bytes:
    """A tar of samples."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for key, parts in samples:
            for part, data in parts.items():
                member = tarfile.TarInfo(f"{key}.{part}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def prepared(root: Path, tar: bytes) -> Path:
    """A data set of one shard, indexed."""
    root.mkdir(parents=True)
    (root / "s.tar").write_bytes(tar)
    prepare_dataset(root, num_workers=1, sqlite=False)
    crude = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
    (root / ".nv-meta/dataset.yaml").write_text(crude)
    return root


def linted(root: Path, decoder: SampleDecoder) -> LintReport:
    """What lint says; never raises for what is wrong with samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lint_dataset(root, decoder=decoder)


def read_all(root: Path, decoder: SampleDecoder, *, rows: int) -> tuple[dict[int, str], dict[int, str]]:
    """Read and decode every row, as a loader's stages do.

    Returns:
        Row to key, of those that went well; and row to reason, of those that did not. Anything but the errors that
        reading may raise goes through to the caller.
    """
    went_well, failed = {}, {}
    try:
        source = TarRows(open_dataset(str(root), split_part="train"), split_config="split.yaml")
    except TYPED as error:
        return {}, dict.fromkeys(range(rows), type(error).__name__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in range(rows):
            try:
                raw = source.read(row)
                for name, data in raw.parts.items():
                    decoder.decode(name, data)
            except TYPED as error:
                reasoned = isinstance(error, SampleError | ShardError)
                failed[row] = error.reason if reasoned else type(error).__name__
            else:
                went_well[row] = raw.name
    return went_well, failed
