"""What is known of a medium without opening it: Energon's records of images, video and audio, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, Self

from omniloom.errors import DatasetError


class MediaMetadataType(str, Enum):  # noqa: UP042 - Energon's: str() of it is as there
    """Kinds of records."""

    AV = "av"
    IMAGE = "image"


@dataclass(slots=True, kw_only=True)
class MediaMetadataBase:
    """Base of the records."""

    metadata_type: ClassVar[MediaMetadataType]

    def to_dict(self) -> dict[str, Any]:
        """The fields that are known."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """A record of its fields; `TypeError` for unknown or missing ones."""
        return cls(**payload)


@dataclass(slots=True, kw_only=True)
class AVMetadata(MediaMetadataBase):
    """What is known of the first video and the first audio stream of a container; ``None``: not known or not there.

    Attributes:
        video_duration: seconds.
        video_num_frames: how many frames there are.
        video_fps: frames a second on average.
        video_width: pixels, as stored: a rotation is not taken into account.
        video_height: pixels, as stored.
        audio_duration: seconds.
        audio_channels: 1 is mono.
        audio_sample_rate: samples a second and channel.
        audio_num_samples: samples a channel.
    """

    metadata_type: ClassVar[MediaMetadataType] = MediaMetadataType.AV

    video_duration: float | None = None
    video_num_frames: int | None = None
    video_fps: float | None = None
    video_width: int | None = None
    video_height: int | None = None
    audio_duration: float | None = None
    audio_channels: int | None = None
    audio_sample_rate: int | None = None
    audio_num_samples: int | None = None


@dataclass(slots=True, kw_only=True)
class ImageMetadata(MediaMetadataBase):
    """What is known of an image.

    Attributes:
        width: pixels, as stored: an orientation is not taken into account.
        height: pixels, as stored.
        format: Pillow's name of the format, such as ``JPEG``.
        mode: Pillow's name of the pixel layout, such as ``RGB``.
    """

    metadata_type: ClassVar[MediaMetadataType] = MediaMetadataType.IMAGE

    width: int
    height: int
    format: str
    mode: str


_RECORDS: dict[MediaMetadataType, type[MediaMetadataBase]] = {
    MediaMetadataType.AV: AVMetadata,
    MediaMetadataType.IMAGE: ImageMetadata,
}


def serialize_media_metadata(metadata: MediaMetadataBase) -> tuple[MediaMetadataType, str]:
    """Kind and compact JSON of a record, as they stand in ``index.sqlite``."""
    return metadata.metadata_type, json.dumps(metadata.to_dict(), separators=(",", ":"))


def deserialize_media_metadata(metadata_type: str | MediaMetadataType, metadata_json: str) -> MediaMetadataBase:
    """The record of a kind and its JSON.

    Raises:
        DatasetError: an unknown kind, or fields that do not fit it.
    """
    try:
        record = _RECORDS[MediaMetadataType(metadata_type)]
        return record.from_dict(json.loads(metadata_json) if metadata_json else {})
    except (ValueError, TypeError) as error:
        known = ", ".join(kind.value for kind in _RECORDS)
        raise DatasetError(
            f"media metadata of kind {str(metadata_type)!r} with {metadata_json[:80]!r} cannot be read: {error}. Known "
            f"kinds are {known}; make them again with `omniloom prepare-media`"
        ) from error
