"""easy-VQA as people have their data: captions and conversations in LLaVA's JSON, a folder of images, test questions.

The package's files are used, never its code: 5,000 pictures of 64 x 64 pixels with one shape each, and 48,248 questions
with one of thirteen answers (MIT, Victor Zhou). Nothing of the test part gets into training.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps

COLOURS = ("black", "blue", "brown", "gray", "green", "red", "teal", "yellow")
SHAPES = ("circle", "rectangle", "triangle")
FIRST_QUESTION = "<image>\n"


class Question(NamedTuple):
    """One question: its text, its answer, the number of its image."""

    text: str
    answer: str
    image: int


class MissingPackageError(Exception):
    """The package with the pictures is not installed."""


def package_folder(module: str, package: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError(f"{package} is not installed; run `pip install 'omniloom[demo]'` or `make demo`.")
    return Path(spec.submodule_search_locations[0])


def questions_of(part: str) -> list[Question]:
    """The questions of ``train`` or ``test``."""
    path = package_folder("easy_vqa", "easy-vqa") / "data" / part / "questions.json"
    return [Question(*row) for row in json.loads(path.read_bytes())]


def write_training_data(folder: Path, *, images: int, held_out: int = 0) -> None:
    """Write ``images/``, ``pretrain.json`` (captions) and ``sft.json`` (conversations) below a folder.

    Each picture comes twice, the second time mirrored: no answer speaks of left or right.

    Args:
        folder: where to.
        images: so many of the 4,000 of the training part.
        held_out: leave out the last so many of these, for trying settings; their questions become ``test.json``, as
            `write_test_data` writes it.
    """
    asked = _by_image(questions_of("train"))
    chosen = sorted(asked)[:images]
    train, kept = chosen[: images - held_out], chosen[images - held_out :]
    (folder / "images").mkdir(parents=True, exist_ok=True)
    captions, talks = [], []
    for number in train:
        for name in _with_mirror(folder / "images", number):
            entry = {"id": name.removesuffix(".png"), "image": name}
            caption = caption_of(asked[number])
            if caption is not None:
                talk = [{"from": "human", "value": "<image>\nDescribe it."}, {"from": "gpt", "value": caption}]
                captions.append(entry | {"conversations": talk})
            talks.append(entry | {"conversations": list(_talk(asked[number]))})
    _write(folder / "pretrain.json", captions)
    _write(folder / "sft.json", talks)
    if held_out:
        _write_test(folder, [question for number in kept for question in asked[number]], part="train")


def write_test_data(folder: Path, *, questions: int | None = None) -> None:
    """Write ``test.json`` and ``swapped.json`` in easy-VQA's own form, and ``test_images/``.

    In ``swapped.json`` each question is asked about another image of the file: what is right then is right by chance.
    """
    _write_test(folder, questions_of("test")[:questions], part="test")


def write_blind_answers(folder: Path) -> None:
    """Answers that look at no image, for ``test.json``: the most frequent of all, and of the same question."""
    train = questions_of("train")
    most = Counter(each.answer for each in train).most_common(1)[0][0]
    by_text: dict[str, Counter[str]] = defaultdict(Counter)
    for each in train:
        by_text[each.text][each.answer] += 1
    test = [Question(*row) for row in json.loads((folder / "test.json").read_text())]
    blind = [by_text[each.text].most_common(1)[0][0] if each.text in by_text else most for each in test]
    for name, answers in (("majority", [most] * len(test)), ("question_only", blind)):
        rows = (json.dumps({"sample_id": str(number), "answer": answer}) for number, answer in enumerate(answers))
        (folder / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))


def caption_of(asked: Sequence[Question]) -> str | None:
    """What the answers about an image tell together, such as ``a yellow circle``; ``None`` where they do not."""
    known: set[str] = set()
    excluded: set[str] = set()
    for text, answer, _ in asked:
        words = set(text.rstrip("?").split())
        named = words & {*COLOURS, *SHAPES}
        if answer not in ("yes", "no"):
            known |= named | {answer}
        elif (answer == "yes") != bool(words & {"not", "no"}):
            known |= named
        else:
            excluded |= named
    parts = [_only(kinds, known, excluded) for kinds in (COLOURS, SHAPES)]
    return None if None in parts else f"a {parts[0]} {parts[1]}"


def _only(kinds: Sequence[str], known: set[str], excluded: set[str]) -> str | None:
    left = known.intersection(kinds) or set(kinds) - excluded
    return left.pop() if len(left) == 1 else None


def _by_image(questions: Sequence[Question]) -> dict[int, list[Question]]:
    found: dict[int, list[Question]] = defaultdict(list)
    for question in questions:
        found[question.image].append(question)
    return found


def _talk(asked: Sequence[Question]) -> Iterator[dict[str, str]]:
    for number, question in enumerate(asked):
        yield {"from": "human", "value": f"{'' if number else FIRST_QUESTION}{question.text}"}
        yield {"from": "gpt", "value": question.answer}


def _with_mirror(folder: Path, number: int) -> tuple[str, str]:
    """Write an image of the training part and its mirror image; their names."""
    source = package_folder("easy_vqa", "easy-vqa") / f"data/train/images/{number}.png"
    names = f"{number:04}.png", f"{number:04}m.png"
    (folder / names[0]).write_bytes(source.read_bytes())
    with Image.open(source) as image:
        ImageOps.mirror(image).save(folder / names[1])
    return names


def _write_test(folder: Path, questions: Sequence[Question], *, part: str) -> None:
    images = folder / "test_images"
    images.mkdir(parents=True, exist_ok=True)
    source = package_folder("easy_vqa", "easy-vqa") / f"data/{part}/images"
    numbers = sorted({question.image for question in questions})
    for number in numbers:
        (images / f"{number}.png").write_bytes((source / f"{number}.png").read_bytes())
    others = numbers.copy()
    random.Random(0).shuffle(others)  # a cycle through all images: none stays in its place
    another = dict(zip(others, others[1:] + others[:1], strict=True))
    _write(folder / "test.json", questions)
    _write(folder / "swapped.json", [question._replace(image=another[question.image]) for question in questions])


def _write(path: Path, rows: Sequence[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
