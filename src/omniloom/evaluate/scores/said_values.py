"""Values in answers: dictionaries, boxes and lists of words with boxes, as OCRBench v2 reads them (Fu et al. 2024).

Answers are read as literals, never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_FENCED = re.compile(r"```(?:python|json)?\n(.*?)\n```", re.DOTALL | re.IGNORECASE)
_KEY = re.compile(r"""["']?[\w\s]+""")
_PAIR = re.compile(r"""["']?([\w\s]++)["']?\s*[:=]\s*["']?([^\n,"'{}]+)["']?""")
_BOX = re.compile(r"[(\[]\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*[)\]]")
_BRACKETED = re.compile(r"[\[(]\s*([^\[\]()]*?)\s*[\])]")
_LARGEST_COORDINATE = 1000
_WORD_PARTS = 5

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


def literal(text: str) -> Any:
    """A literal of Python; ``None`` for what is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def flat_dictionary(text: str) -> dict[str, str]:
    """A dictionary of texts: JSON, a literal, or pairs of ``key: value`` found in the text; empty where none is."""
    fenced = _FENCED.search(text)
    content = fenced[1] if fenced else text.strip()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = literal(content)
        if found is None:
            found = {key.strip(): value.strip() for key, value in _pairs(content)}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        return {}
    return {key.strip(): str(value).strip() for key, value in found.items()}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """All matches of `_PAIR`. Where what may be a key is none, no part of it is: it is passed over whole."""
    place = 0
    while key := _KEY.search(text, place):
        pair = _PAIR.match(text, key.start())
        if pair:
            yield pair[1], pair[2]
        place = (pair or key).end()


def nested_dictionary(text: str) -> dict[Any, Any]:
    """The dictionary of the longest fenced part, or of the text, up to its last brace; empty where there is none."""
    content = max(_FENCED.findall(text), key=len, default=text).strip()
    content = re.sub(r"^\s*\w+\s*=\s*", "", content, count=1)
    content = re.sub(r"#.*", "", content)
    end = content.rfind("}")
    found = literal(content[: end + 1] if end >= 0 else content)
    return found if isinstance(found, dict) else {}


def right_values(answer: Any) -> dict[str, list[Any]]:
    """What each key may be, of an answer that is a dictionary or the text of one.

    Raises:
        ValueError: it is none.
    """
    if isinstance(answer, dict):
        return {key: list(values) for key, values in answer.items()}
    text = str(answer).strip('"')
    try:
        found = json.loads(text)
    except ValueError:
        found = literal(text)
        found = literal(found) if isinstance(found, str) else found
    if not isinstance(found, dict):
        raise ValueError(f"{text[:60]!r} is no dictionary")
    return {key: values if isinstance(values, list) else [values] for key, values in found.items()}


def share_of_keys(said: Mapping[str, str], right: Mapping[str, Sequence[Any]]) -> float:
    """Of all keys of both, the share whose value is one of those that are right, without case and spaces."""
    if not all(right.values()):
        return 0.0  # a key that nothing is right for leaves no whole answer to compare with
    keys = [key for key in said.keys() | right.keys() if key in said or None not in right[key]]
    alike = [
        key in said and any(_plain(said[key]) == _plain(value) for value in right.get(key, ()) if value is not None)
        for key in keys
    ]
    return sum(alike) / len(alike) if alike else 0.0


def _plain(value: Any) -> str:
    return str(value).lower().strip().replace("\n", " ").replace(" ", "")


def last_box(text: str) -> Box | None:
    """The last box in a text whose numbers are from 0 to 1000."""
    boxes = [_box(found.groups()) for found in _BOX.finditer(text)]
    return next((box for box in reversed(boxes) if box is not None), None)


def overlap(one: Iterable[Any], other: Iterable[Any]) -> float:
    """Intersection over union of two boxes; 0 where one has no four whole numbers."""
    try:
        left, right = [[int(number) for number in box] for box in (one, other)]
        width = min(left[2], right[2]) - max(left[0], right[0])
        height = min(left[3], right[3]) - max(left[1], right[1])
        areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (left, right)]
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    common = max(0, width) * max(0, height)
    union = sum(areas) - common
    return common / union if union else 0.0


def words_with_boxes(text: str) -> list[tuple[Box, str]]:
    """Words with their boxes, each once: of a literal list, or else of what stands in brackets."""
    found = literal(text)
    if found is None:
        rows: Iterable[Any] = (content.split(",", _WORD_PARTS - 1) for content in _BRACKETED.findall(text))
    else:
        rows = found if isinstance(found, list | tuple) else ()
    words: dict[tuple[Box, str], None] = {}
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) < _WORD_PARTS:
            continue
        box = _box(row[: _WORD_PARTS - 1])
        if box is not None:
            words[box, str(row[_WORD_PARTS - 1]).replace("\n", "").strip().strip('"').strip("'")] = None
    return list(words)


def _box(parts: Iterable[Any]) -> Box | None:
    try:
        left, top, right, bottom = (int(str(part).strip()) for part in parts)
    except ValueError:
        return None
    box = left, top, right, bottom
    return box if all(0 <= number <= _LARGEST_COORDINATE for number in box) else None
