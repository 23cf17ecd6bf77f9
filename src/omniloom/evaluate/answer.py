"""What a model said to one item."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ID_COLUMNS = (
    "sample_id", "question_id", "questionId", "image_id", "pid", "uid", "id", "index", "doc_id", "data_id", "video_id",
)  # fmt: skip
"""Under which an item's id stands, in files of answers and of questions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to one item.

    Attributes:
        id: of the item; empty where the file has none.
        text: what was said.
        options: options that the file brings, by letter.
        answers: right answers that the file brings.
        position: of the item in its data set, where a file says that instead of an id.
        target: what the file says is right.
        asked: the question or the prompt, where the file has it.
        shown: the name of the image, where the file has it.
        kind: the part of the benchmark, where the file says it.
    """

    id: str
    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    answers: tuple[str, ...] = ()
    position: int | None = None
    target: str = ""
    asked: str = ""
    shown: str = ""
    kind: str = ""


_IN_OBJECTS = ("answer", "text", "content", "response")
_NO_ANSWERS = ("Failed to obtain answer", "Failed to obtain answer.", "Failed to obtain answer via API.")
"""What VLMEvalKit writes where a model gave none."""


def innermost(value: Any) -> str:
    """The first text in a list of lists of them, as logs keep what was said once; empty where nothing was said.

    Of an object, the text under a usual name; another one, such as an error of a service, says nothing.
    """
    while isinstance(value, list | Mapping):
        if isinstance(value, Mapping):
            value = [value[name] for name in _IN_OBJECTS if value.get(name) is not None]
        value = value[0] if value else ""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(value)
    return "" if text.strip() in _NO_ANSWERS else text


def id_text(value: Any) -> str:
    """An id as a text; whole numbers that a table holds with a point are the same ids."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
