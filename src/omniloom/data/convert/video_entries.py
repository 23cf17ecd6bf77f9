"""Entries of video question answering: LLaVA-Video's, ShareGPT4Video's and Video-ChatGPT's JSON.

=========================== =====================================================================
video, video_id, video_name name of the video, relative to the folder; ``.mp4`` where it has none
conversations, messages     turns, in which ``<video>`` or ``<image>`` is where it stands
q and a, question and       one question and its answer
answer
id                          the key; without it, the video's name
=========================== =====================================================================
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from omniloom.data.convert.entry_source import Description, JsonEntries
from omniloom.data.convert.llava_entry import CONVERSATION_FIELDS, LlavaEntry, read_llava_entry
from omniloom.data.index.sample_types import CRUDE_TYPE
from omniloom.errors import SampleError

_VIDEOS = ("video", "video_id", "video_name", "videos")
_PAIRS = (("q", "a"), ("question", "answer"))


class VideoEntries(JsonEntries):
    """The entries of a JSON list or a JSONL file about videos."""

    description: Description | None = Description(CRUDE_TYPE, {})

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What an entry says. Raises SampleError as `read_llava_entry` does."""
        return video_entry(value, position=position)


def video_entry(value: Any, *, position: int) -> LlavaEntry:
    """The entry of one JSON value. Raises SampleError, see `read_llava_entry`."""
    if not isinstance(value, dict):
        raise SampleError("expected an object", reason="not-an-object")
    field = next((name for name in _VIDEOS if value.get(name)), None)
    found = value[field] if field else None
    name = found[0] if isinstance(found, list) and len(found) == 1 else found
    if not isinstance(name, str):
        raise SampleError(f"expected the name of one video as {field or 'video'}", reason="bad-image-field")
    if not PurePosixPath(name).suffix:
        name = f"{name}.mp4"
    rest = {key: one for key, one in value.items() if key != field}
    pair = next((p for p in _PAIRS if p[0] in value and p[1] in value), None)
    if pair is not None and not any(field in value for field in CONVERSATION_FIELDS):
        asked = [{"type": "video"}, {"type": "text", "text": str(rest.pop(pair[0]))}]
        turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": str(rest.pop(pair[1]))}]
        rest["conversations"] = turns
    entry = read_llava_entry({"id": PurePosixPath(name).stem, **rest}, position=position)
    notices = tuple(notice for notice in entry.notices if notice[0] != "placeholder-count")
    return entry._replace(images=(name,), notices=notices)
