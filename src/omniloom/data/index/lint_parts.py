"""What can be wrong with the parts of one sample, and how each kind of part is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from omniloom.data.index.field_map import FieldOption, field_value
from omniloom.data.media.decoder import (
    ARRAY_EXTENSIONS,
    AV_EXTENSIONS,
    IMAGE_EXTENSIONS,
    JSON_EXTENSIONS,
    NUMBER_EXTENSIONS,
    SampleDecoder,
)
from omniloom.data.media.image_kinds import KINDS
from omniloom.data.media.image_options import check_pixels
from omniloom.data.media.json_part import has_padding
from omniloom.data.media.probe import probe_image
from omniloom.errors import ConfigError, DatasetError, SampleError

ERROR = "error"
WARNING = "warning"

CHECKED_BYTES = 1 << 30
PICKLE_EXTENSIONS = frozenset(("pkl", "pickle", "pyd", "pth", "pt"))
_NEVER_EMPTY = IMAGE_EXTENSIONS | JSON_EXTENSIONS | NUMBER_EXTENSIONS | ARRAY_EXTENSIONS | AV_EXTENSIONS
_FORMATS = {extension: kind.name for kind in KINDS for extension in kind.extensions}

Checker = Callable[[bytes, str], tuple[Any, list["Remark"]]]


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
    decoder: SampleDecoder,
    decode: bool,
) -> Iterator[Remark]:
    """Check every part of a sample, and that its fields can be filled.

    Args:
        parts: reads the bytes of a part, by name.
        sizes: size of each part in bytes.
        fields: alternatives of each field, where the data set has a field map.
        decoder: the decoder of the run; what it refuses is an error.
        decode: whether images are decoded whole, or only looked at.
    """
    values: dict[str, Any] = {}
    failed = set()
    for name, read in parts.items():
        values[name] = None
        if not sizes[name]:
            yield Remark(
                ERROR if suffix_of(name) in _NEVER_EMPTY else WARNING, "empty-member", name, "the part has no bytes"
            )
            failed.add(name)
            continue
        checker = _checker(name, decoder, decode=decode)
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
        except ConfigError as error:  # an extra is missing
            failed.add(name)
            yield Remark(ERROR, "missing-extra", name, str(error))
        else:
            yield from remarks
    for field, options in (fields or {}).items():
        try:
            field_value(values, options)
        except DatasetError as error:
            # A part that is broken already has its own remark.
            if not failed & {option.part for option in options}:
                yield Remark(ERROR, "field-map", "", f"the field {field!r} cannot be filled: {error}")


def parts_looked_into(sizes: Mapping[str, int], decoder: SampleDecoder, *, decode: bool) -> tuple[str, ...]:
    """The parts of a sample whose bytes `check_sample` reads, in its order, by their sizes in bytes."""
    return tuple(
        name
        for name, size_bytes in sizes.items()
        if 0 < size_bytes <= CHECKED_BYTES and _checker(name, decoder, decode=decode) is not None
    )


def suffix_of(part: str) -> str:
    """The last extension of a part's name, in lower case."""
    return part.rpartition(".")[2].lower()


def _checker(name: str, decoder: SampleDecoder, *, decode: bool) -> Checker | None:
    suffix = suffix_of(name)
    if suffix in PICKLE_EXTENSIONS:
        return _warn_of_pickle
    function = decoder.function(name)
    if function is None:
        return None
    if suffix in IMAGE_EXTENSIONS:
        return _image_checker(decoder, function if decode else None)
    if suffix in AV_EXTENSIONS:
        return _media_checker(decoder, decode=decode)
    pads = suffix in JSON_EXTENSIONS

    def check(data: bytes, name: str) -> tuple[Any, list[Remark]]:
        value = function(data)
        padded = pads and has_padding(data)
        return value, [Remark(WARNING, "nul-padding", name, "the text is padded with NULs")] if padded else []

    return check


def _warn_of_pickle(_data: bytes, name: str) -> tuple[Any, list[Remark]]:
    told = f"parts called {suffix_of(name)} run code when they are decoded; the loader leaves them alone by default"
    return None, [Remark(WARNING, "pickle", name, told)]


def _media_checker(decoder: SampleDecoder, *, decode: bool) -> Checker:
    """Decodes video and sound to their end, or with ``decode=False`` makes what the run would make of them."""

    def check(data: bytes, name: str) -> tuple[Any, list[Remark]]:
        value = decoder.av(data)
        if hasattr(value, "close"):
            value.close()
        if not decode:
            return None, []
        from omniloom.data.index.lint_media import media_faults  # noqa: PLC0415 - only for those who have media

        return None, [Remark(WARNING, reason, name, told) for reason, told in media_faults(data)]

    return check


def _image_checker(decoder: SampleDecoder, function: Callable[[bytes], Any] | None) -> Checker:
    """Decodes an image, or with no function looks at its header; remarks on what the decoder passes over."""

    def check(data: bytes, name: str) -> tuple[Any, list[Remark]]:
        if function is not None:
            function(data)
        header = probe_image(data)
        check_pixels(header, decoder.images)
        remarks = []
        expected = _FORMATS.get(suffix_of(name), header.kind.name)
        if header.kind.name != expected:
            told = f"holds {header.kind.name}, though its name says {expected}"
            remarks.append(Remark(WARNING, "content-type", name, told))
        if header.damaged:
            remarks.append(Remark(WARNING, "metadata", name, f"the metadata is damaged: {header.damaged}"))
        return None, remarks

    return check
