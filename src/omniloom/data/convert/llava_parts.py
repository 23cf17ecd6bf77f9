"""The parts of a LLaVA entry's sample, alike where it is converted to a shard and where it is read in place."""

from __future__ import annotations

import json
from collections.abc import Sequence

from omniloom.data.convert.image_type import describe, image_part
from omniloom.data.convert.images import ImageSource
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.errors import SampleError

JSON_PART = "json"
EXTRA_PART = "extra.json"


def read_picture(images: ImageSource, name: str) -> bytes:
    """Bytes of an image by the name that an entry has for it.

    Raises:
        SampleError: it cannot be read, or is no image; the message begins with the name.
    """
    try:
        data = images.read(name)
        if image_part(data) is None:
            raise SampleError(describe(data), reason="not-an-image")
    except SampleError as error:
        raise SampleError(f"{name}: {error}", reason=error.reason) from error
    return data


def name_pictures(pictures: Sequence[bytes], *, part: str | None = None) -> dict[str, bytes]:
    """Images by part name: one by its content, or as ``part`` says; several by number and content."""
    if len(pictures) == 1:
        return {part or str(image_part(pictures[0])): pictures[0]}
    width = len(str(len(pictures) - 1))
    return {f"{number:0{width}d}.{image_part(data)}": data for number, data in enumerate(pictures)}


def llava_parts(entry: LlavaEntry, pictures: dict[str, bytes], *, key: str) -> dict[str, bytes]:
    """All parts of a sample: its images, its conversation, and what else the entry had.

    Args:
        entry: the entry.
        pictures: its images by part name.
        key: key of the sample; where it is not the entry's id, the id is kept with the rest.
    """
    extra = entry.extra if key == entry.identifier else {"id": entry.identifier, **entry.extra}
    parts = {**pictures, JSON_PART: json.dumps(entry.turns).encode()}
    if extra:
        parts[EXTRA_PART] = json.dumps(extra).encode()
    return parts
