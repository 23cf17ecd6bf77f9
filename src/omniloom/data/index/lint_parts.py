"""What can be wrong with the parts of one sample, and how each kind of part is checked."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from omniloom.data.index.field_map import FieldOption, field_value
from omniloom.data.index.json_check import has_padding, parse_strict_json
from omniloom.errors import DatasetError, SampleError

ERROR = "error"
WARNING = "warning"

CHECKED_BYTES = 1 << 30
IMAGE_SUFFIXES = frozenset(["bmp", "gif", "ico", "j2k", "jp2", "jpx", "jpeg", "jpg", "png", "tif", "tiff", "webp"])
TEXT_SUFFIXES = frozenset(["txt", "text", "transcript", "caption", "md", "cls", "cls2", "index", "inx", "id"])
PICKLE_SUFFIXES = frozenset(["pkl", "pickle", "pyd", "pth", "pt"])
_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF"}


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
    wanted = {option.part for options in fields.values() for option in options} if fields is not None else None
    values: dict[str, Any] = {}
    failed = set()
    for name, read in parts.items():
        values[name] = None
        if not sizes[name]:
            decoded = suffix_of(name) in IMAGE_SUFFIXES or suffix_of(name) == "json"
            needed = decoded and (wanted is None or name in wanted)
            yield Remark(ERROR if needed else WARNING, "empty-member", name, "the part has no bytes")
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
    if suffix == "json":
        return _check_json
    if suffix in TEXT_SUFFIXES:
        return _check_text
    if suffix in PICKLE_SUFFIXES:
        return _warn_of_pickle
    if suffix in IMAGE_SUFFIXES:
        return _check_image if decode else _check_image_header
    return None


def _check_json(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    value = parse_strict_json(data)
    if has_padding(data):
        return value, [Remark(WARNING, "nul-padding", name, "the text is padded with NULs")]
    return value, []


def _check_text(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError as error:
        raise SampleError(f"byte {error.start} ({data[error.start]:#04x}) is not UTF-8", reason="encoding") from error


def _warn_of_pickle(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    told = f"parts called {suffix_of(name)} run code when they are decoded; the loader leaves them alone by default"
    return None, [Remark(WARNING, "pickle", name, told)]


def _check_image(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    remarks = _content_remarks(data, name)
    _decoder()(data)
    return None, remarks


def _check_image_header(data: bytes, name: str) -> tuple[Any, list[Remark]]:
    return None, _content_remarks(data, name)


def _content_remarks(data: bytes, name: str) -> list[Remark]:
    """A remark where the content is another format than the extension says; refuses what is no image."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    try:
        with Image.open(io.BytesIO(data)) as image:
            found = image.format
    except UnidentifiedImageError as error:
        raise SampleError(f"no image: begins with {data[:16]!r}", reason="corrupt") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SampleError(f"the image's header cannot be read: {error}", reason="corrupt") from error
    expected = _FORMATS.get(suffix_of(name), found)
    if found == expected:
        return []
    return [Remark(WARNING, "content-type", name, f"holds {found}, though its name says {expected}")]


def _decoder() -> Callable[[bytes], Any]:
    """The loader's own decoder, so that lint refuses what training would."""
    try:
        decode: Callable[[bytes], Any] = importlib.import_module("omniloom.data.media.image").decode_image
    except ModuleNotFoundError:
        return _decode_with_pillow
    return decode


def _decode_with_pillow(data: bytes) -> None:
    from PIL import Image  # noqa: PLC0415

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SampleError(f"the image cannot be decoded: {error}", reason="corrupt") from error
