"""Some of the items, chosen so that wrong and right ones are seen, with small copies of their images."""

from __future__ import annotations

import base64
import io
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, ImageOps

from omniloom.errors import OmniloomError
from omniloom.evaluate.task import IMAGE_SUFFIXES
from omniloom.report.records import ItemRecord
from omniloom.storage.inside import InsideFolder

Verdict = Literal["right", "partly right", "wrong", "scored"]

THUMBNAIL_PIXELS = 240
_QUALITY = 80
_LARGEST_PIXELS = 100_000_000
_IMAGES_SHOWN = 4
_ANSWERS_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Card:
    """An item as it is shown.

    Attributes:
        item: what was asked and answered.
        verdict: ``scored`` where the metric has no right and wrong, as CIDEr.
        pictures: ``data:`` addresses of JPEG copies, at most four.
        faults: why images are not shown.
    """

    item: ItemRecord
    verdict: Verdict
    pictures: Sequence[str]
    faults: Sequence[str]


def verdicts(items: Sequence[ItemRecord]) -> list[Verdict]:
    """The verdict of each item: 1 is right, 0 wrong. Where an item may be worth more, there is no such thing."""
    if any(max(item.score, item.most) > 1 or item.score < 0 for item in items):
        return ["scored"] * len(items)
    return ["right" if item.score == 1 else "wrong" if item.score == 0 else "partly right" for item in items]


def chosen(items: Sequence[ItemRecord], *, most: int) -> list[int]:
    """Numbers of the shown items: wrong, partly right and right ones in equal parts, each spread over the file.

    The choice depends on nothing but the file, so that nobody can have picked the best ones.
    """
    kinds: dict[Verdict, list[int]] = {}
    for index, verdict in enumerate(verdicts(items)):
        kinds.setdefault(verdict, []).append(index)
    picked: list[int] = []
    left = most
    by_size = sorted(kinds.values(), key=len)
    for position, indices in enumerate(by_size):  # the rarest first: what it leaves over goes to the others
        count = min(len(indices), -(-left // (len(by_size) - position)))
        picked += [indices[n * len(indices) // count] for n in range(count)]
        left -= count
    return sorted(picked)


def cards(items: Sequence[ItemRecord], *, images: Path | None, most: int) -> list[Card]:
    """The chosen items with their images.

    Args:
        items: all of a file.
        images: folder of the images; ``None``: none are shown.
        most: items that are shown.
    """
    told = verdicts(items)
    made = []
    for index in chosen(items, most=most):
        item = items[index]
        pictures: list[str] = []
        faults: list[str] = []
        for name in (item.images or (item.id,))[:_IMAGES_SHOWN] if images is not None else ():
            try:
                pictures.append(_thumbnail(_find(InsideFolder(str(images)), name)))
            except (OmniloomError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                faults.append(f"{name}: {error}")
        made.append(Card(item=item, verdict=told[index], pictures=pictures, faults=faults))
    return made


def usual_answers(items: Sequence[ItemRecord]) -> list[tuple[str, int, float, int]]:
    """The answers that are given most: the answer, how often, its mean score, and how often it would be the truth."""
    said = Counter(item.text.strip() for item in items)
    true = Counter(answer.strip().lower() for item in items for answer in set(item.answers))
    worth = dict.fromkeys(said, 0.0)
    for item in items:
        worth[item.text.strip()] += item.score
    return [(text, count, worth[text] / count, true[text.lower()]) for text, count in said.most_common(_ANSWERS_SHOWN)]


def _find(folder: InsideFolder, name: str) -> Path:
    """An image by its name, or the name with a usual suffix, as `omniloom generate` finds it."""
    for suffix in ("", *IMAGE_SUFFIXES):
        path = Path(folder.locate(f"{name}{suffix}"))
        if path.is_file():
            return path
    raise FileNotFoundError(f"no such image in {folder.root}")


def _thumbnail(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of metadata that is odd; the picture is shown all the same
        with Image.open(path) as opened:
            if opened.width * opened.height > _LARGEST_PIXELS:
                raise ValueError(f"{opened.width} x {opened.height} pixels are too many for a small copy")
            opened.draft("RGB", (2 * THUMBNAIL_PIXELS, 2 * THUMBNAIL_PIXELS))
            picture = ImageOps.exif_transpose(opened).convert("RGB")
    picture.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
