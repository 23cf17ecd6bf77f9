"""How well-known data sets become prepared shards: one row each.

A recipe says which items a data set's own files hold and what an entry of them is. Everything else (keys, images,
shards, stops and restarts, the report) is what ``convert llava`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from omniloom.data.convert.ai2d import ai2d_entry, ai2d_items
from omniloom.data.convert.entry_source import Description, existing
from omniloom.data.convert.json_entries import RawEntry, load_json
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.convert.restart import file_digest
from omniloom.errors import DatasetError, SampleError

QUESTION = Description(
    "VQASample",
    {
        "image": "{image}",
        "context": "json[question]",
        "answers": "json[answers]",
        "answer_weights": "json[answer_weights]",
    },
)
CHOICE = Description(
    "MultiChoiceVQASample",
    {
        "image": "{image}",
        "context": "json[question]",
        "choices": "json[choices]",
        "correct_choice_idx": "json[correct]",
    },
)
CAPTIONS = Description("CaptioningSample", {"image": "{image}", "caption": "json[captions]"})

Items = Callable[[Sequence[Path]], list[Any]]
MakeEntry = Callable[[dict[str, Any], int], LlavaEntry]


@dataclass(frozen=True)
class Recipe:
    """One data set's form.

    Attributes:
        name: as the command line calls it.
        summary: what it converts, in a line.
        files: what its files are called in help texts; the first is what is converted.
        items: the items of the files, in order.
        entry: what an item says. Raises SampleError, KeyError or TypeError for one of another form.
        description: what the samples are.
    """

    name: str
    summary: str
    files: tuple[str, ...]
    items: Items
    entry: MakeEntry
    description: Description


class RecipeEntries:
    """The entries of a data set by its recipe; its files are read whole.

    Args:
        recipe: the recipe.
        paths: its files, as many as the recipe names.

    Raises:
        ConfigError: a file is missing.
    """

    def __init__(self, recipe: Recipe, paths: Sequence[Path]) -> None:
        self._recipe = recipe
        self._paths = list(paths)
        self.path = paths[0]
        self.description: Description | None = recipe.description
        self.size_bytes = max(1, sum(_size(path) for path in paths))

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on. Raises DatasetError where the files are of another form."""
        try:
            items = self._recipe.items(self._paths)
        except (KeyError, TypeError, AttributeError) as error:
            raise DatasetError(
                f"{self.path}: not of the form of {self._recipe.name}: {error!r}. Expected {self._recipe.summary}"
            ) from error
        for position in range(start, len(items)):
            read = self.size_bytes * (position + 1) // len(items)
            yield RawEntry(position, 0, items[position], None, "", read)

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What an item says."""
        try:
            return self._recipe.entry(value, position)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if isinstance(error, SampleError):
                raise
            raise SampleError(f"not an item of {self._recipe.name}: {error!r}", reason="bad-item") from error

    def fingerprint(self) -> str:
        """Digests of the files; of a folder, those of what is in it."""
        return " ".join(file_digest(file) for path in self._paths for file in _files(path))


def question_entry(
    identifier: str, *, image: str, question: str, answers: Sequence[str], extra: dict[str, Any] | None = None
) -> LlavaEntry:
    """A question about an image. Each different answer is kept once, with its share of all as its weight."""
    counted = Counter(answers)
    weights = [count / len(answers) for count in counted.values()]
    content = {"question": question, "answers": list(counted), "answer_weights": weights}
    turns = [{"from": "human", "value": question}]
    if answers:
        turns.append({"from": "gpt", "value": counted.most_common(1)[0][0]})
    return LlavaEntry(identifier, (image,), turns, extra or {}, (), (), content)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.json")) if path.is_dir() else [existing(path)]


def _coco_captions(paths: Sequence[Path]) -> list[Any]:
    """One item an image, with all its captions; Karpathy's file has them so already."""
    content = load_json(paths[0])
    if content["images"] and "sentences" in content["images"][0]:
        return [
            {
                "id": image.get("cocoid", image.get("imgid")),
                "file_name": "/".join(part for part in (image.get("filepath"), image["filename"]) if part),
                "captions": [sentence["raw"] for sentence in image["sentences"]],
                "extra": {"split": image["split"]} if "split" in image else {},
            }
            for image in content["images"]
        ]
    captions: dict[Any, list[str]] = {}
    for annotation in content["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    return [{**image, "captions": captions.get(image["id"], []), "extra": {}} for image in content["images"]]


def _coco_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    captions = [caption.strip() for caption in item["captions"]]
    if not captions:
        raise SampleError("an image without captions", reason="no-turns")
    turns = [{"from": "gpt", "value": caption} for caption in captions]
    return LlavaEntry(str(item["id"]), (item["file_name"],), turns, item["extra"], (), (), {"captions": captions})


def _vqa(paths: Sequence[Path]) -> list[Any]:
    """Questions with their annotations; the name of an image is made of the split and its number."""
    asked = load_json(paths[0])
    answered = load_json(paths[1]) if len(paths) > 1 else {"annotations": []}
    split = answered.get("data_subtype") or asked["data_subtype"]
    by_question = {one["question_id"]: one for one in answered["annotations"]}
    return [{**by_question.get(q["question_id"], {}), **q, "split": split} for q in asked["questions"]]


def _vqa_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    number = item["image_id"]
    image = number if isinstance(number, str) else f"COCO_{item['split']}_{number:012d}.jpg"
    kinds: dict[str, Any] = {name: item[name] for name in ("question_type", "answer_type") if name in item}
    answers = [answer["answer"] for answer in item.get("answers", [])]
    return question_entry(
        str(item["question_id"]), image=image, question=item["question"], answers=answers, extra=kinds
    )


def _data_list(paths: Sequence[Path]) -> list[Any]:
    items: list[Any] = load_json(paths[0])["data"]
    return items


def _textvqa_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    return question_entry(
        str(item["question_id"]),
        image=f"{item['image_id']}.jpg",
        question=item["question"],
        answers=item.get("answers", []),
    )


def _docvqa_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    return question_entry(
        str(item["questionId"]),
        image=item["image"] if "image" in item else item["image_local_name"],  # InfographicVQA's
        question=item["question"],
        answers=item.get("answers", []),
        extra={"question_types": item["question_types"]} if "question_types" in item else {},
    )


def _plain_list(paths: Sequence[Path]) -> list[Any]:
    items = load_json(paths[0])
    if not isinstance(items, list):
        raise TypeError("no list")
    return items


def _chartqa_entry(item: dict[str, Any], position: int) -> LlavaEntry:
    stem = PurePosixPath(item["imgname"]).stem
    return question_entry(
        f"{stem}_{position}", image=item["imgname"], question=item["query"], answers=[str(item["label"])]
    )


RECIPES: dict[str, Recipe] = {
    row.name: row
    for row in (
        Recipe(
            "coco-captions",
            "COCO's captions_*.json, or Karpathy's dataset_*.json: one sample an image, with all its captions.",
            ("captions_train2014.json",),
            _coco_captions,
            _coco_entry,
            CAPTIONS,
        ),
        Recipe(
            "vqav2",
            "VQAv2's questions and their annotations: each answer once, weighted by how many gave it.",
            ("v2_OpenEnded_mscoco_train2014_questions.json", "v2_mscoco_train2014_annotations.json"),
            _vqa,
            _vqa_entry,
            QUESTION,
        ),
        Recipe("textvqa", "TextVQA_0.5.1_*.json.", ("TextVQA_0.5.1_train.json",), _data_list, _textvqa_entry, QUESTION),
        Recipe(
            "docvqa", "DocVQA's (or InfographicVQA's) JSON.", ("train_v1.0.json",), _data_list, _docvqa_entry, QUESTION
        ),
        Recipe(
            "chartqa",
            "ChartQA's human or augmented JSON.",
            ("train_human.json",),
            _plain_list,
            _chartqa_entry,
            QUESTION,
        ),
        Recipe(
            "ai2d",
            "AI2D's folder, with questions/ (and annotations/, images/): one sample a question.",
            ("ai2d",),
            ai2d_items,
            ai2d_entry,
            CHOICE,
        ),
    )
}
"""The recipes by name."""
