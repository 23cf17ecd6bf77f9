"""Captioned photos as people have them become training data: a file of captions, a folder of photos.

The captions are a CSV with the columns ``image`` and ``caption``, as Flickr8k's, several lines a photo. Photos are
dealt by one fixed draw: 200 for the test, 100 for trying settings, the others for training. Where the test is scored,
the 100 are trained on as well, with the settings that were found by them; nothing of the test ever is.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from PIL import Image

PROMPT = "Give a brief description of this image in one sentence."
Part = Literal["test", "validation"]
TEST_PHOTOS, VALIDATION_PHOTOS = 200, 100
LONGEST_SIDE = 320  # pixels; the tower sees 224
CONSTANTS = ("a dog is running through the grass", "a man in a red shirt is standing in front of a building")


class Photos:
    """The photos of a folder and their captions, dealt into parts.

    Args:
        folder: with the photos.
        captions: the CSV file.
    """

    def __init__(self, folder: Path, captions: Path) -> None:
        self.folder = folder
        self.captions: dict[str, list[str]] = defaultdict(list)
        with captions.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                self.captions[row["image"].strip()].append(row["caption"].strip())
        names = sorted(self.captions)
        random.Random(0).shuffle(names)
        self.test = names[:TEST_PHOTOS]
        self.validation = names[TEST_PHOTOS : TEST_PHOTOS + VALIDATION_PHOTOS]
        self._others = names[TEST_PHOTOS + VALIDATION_PHOTOS :]
        if not self._others:
            raise SystemExit(f"{captions}: captions of {len(names)} photos; more than 300 are needed")

    def scored(self, part: Part) -> list[str]:
        """The photos that a part is scored by."""
        return self.test if part == "test" else self.validation

    def learned(self, part: Part) -> list[str]:
        """The photos that are trained on where a part is scored by others."""
        return [*self.validation, *self._others] if part == "test" else self._others

    def texts(self, names: Iterable[str]) -> list[str]:
        """All captions of some photos."""
        return [plain(caption) for name in names for caption in self.captions[name]]


def plain(caption: str) -> str:
    """A caption in lower case, without marks: what CIDEr compares."""
    return " ".join(re.findall(r"[a-z0-9]+(?:'[a-z]+)?", caption.lower()))


def vocabulary(texts: Iterable[str]) -> list[str]:
    """The words of captions and of the prompt: all of them, for a model that knows an unknown word says it, too."""
    return sorted({piece for text in (*texts, PROMPT.lower()) for piece in _pieces(text)})


def write_photos(folder: Path, photos: Photos, learned: Iterable[str]) -> None:
    """``train.json`` and ``images/``: each photo, smaller, with all captions."""
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    entries = []
    for name in learned:
        with Image.open(photos.folder / name) as opened:
            image = opened.convert("RGB")
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        file = f"{Path(name).stem}.jpg"
        image.save(images / file, quality=90)
        talk = [turn for caption in photos.captions[name] for turn in _talk(plain(caption))]
        talk[0]["value"] = f"<image>\n{talk[0]['value']}"
        entries.append({"id": Path(file).stem, "image": file, "conversations": talk})
    (folder / "train.json").write_text(json.dumps(entries))


def write_truth(folder: Path, photos: Photos, part: Sequence[str]) -> None:
    """``truth.json`` of a part, and what the human control needs: the first caption against the others."""
    rows = [{"image": name, "caption": photos.captions[name]} for name in part]
    (folder / "truth.json").write_text(json.dumps(rows))
    (folder / "others.json").write_text(json.dumps([row | {"caption": row["caption"][1:]} for row in rows]))
    write_answers(folder / "human.jsonl", part, [photos.captions[name][0] for name in part])
    for number, constant in enumerate(CONSTANTS, 1):
        write_answers(folder / f"constant-{number}.jsonl", part, [constant] * len(part))


def write_shifted(answers: Path, shifted: Path, part: Sequence[str]) -> None:
    """The answers, each given to the next photo."""
    said = {row["sample_id"]: row["caption"] for row in map(json.loads, answers.read_text().splitlines())}
    by_photo = [said[name] for name in part]
    write_answers(shifted, part, by_photo[-1:] + by_photo[:-1])


def write_answers(path: Path, part: Sequence[str], captions: Sequence[str]) -> None:
    """Captions of photos, as `omniloom evaluate` reads them."""
    rows = ({"sample_id": name, "caption": text} for name, text in zip(part, captions, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _talk(caption: str) -> Iterator[dict[str, str]]:
    yield {"from": "human", "value": PROMPT}
    yield {"from": "gpt", "value": caption}


def _pieces(text: str) -> list[str]:
    """As the tokenizer cuts: words, and marks by themselves."""
    return re.findall(r"\w+|[^\w\s]+", text)
