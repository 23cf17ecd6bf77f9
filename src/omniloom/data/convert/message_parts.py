"""Messages whose content is a list of parts, as OpenAI's chat format and its relatives have them.

The list is kept, in one shape, so that a place of an image stays a part and is never confused with a text.

=================================================== ==========================
a part comes as                                     becomes
=================================================== ==========================
a text, ``{"type": "text", "text": ...}``           ``{"type": "text", ...}``
``{"type": "image"}``, with or without a name       ``{"type": "image"}``, with its ``index`` where it has one
``{"type": "image_url", "image_url": {"url": ...}}`` ``{"type": "image"}``
``{"type": "video", ...}``                          ``{"type": "video"}``
=================================================== ==========================
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from omniloom.errors import SampleError

DATA_URL = "data:"
_NAME_FIELDS = ("image", "image_url", "video", "video_url", "url", "path")


def read_parts(content: list[Any], turn: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The parts in their one shape, and the names of images that they carry.

    Args:
        content: the parts.
        turn: number of the message, for messages of errors.

    Raises:
        SampleError: ``bad-conversations``: a part of no known shape.
    """
    parts: list[dict[str, Any]] = []
    names: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url", "video", "video_url"):
            index = part.get("index")
            numbered = {"index": index} if isinstance(index, int) and not isinstance(index, bool) else {}
            parts.append({"type": kind.removesuffix("_url"), **numbered})
            name = _name(part)
            if name is not None:
                names.append(name)
        else:
            raise SampleError(
                f"turn {turn}: a part of type {kind!r}; text or image expected", reason="bad-conversations"
            )
    return parts, names


def decode_data_url(url: str) -> bytes:
    """The bytes of a ``data:`` URL. Raises SampleError ``unreadable-image`` where they are not base64."""
    header, comma, data = url.partition(",")
    try:
        if not comma or not header.endswith(";base64"):
            raise ValueError("no ;base64, in it")
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error) as error:
        raise SampleError(f"a data URL that cannot be decoded: {error}", reason="unreadable-image") from error


def _name(part: dict[str, Any]) -> str | None:
    for field in _NAME_FIELDS:
        found = part.get(field)
        if isinstance(found, dict):
            found = found.get("url")
        if isinstance(found, str) and found:
            return found.removeprefix("file://")
    return None
