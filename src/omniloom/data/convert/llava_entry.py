"""One entry of a LLaVA-style JSON, whatever shape it came in, in the one shape that goes into a shard.

============== ================================ ==========================================
field          comes as                         becomes
============== ================================ ==========================================
id             string, integer, absent          string; its position where there is none
image, images  string, list, null, absent       list of names
video, videos  the same, of one video           its name, in place of those of images
conversations, list of {from, value} or         list of {from, value} with the roles
messages       {role, content}                  human and gpt (others are kept); a content
                                                of parts stays one, see `message_parts`
system         string                           the first turn, of the role system
anything else  anything                         kept as it is
============== ================================ ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from omniloom.data.convert.message_parts import read_parts
from omniloom.errors import SampleError

ID_FIELD = "id"
IMAGE_FIELDS = ("image", "images")
VIDEO_FIELDS = ("video", "videos")
SYSTEM_FIELD = "system"
CONVERSATION_FIELDS = ("conversations", "messages")
ROLES = {"human": "human", "user": "human", "gpt": "gpt", "assistant": "gpt"}
PLACEHOLDER, VIDEO_PLACEHOLDER = "<image>", "<video>"


class LlavaEntry(NamedTuple):
    """An entry in its one shape.

    Attributes:
        identifier: the id as text; never empty.
        images: names of its images, in order.
        turns: the conversation; each turn has ``from`` and ``value`` and whatever else it had.
        extra: all other fields.
        shapes: in what shapes it came, such as ``image: list``, for counting.
        notices: (reason, detail) of what is odd but harmless.
        content: what the part ``json`` holds in place of the conversation; ``None``: the conversation.
        pictures: bytes of the images, where the entry itself carries them.
        video: whether the one name is that of a video.
    """

    identifier: str
    images: tuple[str, ...]
    turns: list[dict[str, Any]]
    extra: dict[str, Any]
    shapes: tuple[str, ...]
    notices: tuple[tuple[str, str], ...]
    content: Any = None
    pictures: tuple[bytes, ...] | None = None
    video: bool = False

    @property
    def is_one_question(self) -> bool:
        """One image, one question, one answer, both texts: what the guides' VQASample field map reads without loss."""
        if len(self.images) != 1 or self.video or not all(isinstance(turn["value"], str) for turn in self.turns):
            return False
        return [turn["from"] for turn in self.turns] == ["human", "gpt"]


def read_llava_entry(value: Any, *, position: int) -> LlavaEntry:
    """Bring one JSON value into the shape of `LlavaEntry`.

    Raises:
        SampleError: it is no object, or its id, image or conversation is of no known shape; the message says which.
    """
    if not isinstance(value, dict):
        raise SampleError(f"expected an object, found {_kind(value)}", reason="not-an-object")
    notices: list[tuple[str, str]] = []
    identifier, id_shape = _read_id(value, position, notices)
    image_field, *more = _said(value, (*IMAGE_FIELDS, *VIDEO_FIELDS)) or [_first(value, IMAGE_FIELDS)]
    if more:
        raise SampleError(f"both {image_field} and {more[0]} are given; one expected", reason="bad-image-field")
    is_video = image_field in VIDEO_FIELDS
    images, image_shape = _read_images(value, image_field)
    if is_video and len(images) > 1:
        raise SampleError(f"{len(images)} videos under {image_field}; one expected", reason="bad-image-field")
    turns_field = next(iter(_said(value, CONVERSATION_FIELDS)), _first(value, CONVERSATION_FIELDS))
    turns, named, roles_shape = _read_turns(value, turns_field)
    if named and images:
        raise SampleError(f"images are named under {image_field} and in the messages as well", reason="bad-image-field")
    images = images or tuple(named)
    known = {ID_FIELD, *IMAGE_FIELDS, *(VIDEO_FIELDS if is_video else ()), turns_field}
    if _says_system(value, turns):
        turns, known = [{"from": SYSTEM_FIELD, "value": value[SYSTEM_FIELD]}, *turns], known | {SYSTEM_FIELD}
    empty = [str(number) for number, turn in enumerate(turns) if turn["from"] == "gpt" and not _says(turn["value"])]
    if empty:
        notices.append(("empty-answer", f"turn {', '.join(empty)}: to end at once is what is learned of it"))
    asked = sum(_places(turn["value"], video=is_video) for turn in turns if turn["from"] != "gpt")
    if asked != len(images) and not (asked == 0 and len(images) == 1):  # one unmarked image is put first by encoders
        notices.append(("placeholder-count", f"{asked} {PLACEHOLDER} for {len(images)} images"))
    extra = {name: field for name, field in value.items() if name not in known}
    shapes = (id_shape, image_shape, roles_shape)
    return LlavaEntry(identifier, images, turns, extra, shapes, tuple(notices), video=is_video)


def _said(value: Mapping[str, Any], fields: tuple[str, ...]) -> list[str]:
    """Those of some fields that say something."""
    return [name for name in fields if value.get(name) not in (None, "", [])]


def _first(value: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    """The first of some fields that is there, or else the first."""
    return next((name for name in fields if name in value), fields[0])


def _says_system(value: Mapping[str, Any], turns: list[dict[str, Any]]) -> bool:
    """Whether a text of the system stands beside the turns, and none in them."""
    text = value.get(SYSTEM_FIELD)
    return isinstance(text, str) and bool(text.strip()) and turns[0]["from"] != SYSTEM_FIELD


def _says(said: str | list[dict[str, Any]]) -> bool:
    """Whether there is any text in what a turn says."""
    if isinstance(said, str):
        return bool(said.strip())
    return any(part.get("text", "").strip() for part in said)


def _read_id(value: Mapping[str, Any], position: int, notices: list[tuple[str, str]]) -> tuple[str, str]:
    identifier = value.get(ID_FIELD)
    if identifier is None or identifier == "":
        made = f"entry-{position:09d}"
        notices.append(("missing-id", f"named {made}"))
        return made, "id: none"
    if isinstance(identifier, str):
        return identifier, "id: string"
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        return str(identifier), "id: integer"
    raise SampleError(f"expected a string or an integer as id, found {_kind(identifier)}", reason="bad-id")


def _read_images(value: Mapping[str, Any], field: str) -> tuple[tuple[str, ...], str]:
    found = value.get(field)
    if found is None:
        return (), "image: null" if field in value else "image: absent"
    if isinstance(found, str):
        return ((found,), "image: string") if found else ((), "image: empty")
    if not isinstance(found, list):
        raise SampleError(
            f"expected a name or a list of names as {field}, found {_kind(found)}", reason="bad-image-field"
        )
    for name in found:
        if not isinstance(name, str) or not name:
            raise SampleError(f"expected names in the list {field}, found {_kind(name)}", reason="bad-image-field")
    return tuple(found), "image: list" if found else "image: empty"


def _places(said: str | list[dict[str, Any]], *, video: bool) -> int:
    """Places of images, or of a video, in what a turn says."""
    if isinstance(said, str):
        return said.count(PLACEHOLDER) + (said.count(VIDEO_PLACEHOLDER) if video else 0)
    return sum(part["type"] in ("image", "video") for part in said)


def _read_turns(value: Mapping[str, Any], field: str) -> tuple[list[dict[str, Any]], list[str], str]:
    found = value.get(field)
    if not isinstance(found, list):
        raise SampleError(f"expected a list of turns as {field}, found {_kind(found)}", reason="bad-conversations")
    if not found:
        raise SampleError(f"{field} is an empty list", reason="no-turns")
    turns: list[dict[str, Any]] = []
    named: list[str] = []
    roles = set()
    for number, turn in enumerate(found):
        if not isinstance(turn, dict):
            raise SampleError(f"turn {number}: expected an object, found {_kind(turn)}", reason="bad-conversations")
        role = turn.get("from", turn.get("role"))
        text = turn.get("value", turn.get("content"))
        if isinstance(text, list):
            text, names = read_parts(text, number)
            named += names
        if not isinstance(role, str) or not isinstance(text, str | list):
            missing = "from or role" if not isinstance(role, str) else "value or content"
            raise SampleError(f"turn {number}: no text under {missing}", reason="bad-conversations")
        roles.add(role)
        rest = {name: field for name, field in turn.items() if name not in ("from", "role", "value", "content")}
        turns.append({"from": ROLES.get(role, role), "value": text, **rest})
    if roles <= {"human", "gpt"}:
        return turns, named, "roles: human/gpt"
    return turns, named, "roles: user/assistant" if roles <= {"user", "assistant"} else "roles: other"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)
