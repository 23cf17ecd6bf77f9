"""The samples that a preview shows: raw parts, described one by one, so that any data set can be looked at."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from omniloom.data.convert.image_type import image_part
from omniloom.data.index.dataset import DatasetIndex
from omniloom.data.index.field_map import FieldOption, field_value
from omniloom.data.shards.rows import Rows
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError, SampleError, SkipSample

MAX_TEXT_CHARACTERS = 2_000
MAX_PIXELS = 64_000_000
_TEXT_PARTS = frozenset(("txt", "text", "transcript", "cls", "cls2", "md", "csv", "xml", "html", "yaml", "yml"))
_JSON_PARTS = frozenset(("json", "jsn"))
_COLUMN_ENDINGS = {"text": ".txt", "tree": ".json", "json": ".json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a sample, as a person wants to see it.

    Attributes:
        name: name of the part, such as ``jpg``.
        size_bytes: its length.
        kind: ``image``, ``json``, ``text`` or ``bytes``.
        shape: of an image, as ``640 x 480 jpg``.
        text: of a text, its beginning; of JSON, indented; of an unreadable part, why.
        value: of JSON, what it says.
        picture: of an image, a small RGB copy.
    """

    name: str
    size_bytes: int
    kind: str
    shape: str = ""
    text: str = ""
    value: Any = None
    picture: Image.Image | None = None


FieldMap = Mapping[str, tuple[FieldOption, ...]]


class PreviewSample(NamedTuple):
    """One sample and where it lies.

    Attributes:
        row: number of the sample in its split part, from 0.
        key: its key.
        shard: name of its shard.
        start: first byte of its headers in the shard; ``None`` where its parts lie apart.
        stop: byte after its last part.
        parts: its parts in the order of the archive; empty when it cannot be read.
        fault: why it cannot be read; empty when it can.
        fields: what the data set's field map makes of the parts, as text, by field; empty without a map.
    """

    row: int
    key: str
    shard: str
    start: int | None
    stop: int | None
    parts: tuple[Part, ...]
    fault: str
    fields: Mapping[str, str] = {}

    @property
    def where(self) -> str:
        """Shard and bytes, as a person reads them."""
        return self.shard if self.start is None else f"{self.shard}, bytes {self.start:,} to {self.stop:,}"


def chosen_rows(samples: int, *, count: int, start: int, spread: bool) -> list[int]:
    """Rows to show: ``count`` neighbours from ``start`` on, or as many spread evenly from there to the end."""
    left = max(0, samples - start)
    count = min(count, left)
    if not spread or count < 2:
        return list(range(start, start + count))
    return [start + number * (left - 1) // (count - 1) for number in range(count)]


def read_samples(
    index: DatasetIndex, rows: list[int], *, thumbnail_pixels: int, field_map: FieldMap | None = None
) -> Iterator[PreviewSample]:
    """Read rows of a split part, which must be ascending.

    Rows that are excluded, or that belong to no sample, are passed over.

    Args:
        index: the opened data set.
        rows: numbers of samples in the split part.
        thumbnail_pixels: longest side of the small copies of images.
        field_map: fields of the samples, for data sets that declare them.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    first = 0
    for entry in index.shards:
        shard = None
        while row is not None and row < first + entry.samples:
            shard = shard or entry.open(index.rule)
            sample = _read(shard, row - first, row, thumbnail_pixels)
            if sample is not None and sample.key not in entry.excluded_keys:
                yield sample._replace(fields=sample_fields(sample.parts, field_map or {}))
            row = next(wanted, None)
        if shard is not None:
            shard.close()
        first += entry.samples


def read_rows(
    rows: Rows,
    numbers: list[int],
    *,
    thumbnail_pixels: int,
    field_map: FieldMap | None = None,
    columns: Mapping[str, str] | None = None,
) -> Iterator[PreviewSample]:
    """As `read_samples`, of rows of any kind.

    Args:
        rows: the rows.
        numbers: which of them.
        thumbnail_pixels: longest side of the small copies of images.
        field_map: fields of the samples, for data sets that declare them.
        columns: kinds of the columns, where parts are columns.
    """
    for number in numbers:
        shard, span = rows.origin(number)
        start, stop = span or (None, None)
        try:
            raw = rows.read(number)
        except SkipSample:
            continue
        except (DatasetError, OSError) as error:
            yield PreviewSample(number, "", shard, start, stop, (), str(error))
            continue
        parts = []
        for name, data in raw.parts.items():
            ending = _COLUMN_ENDINGS.get((columns or {}).get(name, ""), "")
            part = describe_part(name + ending, data, thumbnail_pixels=thumbnail_pixels)
            parts.append(dataclasses.replace(part, name=name))
        fields = sample_fields(tuple(parts), field_map or {})
        yield PreviewSample(number, raw.name, shard, start, stop, tuple(parts), "", fields)


def _read(shard: TarShard, shard_row: int, row: int, thumbnail_pixels: int) -> PreviewSample | None:
    start, stop = shard.byte_range(shard_row)
    try:
        key, parts = shard.read(shard_row)
    except SampleError as error:
        if error.reason == "ignored-row":
            return None
        return PreviewSample(row, "", shard.name, start, stop, (), str(error))
    shown = tuple(describe_part(name, data, thumbnail_pixels=thumbnail_pixels) for name, data in parts.items())
    return PreviewSample(row, key, shard.name, start, stop, shown, "")


def sample_fields(parts: tuple[Part, ...], field_map: FieldMap) -> dict[str, str]:
    """What a field map makes of some parts, each field as text."""
    values = {part.name: part.value if part.kind == "json" else part.shape or part.text or part.kind for part in parts}
    found = {}
    for name, options in field_map.items():
        try:
            value = field_value(values, options)
            found[name] = _shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        except DatasetError as error:
            found[name] = f"cannot be filled: {error}"
    return found


def describe_part(name: str, data: bytes, *, thumbnail_pixels: int) -> Part:
    """Find out what a part is, by content for images and by name for the rest, and make it presentable."""
    kind = name.rpartition(".")[2].lower()
    if image_part(data) is not None:
        return _describe_image(name, data, thumbnail_pixels)
    if kind in _JSON_PARTS:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return Part(name=name, size_bytes=len(data), kind="bytes", text=f"no JSON: {error}")
        text = _shorten(json.dumps(value, indent=2, ensure_ascii=False))
        return Part(name=name, size_bytes=len(data), kind="json", text=text, value=value)
    if kind in _TEXT_PARTS:
        return Part(name=name, size_bytes=len(data), kind="text", text=_shorten(data.decode("utf-8", "replace")))
    return Part(name=name, size_bytes=len(data), kind="bytes", text=data[:16].hex(" "))


def _describe_image(name: str, data: bytes, thumbnail_pixels: int) -> Part:
    try:
        with Image.open(io.BytesIO(data)) as image:
            shape = f"{image.width} x {image.height} {image_part(data)}"
            if image.width * image.height > MAX_PIXELS:
                return Part(name=name, size_bytes=len(data), kind="image", shape=shape, text="too large to draw")
            image.draft("RGB", (thumbnail_pixels, thumbnail_pixels))
            image.thumbnail((thumbnail_pixels, thumbnail_pixels))
            return Part(name=name, size_bytes=len(data), kind="image", shape=shape, picture=_on_white(image))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return Part(name=name, size_bytes=len(data), kind="image", text=f"cannot be decoded: {error}")


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    ground = Image.new("RGBA", layered.size, "white")
    ground.alpha_composite(layered)
    return ground.convert("RGB")


def _shorten(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return f"{text[:MAX_TEXT_CHARACTERS]} … ({len(text):,} characters)"
