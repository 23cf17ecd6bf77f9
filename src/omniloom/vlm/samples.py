"""Sample types of vision-language training that Energon does not have, and how crude samples become them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from omniloom.data.convert.image_type import FEATURES_PART
from omniloom.data.convert.llava_entry import SYSTEM_FIELD
from omniloom.data.convert.parquet_entries import IMAGE_COLUMNS, row_turns, with_system
from omniloom.data.kinds import CrudeSample, Sample, edataclass
from omniloom.data.media.decoder import IMAGE_EXTENSIONS
from omniloom.errors import SampleError
from omniloom.vlm.tile_features import TileFeatures

if TYPE_CHECKING:
    from omniloom.vlm.grids import Grid

VIDEO_EXTENSIONS = frozenset(("mp4", "mkv", "webm", "mov", "avi", "m4v"))


@edataclass
class ConversationSample(Sample):
    """Turns of a conversation, and what they talk about.

    Attributes:
        turns: mappings with ``from`` and ``value``, or ``role`` and ``content``.
        images: images in order, decoded or not; or `TileFeatures` of them.
        video: a video in place of images.
        grids: (columns, rows) of tiles of each image, chosen beforehand; ``None``: chosen by the image's size.
        complete: whether the turns are all there is; otherwise the encoder's system text is put in front.
    """

    turns: list[dict[str, Any]]
    images: list[Any]
    video: Any = None
    grids: list[Grid | None] | None = None
    complete: bool = False


@edataclass
class OfflineTargetAspectRatioSample(Sample):
    """Images, texts, and the grid of tiles of each image, chosen beforehand: Megatron's type of this name."""

    images: list[Any]
    texts: list[Any]
    target_aspect_ratio: list[Any]


@edataclass
class SampleListSample(Sample):
    """Samples that were packed beforehand."""

    samples: list[Any]


_FEATURES = re.compile(rf"(?:\d+\.)?{re.escape(FEATURES_PART)}")
_IMAGE_NUMBER = re.compile(rf"(\d+)\.(?:[^.]+|{re.escape(FEATURES_PART)})")


def cook_conversation(raw: CrudeSample) -> ConversationSample | SampleListSample:
    """The conversation, or the pack of conversations, of a crude sample as ``omniloom convert`` writes it.

    The part ``json`` holds the turns. Images are the part named for their kind, or ``0.jpg``, ``1.png``, ... in the
    order of their numbers; a video, in place of images, is a part such as ``mp4``. What a vision tower has made of
    images beforehand stands in place of them as ``features.npy``, or ``0.features.npy``, ``1.features.npy``, ...;
    beside images, such a part means nothing.

    Rows of Parquet and Arrow, which have columns in place of parts, are read by the names of these, as
    ``omniloom convert parquet`` does.

    Raises:
        SampleError: ``bad-content``: the part ``json`` holds no turns, or there are images and a video;
            ``bad-features``: an array is none of tiles; ``bad-conversations``, ``no-turns``: nor does any column.
    """
    if "json" not in raw:
        return _cook_row(raw)
    turns = raw["json"]
    if isinstance(turns, dict) and "samples" in turns:
        return _cook_pack(raw, turns["samples"])
    if isinstance(turns, dict) and turns.get("complete"):
        return _cook_complete(raw, turns, key=str(raw["__key__"]), images=_image_parts(raw))
    system = None
    if isinstance(turns, dict):
        system = turns.get(SYSTEM_FIELD)
        turns = next((turns[name] for name in ("conversations", "messages", "texts") if name in turns), None)
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise SampleError("the part 'json' holds no list of turns", reason="bad-content")
    images, videos = _image_parts(raw), [name for name in raw if name.rpartition(".")[2].lower() in VIDEO_EXTENSIONS]
    seen = [] if images or videos else _in_order(name for name in raw if _FEATURES.fullmatch(name))
    if len(videos) > 1 or (videos and images):
        raise SampleError(
            f"the parts {', '.join((*videos, *images))} found; images, or one video, expected", reason="bad-content"
        )
    return ConversationSample(
        **_base(raw),
        turns=with_system(turns, system),
        images=[*(raw.peek(name) for name in images), *(TileFeatures.of(raw.peek(name), name) for name in seen)],
        video=raw.peek(videos[0]) if videos else None,
    )


def _cook_row(raw: CrudeSample) -> ConversationSample:
    column = next((name for name in IMAGE_COLUMNS if name in raw), None)
    found = raw.peek(column) if column else None
    images = [] if found is None else list(found) if isinstance(found, list | tuple) else [found]
    turns = row_turns({name: raw.peek(name) for name in raw if name != column}, images=len(images))
    return ConversationSample(**_base(raw), turns=turns, images=images)


def _cook_pack(raw: CrudeSample, listed: list[dict[str, Any]]) -> SampleListSample:
    parts = _image_parts(raw)
    samples = [_cook_complete(raw, one, key=one["key"], images=[parts[n] for n in one["images"]]) for one in listed]
    return SampleListSample(**_base(raw), samples=samples)


def _cook_complete(raw: CrudeSample, one: dict[str, Any], *, key: str, images: list[str]) -> ConversationSample:
    """A conversation as `omniloom.vlm.offline` writes it."""
    return ConversationSample(
        **{**_base(raw), "__key__": key},
        turns=one["turns"],
        images=[raw.peek(name) for name in images],
        grids=[None if grid is None else (grid[0], grid[1]) for grid in one["grids"]],
        complete=True,
    )


def _base(raw: CrudeSample) -> dict[str, Any]:
    return {name: raw.get(name) for name in ("__key__", "__restore_key__", "__subflavors__", "__sources__")}


def _image_parts(raw: CrudeSample) -> list[str]:
    """Names of the parts that are images, in the order of their numbers."""
    return _in_order(
        name for name in raw if name.rpartition(".")[2].lower() in IMAGE_EXTENSIONS and not name.startswith("__")
    )


def _in_order(names: Iterable[str]) -> list[str]:
    """Names of parts that may begin with a number, in the order of these."""

    def order(name: str) -> tuple[int, str]:
        match = _IMAGE_NUMBER.fullmatch(name)
        return (int(match[1]) if match else -1), name

    return sorted(names, key=order)
