"""AI2D's questions about diagrams; where a question speaks of letters, they are put into the diagram first.

Questions with ``abcLabel`` ask such as "What is A in the diagram?". The published images do not show that A: they
have the words themselves, which tell the answer. ``annotations/`` says which letter stands for the text of which
rectangle, and the questions are meant to be asked with the letters in their places.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from omniloom.data.convert.json_entries import load_json
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.errors import SampleError

_LETTER_SHARE = 0.8  # of the height of its rectangle
_LEAST_PIXELS = 10


def ai2d_items(paths: Sequence[Path]) -> list[Any]:
    """The questions of all files of the folder ``questions``. Raises KeyError where there is none."""
    folder = paths[0] / "questions" if (paths[0] / "questions").is_dir() else paths[0]
    items = [item for file in sorted(folder.glob("*.json")) for item in _questions(load_json(file), folder.parent)]
    if not items:
        raise KeyError("no questions/*.json with questions")
    return items


def ai2d_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    """The entry of a question. Raises SampleError, ``no-letters`` where these cannot be put into its image."""
    choices, correct = [str(text) for text in item["answerTexts"]], item["correctAnswer"]
    if not 0 <= correct < len(choices):
        raise SampleError(f"choice {correct} of {len(choices)} is said to be right", reason="bad-item")
    content = {"question": item["question"], "choices": choices, "correct": correct}
    turns = [{"from": "human", "value": item["question"]}, {"from": "gpt", "value": choices[correct]}]
    lettered = _lettered(Path(item["folder"]), item["image"]) if item.get("abcLabel") else None
    pictures, images = (None, (item["image"],)) if lettered is None else ((lettered,), ("",))
    return LlavaEntry(str(item["questionId"]), images, turns, {}, (), (), content, pictures)


def put_letters(image: Image.Image, texts: Sequence[dict[str, Any]]) -> Image.Image:
    """A copy of a diagram with letters in place of its texts.

    Args:
        image: the diagram.
        texts: each with ``rectangle``, two corners (x, y) in pixels, and ``replacementText``, its letter.
    """
    made = image.convert("RGB")
    draw = ImageDraw.Draw(made)
    for text in texts:
        (left, top), (right, bottom) = text["rectangle"]
        draw.rectangle((left, top, right, bottom), fill="white")
        font = ImageFont.load_default(size=max(_LEAST_PIXELS, _LETTER_SHARE * (bottom - top)))
        middle = (left + right) / 2, (top + bottom) / 2
        draw.text(middle, str(text["replacementText"]), fill="black", font=font, anchor="mm")
    return made


def _questions(content: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    for text, question in content["questions"].items():
        yield {**question, "question": text, "image": content["imageName"], "folder": str(folder)}


def _lettered(folder: Path, name: str) -> bytes:
    annotations = folder / "annotations" / f"{name}.json"
    try:
        texts = json.loads(annotations.read_text(encoding="utf-8"))["text"]
        with Image.open(folder / "images" / name) as image:
            made = put_letters(image, list(texts.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SampleError(
            f"asks of letters that are not in {name}; they are drawn by {annotations} into {folder / 'images' / name}: "
            f"{error!r}",
            reason="no-letters",
        ) from error
    stream = io.BytesIO()
    made.save(stream, "PNG")
    return stream.getvalue()
