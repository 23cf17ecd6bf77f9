"""The parts of a LLaVA entry's sample, alike where it is converted to a shard and where it is read in place."""

from __future__ import annotations

import json
from collections.abc import Sequence

from omniloom.data.convert.image_type import FEATURES_PART, describe, media_part
from omniloom.data.convert.images import ImageSource
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.convert.message_parts import DATA_URL, decode_data_url
from omniloom.errors import SampleError

JSON_PART = "json"
EXTRA_PART = "extra.json"


def entry_pictures(entry: LlavaEntry, images: ImageSource) -> list[bytes]:
    """Bytes of the images (or the video) of an entry: what it carries itself, or what its names stand for.

    Raises:
        SampleError: one cannot be read, or is neither image nor video.
    """
    if entry.pictures is None:
        return [read_picture(images, name) for name in entry.images]
    for number, data in enumerate(entry.pictures):
        if media_part(data) is None:
            raise SampleError(f"image {number}: {describe(data)}", reason="not-an-image")
    return list(entry.pictures)


def read_picture(images: ImageSource, name: str) -> bytes:
    """Bytes of an image by the name that an entry has for it.

    Raises:
        SampleError: it cannot be read, or is no image; the message begins with the name.
    """
    try:
        data = decode_data_url(name) if name.startswith(DATA_URL) else images.read(name)
        if media_part(data) is None:
            raise SampleError(describe(data), reason="not-an-image")
    except SampleError as error:
        raise SampleError(f"{name[:200]}: {error}", reason=error.reason) from error
    return data


def name_pictures(pictures: Sequence[bytes], *, part: str | None = None) -> dict[str, bytes]:
    """Images by part name: one by its content, or as ``part`` says; several by number and content.

    Features of an image are no image, and keep their own name.
    """
    if len(pictures) == 1:
        found = str(media_part(pictures[0]))
        return {found if part is None or found == FEATURES_PART else part: pictures[0]}
    width = len(str(len(pictures) - 1))
    return {f"{number:0{width}d}.{media_part(data)}": data for number, data in enumerate(pictures)}


def llava_parts(entry: LlavaEntry, pictures: dict[str, bytes], *, key: str) -> dict[str, bytes]:
    """All parts of a sample: its images, its conversation, and what else the entry had.

    Args:
        entry: the entry.
        pictures: its images by part name.
        key: key of the sample; where it is not the entry's id, the id is kept with the rest.
    """
    extra = entry.extra if key == entry.identifier else {"id": entry.identifier, **entry.extra}
    content = entry.turns if entry.content is None else entry.content
    parts = {**pictures, JSON_PART: json.dumps(content).encode()}
    if extra:
        parts[EXTRA_PART] = json.dumps(extra).encode()
    return parts
