"""Captioned photos as people have them become training data: a file of captions, a folder of photos.

The captions are a CSV with the columns ``image`` and ``caption``, as Flickr8k's, several lines a photo. Photos are
dealt by one fixed draw: 200 for the test, 100 for trying settings, the others for training. Where the test is scored,
the 100 are trained on as well, with the settings that were found by them; nothing of the test ever is.

Captions of photos that one does not have (*texts*) may come with them, in the same form or in Flickr8k's own: a line
is ``NAME.jpg#0``, a tab, the caption. Those of photos that one has are left out, and so is each that reads as one of a
photo that is scored.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

PROMPT = "Give a brief description of this image in one sentence."
Part = Literal["test", "validation"]
TEST_PHOTOS, VALIDATION_PHOTOS = 200, 100
RARE = 2  # words that come less often are unknown, where there are texts
CONSTANTS = ("a dog is running through the grass", "a man in a red shirt is standing in front of a building")


class Photos:
    """The photos of a folder and their captions, dealt into parts.

    Args:
        folder: with the photos.
        captions: the CSV file.
    """

    def __init__(self, folder: Path, captions: Path) -> None:
        self.folder = folder
        self.captions = read_captions(captions)
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

    def texts(self, names: Iterable[str]) -> list[list[str]]:
        """The captions of some photos, in plain words."""
        return [[plain(caption) for caption in self.captions[name]] for name in names]

    def texts_of_others(self, path: Path, part: Part) -> list[list[str]]:
        """Captions of photos that are not here, in plain words; none that reads as one of a photo that is scored."""
        apart = {plain(text) for name in (*self.test, *self.scored(part)) for text in self.captions[name]}
        others = (texts for name, texts in read_captions(path).items() if name not in self.captions)
        kept = ([text for text in map(plain, texts) if text and text not in apart] for texts in others)
        return [texts for texts in kept if texts]


def read_captions(path: Path) -> dict[str, list[str]]:
    """The captions of each photo: of a CSV with ``image`` and ``caption``, or of lines ``NAME#0``, tab, caption."""
    captions: dict[str, list[str]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        if "\t" in file.readline():
            file.seek(0)
            for line in file:
                name, _, caption = line.rstrip("\n").partition("\t")
                captions[name.partition("#")[0]].append(caption.strip())
        else:
            file.seek(0)
            for row in csv.DictReader(file):
                captions[row["image"].strip()].append(row["caption"].strip())
    return captions


def plain(caption: str) -> str:
    """A caption in lower case, without marks: what CIDEr compares."""
    return " ".join(re.findall(r"[a-z0-9]+(?:'[a-z]+)?", caption.lower()))


def vocabulary(captions: Iterable[Sequence[str]], *, least: int) -> set[str]:
    """The words that come so often at least, and those of the prompt."""
    counts = Counter(word for texts in captions for text in texts for word in _pieces(text))
    return {word for word, count in counts.items() if count >= least} | set(_pieces(PROMPT.lower()))


def write_features(
    folder: Path, features: Tensor, captions: Sequence[Sequence[str]], *, known: set[str], name: str
) -> None:
    """``NAME.json`` and a folder of features: each row with all captions of its photo, of which every word is known.

    Args:
        folder: where to.
        features: (photos, rows, features), each row one token of a photo.
        captions: of each photo.
        known: words.
        name: of what is written.
    """
    (folder / name).mkdir(parents=True)
    entries, left_out = [], 0
    for photo, (rows, texts) in enumerate(zip(features.half().numpy(), captions, strict=True)):
        said = [text for text in texts if known.issuperset(_pieces(text))]
        left_out += len(texts) - len(said)
        if not said:
            continue
        talk = [turn for text in said for turn in _talk(text)]
        talk[0]["value"] = f"<image>\n{talk[0]['value']}"
        for number, row in enumerate(rows):
            file = f"{photo:05}-{number}.npy"
            np.save(folder / name / file, row[None])
            entries.append({"id": f"{photo:05}-{number}", "image": file, "conversations": talk})
    random.Random(0).shuffle(entries)
    (folder / f"{name}.json").write_text(json.dumps(entries))
    print(f"{name}: {left_out} of {sum(map(len, captions))} captions are left out, which have a word that is too rare")


def write_lines(path: Path, captions: Sequence[Sequence[str]]) -> None:
    """All captions, one a line."""
    path.write_text("".join(f"{text}\n" for texts in captions for text in texts))


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
