"""What can be wrong with the parts of one sample, and how each kind of part is checked."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from PIL import Image

from omniloom.data.index.field_map import FieldOption, field_value
from omniloom.data.media.json_part import has_padding, parse_strict_json
from omniloom.data.media.decoder import (
    IMAGE_EXTENSIONS,
    JSON_EXTENSIONS,
    NUMBER_EXTENSIONS,
    TEXT_EXTENSIONS,
    decode_number,
)
from omniloom.data.media.image import decode_image, image_size
from omniloom.errors import DatasetError, SampleError

ERROR = "error"
WARNING = "warning"

CHECKED_BYTES = 1 << 30
PICKLE_EXTENSIONS = frozenset(("pkl", "pickle", "pyd", "pth", "pt"))
_FORMATS = {
    extension: name
    for name, extensions in (
        ("JPEG", ("jpg", "jpeg", "jpe", "jfif")),
        ("PNG", ("png",)),
        ("GIF", ("gif",)),
        ("BMP", ("bmp",)),
        ("WEBP", ("webp",)),
        ("TIFF", ("tif", "tiff")),
    )
    for extension in extensions
}


class Remark(NamedTuple):
    """Something to say of one part of a sample, or of the sample as a whole.

    Attributes:
        level: ``error`` or ``warning``.
        reason: short stable word for counting.
        part: name of the part; empty for the sample as a whole.
        message: what is wrong.
    """

    level: str
    reason: str
    part: str
    message: str


def check_sample(
    parts: Mapping[str, Callable[[], bytes]],
    sizes: Mapping[str, int],
    fields: Mapping[str, tuple[FieldOption, ...]] | None,
    *,
    decode: bool,
) -> Iterator[Remark]:
    """Check every part of a sample, and that its fields can be filled.

    Args:
        parts: reads the bytes of a part, by name.
        sizes: size of each part in bytes.
        fields: alternatives of each field, where the data set has a field map.
        decode: whether images are decoded whole, or only looked at.
    """
    values: dict[str, Any] = {}
    failed = set()
    for name, read in parts.items():
        values[name] = None
        if not sizes[name]:
            decoded = suffix_of(name) in IMAGE_EXTENSIONS | JSON_EXTENSIONS | NUMBER_EXTENSIONS
            yield Remark(ERROR if decoded else WARNING, "empty-member", name, "the part has no bytes")
            failed.add(name)
            continue
        checker = _checker(name, decode=decode)
        if checker is None:
            continue
        if sizes[name] > CHECKED_BYTES:
            yield Remark(WARNING, "not-checked", name, f"{sizes[name]:,} bytes are too many to be checked")
            continue
        try:
            values[name], remarks = checker(read(), name)
        except SampleError as error:
            failed.add(name)
            yield Remark(ERROR, error.reason, name, str(error))
        else:
            yield from remarks
    for field, options in (fields or {}).items():
        try:
            field_value(values, options)
        except DatasetError as error:
            # A part that is broken already has its own remark.
            if not failed & {option.part for option in options}:
                yield Remark(ERROR, "field-map", "", f"the field {field!r} cannot be filled: {error}")


def suffix_of(part: str) -> str:
    """The last extension of a part's name, in lower case."""
    return part.rpartition(".")[2].lower()


def _checker(name: str, *, decode: bool) -> Callable[[bytes, str], tuple[Any, list[Remark]]] | None:
    suffix = suffix_of(name)
    if suffix in JSON_EXTENSIONS:
        return _check_json
    if suffix in TEXT_EXTENSIONS:
        return lambda data, _: (_text(data), [])
    if suffix in NUMBER_EXTENSIONS:
        return lambda data, _: (decode_number(data), [])
    if suffix in PICKLE_EXTENSIONS:
        return _warn_of_pickle
    if suffix in IMAGE_EXTENSIONS:
        return _check_image if decode else _check_image_header
    return None


def _check_json(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    value = parse_strict_json(data)
    if has_padding(data):
        return value, [Remark(WARNING, "nul-padding", name, "the text is padded with NULs")]
    return value, []


def _warn_of_pickle(_data: bytes, name: str) -> tuple[Any, list[Remark]]:
    told = f"parts called {suffix_of(name)} run code when they are decoded; the loader leaves them alone by default"
    return None, [Remark(WARNING, "pickle", name, told)]


def _check_image(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    decode_image(data)
    return _check_image_header(data, name)


def _check_image_header(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    """A remark where the content is another format than the name says."""
    image_size(data)
    with Image.open(io.BytesIO(data)) as image:
        found = image.format
    expected = _FORMATS.get(suffix_of(name), found)
    if found == expected:
        return None, []
    return None, [Remark(WARNING, "content-type", name, f"holds {found}, though its name says {expected}")]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SampleError(f"byte {error.start} of the text is not UTF-8: {error.reason}", reason="encoding") from None
