"""A conversation as structured parts: texts, and places of images. A place is a value, never a substring.

Data sets write places as text (``<image>``, ``<image-2>``, ``<video>``) or as parts of a message
(``{"type": "image"}``). They are told apart from ordinary text exactly once, here, and only where a place can stand: in
turns of the user and of the system. An ``<image>`` in an answer is a text that the model is to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from omniloom.errors import SampleError

Role = Literal["system", "user", "assistant"]
ROLES: dict[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
}
"""What data sets call the one who speaks."""

_PLACE = re.compile(r"<image>|<image-(\d+)>|<video>")
_MEDIA_TYPES = frozenset(("image", "image_url", "video", "video_url"))


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Where an image (or a video) stands in a text.

    Attributes:
        index: which of the sample's images, from 0.
    """

    index: int


@dataclass(frozen=True, slots=True)
class TokenPart:
    """A token by name, such as ``<box>``: the tokenizer's special token where it has one, else this text.

    Attributes:
        name: the token.
    """

    name: str


Part = str | ImagePart | TokenPart


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker says.

    Attributes:
        role: who speaks.
        parts: texts and places of images, in reading order.
        learned: whether an answer is learned; of others nothing ever is.
    """

    role: Role
    parts: tuple[Part, ...]
    learned: bool = True

    @property
    def text(self) -> str:
        """The texts without the images."""
        return "".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderPolicy:
    """What becomes of a sample whose placeholders and images do not match.

    Attributes:
        unplaced: images without placeholder: ``prepend`` puts them before the first user turn if there is no
            placeholder at all, ``prepend-missing`` also if there are some, ``reject`` refuses the sample.
        surplus: several placeholders for one image: ``repeat`` shows it at each, ``reject`` refuses the sample.
        imageless: placeholders without any image: ``delete`` leaves them out, ``reject`` refuses the sample.
    """

    unplaced: Literal["prepend", "prepend-missing", "reject"] = "prepend"
    surplus: Literal["repeat", "reject"] = "reject"
    imageless: Literal["delete", "reject"] = "reject"


MEGATRON_PLACEHOLDERS = PlaceholderPolicy(unplaced="prepend-missing", surplus="repeat", imageless="delete")
"""The rules of Megatron-LM's multimodal example."""


def read_conversation(
    turns: Iterable[Mapping[str, Any]], *, images: int, policy: PlaceholderPolicy | None = None
) -> tuple[Turn, ...]:
    """The conversation that a data set's turns stand for.

    Args:
        turns: mappings with ``from`` or ``role``, and ``value`` or ``content``: a text, or a list of parts as OpenAI's
            messages have them, where ``index`` of an image says which of them it is, from 0. An answer with
            ``weight: 0`` is read only.
        images: how many images the sample has.
        policy: what becomes of mismatches; ``None``: the default `PlaceholderPolicy`.

    Returns:
        Turns whose image parts name every image at least once, and none that is not there.

    Raises:
        SampleError: ``bad-role``, ``bad-content``, ``no-turns``, or ``placeholder-count``.
    """
    read = tuple(_read_turn(turn, number) for number, turn in enumerate(turns))
    if not read:
        raise SampleError("the conversation has no turns", reason="no-turns")
    return place_images(read, images=images, policy=policy)


def write_conversation(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The turns as JSON holds them: contents as parts, so that `read_conversation` gives the same turns again.

    Images are meant in the order of their places; see `ImagePart.index` for which those are.
    """
    return [
        {
            "role": turn.role,
            "content": [_written(part) for part in turn.parts],
            **({} if turn.learned else {"weight": 0}),
        }
        for turn in turns
    ]


def split_places(text: str) -> tuple[Part, ...]:
    """Text and places. The place of ``<image-3>`` has the index 2, one without a number -1: the next in order."""
    parts: list[Part] = []
    end = 0
    for match in _PLACE.finditer(text):
        parts += [text[end : match.start()], ImagePart(int(match[1]) - 1 if match[1] else -1)]
        end = match.end()
    return tuple(part for part in [*parts, text[end:]] if part != "")


def place_images(turns: Sequence[Turn], *, images: int, policy: PlaceholderPolicy | None = None) -> tuple[Turn, ...]:
    """The turns with every place naming its image, after the policy.

    Args:
        turns: places have the index of an image, or -1 for the next in order.
        images: how many there are.
        policy: what becomes of mismatches.

    Raises:
        SampleError: ``placeholder-count``.
    """
    policy = policy or PlaceholderPolicy()
    places = [part.index for turn in turns for part in turn.parts if isinstance(part, ImagePart)]
    if places and not images:
        if policy.imageless == "reject":
            raise _mismatch(len(places), images)
        return tuple(replace(t, parts=tuple(p for p in t.parts if not isinstance(p, ImagePart))) for t in turns)
    if any(index >= images for index in places):
        raise SampleError(
            f"a placeholder names image {max(places) + 1}, and there are {images}", reason="placeholder-count"
        )
    numbered = [index for index in places if index >= 0]
    if numbered and len(numbered) == len(places):
        missing = [index for index in range(images) if index not in numbered]
        return _numbered(turns, missing, policy, len(places), images)
    if numbered:
        raise SampleError("placeholders with and without numbers are mixed", reason="placeholder-count")
    if len(places) > images:
        if images != 1 or policy.surplus == "reject":
            raise _mismatch(len(places), images)
        return _filled(turns, [0] * len(places))
    missing = list(range(images - len(places)))
    if missing:
        turns = _prepended(turns, len(missing), policy, len(places), images)
    return _filled(turns, list(range(images)))


def _numbered(
    turns: Sequence[Turn], missing: list[int], policy: PlaceholderPolicy, places: int, images: int
) -> tuple[Turn, ...]:
    if not missing:
        return tuple(turns)
    if policy.unplaced != "prepend-missing":
        raise _mismatch(places, images)
    first = next((n for n, turn in enumerate(turns) if turn.role == "user"), 0)
    ahead: tuple[Part, ...] = (*(ImagePart(index) for index in missing), "\n")
    return tuple(replace(t, parts=(*ahead, *t.parts)) if n == first else t for n, t in enumerate(turns))


def _prepended(
    turns: Sequence[Turn], count: int, policy: PlaceholderPolicy, places: int, images: int
) -> tuple[Turn, ...]:
    if policy.unplaced == "reject" or (policy.unplaced == "prepend" and places):
        raise _mismatch(places, images)
    first = next((n for n, turn in enumerate(turns) if turn.role == "user"), None)
    if first is None:
        raise SampleError(f"{images} images and no user turn to put them before", reason="placeholder-count")
    ahead: tuple[Part, ...] = (*(ImagePart(-1) for _ in range(count)), "\n")
    return tuple(replace(t, parts=(*ahead, *t.parts)) if n == first else t for n, t in enumerate(turns))


def _filled(turns: Sequence[Turn], indexes: list[int]) -> tuple[Turn, ...]:
    order = iter(indexes)
    return tuple(
        replace(turn, parts=tuple(ImagePart(next(order)) if isinstance(p, ImagePart) else p for p in turn.parts))
        for turn in turns
    )


def _mismatch(places: int, images: int) -> SampleError:
    return SampleError(
        f"{places} placeholder{'s' * (places != 1)} for {images} image{'s' * (images != 1)}. Mend the sample, or "
        "choose another policy (`data.placeholders`, PlaceholderPolicy).",
        reason="placeholder-count",
    )


def _read_turn(turn: Mapping[str, Any], number: int) -> Turn:
    said = turn.get("from", turn.get("role"))
    role = ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise SampleError(f"turn {number} is spoken by {said!r}; one of {', '.join(ROLES)} expected", reason="bad-role")
    content = turn.get("value", turn.get("content"))
    learned = turn.get("weight") != 0
    if isinstance(content, str):
        parts = (content,) if role == "assistant" and content else split_places(content) if content else ()
        return Turn(role, parts, learned)
    if isinstance(content, list):
        return Turn(role, tuple(_read_part(part, number, role) for part in content), learned)
    raise SampleError(f"turn {number} has no text: {type(content).__name__} found", reason="bad-content")


def _written(part: Part) -> dict[str, str]:
    if isinstance(part, ImagePart):
        return {"type": "image"}
    return {"type": "token", "text": part.name} if isinstance(part, TokenPart) else {"type": "text", "text": part}


def _read_part(part: Any, number: int, role: Role) -> Part:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind == "token" and isinstance(part.get("text"), str):
        return TokenPart(str(part["text"]))
    if kind in _MEDIA_TYPES and role != "assistant":
        index = part.get("index")
        return ImagePart(index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else -1)
    raise SampleError(
        f"turn {number} has a part of type {kind!r} from the {role}; text, or image of others, expected",
        reason="bad-content",
    )
