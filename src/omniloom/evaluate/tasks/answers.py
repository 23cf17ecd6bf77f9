"""Short answers: VQAv2, OK-VQA, TextVQA, DocVQA, InfoVQA, ChartQA, AI2D, RealWorldQA, OCRBench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omniloom.evaluate.answer import Answer
from omniloom.evaluate.reading import Row, letter_of, letters, read_json, read_rows, suffix_of, texts, wanted
from omniloom.evaluate.scores.anls import anls
from omniloom.evaluate.scores.choices import Fallback, leading_letter, mmmu_choice, vlmevalkit_choice
from omniloom.evaluate.scores.matching import ocrbench_correct, relaxed_accuracy
from omniloom.evaluate.scores.vqa import capped_accuracy, exact_match, normalise_answer, vqa_accuracy
from omniloom.evaluate.task import (
    LACKING,
    SINGLE_WORD,
    SINGLE_WORD_OR_NUMBER,
    Item,
    Scores,
    Task,
    image_name,
    lettered,
    mean_score,
    question_only,
)

_IDS = ("question_id", "questionId", "id", "pid", "index")
_IMAGES = ("image", "image_path", "image_local_name", "imgname", "image_id")


def read_questions(*facts: str, ids: Sequence[str] = _IDS) -> Callable[[Path], list[Item]]:
    """A reader of rows of question, answers and image. A file without ids numbers its rows from 0.

    Args:
        facts: keys that are kept for breakdowns.
        ids: keys that may hold the id.
    """

    def read(path: Path) -> list[Item]:
        return [_item(row, number, path, facts, ids) for number, row in enumerate(read_rows(path))]

    return read


def _item(row: Row, number: int, path: Path, facts: Sequence[str], ids: Sequence[str]) -> Item:
    answers: Any = next((row[name] for name in ("answers", "answer", "label") if row.get(name) is not None), ())
    image = next((row[name] for name in _IMAGES if row.get(name)), None)
    options = next((row[name] for name in ("options", "choices") if row.get(name)), None)
    return Item(
        id=str(next((row[name] for name in ids if row.get(name) is not None), number)),
        question=str(wanted(row, "question", "query", where=path)),
        answers=texts(answers),
        images=() if image is None else (image_name(image),),
        options=letters(options),
        facts={name: row[name] for name in facts if name in row},
    )


def read_vqav2(path: Path) -> list[Item]:
    """VQA v2's annotations beside its questions, its questions alone, or one file of rows that have both.

    ``v2_mscoco_val2014_annotations.json`` has its questions in ``v2_OpenEnded_mscoco_val2014_questions.json`` in the
    same folder, and OK-VQA's ``mscoco_val2014_annotations.json`` those of that name; without them answers can be
    scored, but no model asked. Images are COCO's files.
    """
    loaded = read_json(path) if suffix_of(path) == ".json" else None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("annotations", loaded.get("questions")), list):
        return read_questions("question_type", "answer_type")(path)
    part = str(loaded.get("data_subtype") or "").removesuffix("-dev2015") or None
    part = "test2015" if part == "test" else part
    if "annotations" not in loaded:
        return [_vqa_item(row, row, part, {}) for row in loaded["questions"]]
    name = path.name.replace("annotations", "questions")
    beside = [path.with_name(one) for one in (name, f"OpenEnded_{name}", name.replace("v2_", "v2_OpenEnded_"))]
    there = next((file for file in beside if file.is_file()), None)
    questions = {row["question_id"]: row for row in read_rows(there)} if there is not None else {}
    lacking = {} if there is not None else {LACKING: f"{beside[-1]}: there is no such file"}
    return [_vqa_item(row, questions.get(row["question_id"], {}), part, lacking) for row in loaded["annotations"]]


def _vqa_item(row: Row, asked: Row, part: str | None, lacking: dict[str, str]) -> Item:
    image = asked.get("image_id", row.get("image_id", ""))
    return Item(
        id=str(row["question_id"]),
        question=str(asked.get("question", "")),
        answers=texts(row.get("answers", ())),
        images=(_coco_file(image, part),),
        facts={key: row[key] for key in ("question_type", "answer_type") if key in row} | lacking,
    )


def _coco_file(image: Any, part: Any) -> str:
    """The file of a COCO image in a part of it, such as ``val2014``; of an unknown part, the image's number."""
    return f"COCO_{part}_{int(image):012d}.jpg" if part and str(image).isdecimal() else str(image)


def read_ai2d(path: Path) -> list[Item]:
    """Rows of question, image and answer: a letter, or the number of an option from 0 (Hugging Face's form)."""
    items = read_questions()(path)
    return [replace(item, answers=tuple(letter_of(answer, item.options) for answer in item.answers)) for item in items]


def read_chartqa(path: Path) -> list[Item]:
    """Rows of question, answer and image; or the folder of a split: ``test_human.json``, ``test_augmented.json``."""
    kinds = ("human", "augmented")
    files = [(kind, file) for kind in kinds for file in sorted(path.glob(f"*_{kind}.json"))] if path.is_dir() else []
    if not files:
        return read_questions("type")(path)
    return [
        replace(item, id=f"{kind}-{item.id}", facts={"type": kind})
        for kind, file in files
        for item in read_questions()(file)
    ]


def read_realworldqa(path: Path) -> list[Item]:
    """RealWorldQA: options of multiple choices by letter, the right one by its index."""
    items = []
    for number, row in enumerate(read_rows(path)):
        options = letters(row.get("choices") or row.get("options"))
        index = row.get("correct_choice_index")
        right = (
            (list(options)[int(index)],) if options and index is not None else texts(wanted(row, "answer", where=path))
        )
        image = image_name(row.get("image") or "")
        items.append(
            Item(
                id=str(Path(image).stem if isinstance(image, str) and image else row.get("index", number)),
                question=str(wanted(row, "question", where=path)),
                answers=right,
                images=(image,) if image else (),
                options=options,
                facts={"question_type": row.get("question_type")},
            )
        )
    return items


def _vqa(item: Item, text: str, variant: str) -> float:
    if variant == "megatron":
        return capped_accuracy(text, item.answers)
    return vqa_accuracy(text, item.answers, variant="official" if variant == "published" else "always-normalised")


def _text_vqa(item: Item, text: str, variant: str) -> float:
    return (
        capped_accuracy(text, item.answers)
        if variant == "megatron"
        else vqa_accuracy(text, item.answers, variant="m4c")
    )


def _anls(item: Item, text: str, variant: str) -> float:
    return anls(text, item.answers, boundary="paper" if variant == "paper" else "rrc")


def _chart(item: Item, text: str, variant: str) -> float:
    del variant
    return max((relaxed_accuracy(text, answer) for answer in item.answers), default=0.0)


def choice_or_text(item: Item, text: str, variant: str) -> float:
    """By letter where the item has options, else equal texts; never through a rule that drops the letter "A"."""
    if item.options:
        said = _letter_said(item, text, variant)
        right = item.answers[0] if item.answers else ""
        by_text = {option.strip().lower(): letter for letter, option in item.options.items()}
        return float(
            said is not None and said == by_text.get(right.strip().lower(), right.strip().strip("().").upper())
        )
    plain = _letters_kept if any(len(answer.strip()) == 1 for answer in item.answers) else normalise_answer
    return exact_match(text, item.answers, normalise=plain)


def _letter_said(item: Item, text: str, variant: str) -> str | None:
    if variant == "vlmevalkit":
        return vlmevalkit_choice(text, item.options)
    fallback: Fallback = "first" if variant == "first-if-none" and text.strip() else "none"
    return leading_letter(text, item.options) or mmmu_choice(text, item.options, fallback=fallback)


def _letters_kept(text: str) -> str:
    return text.strip().strip(".()").strip().lower()


def _ocrbench(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """Points, one an item. Megatron's example counts each right answer that is found, and so may exceed 1,000."""
    worth = []
    for item, text in zip(items, answers, strict=True):
        dataset = str(_of_one_name(item, "dataset_name", "dataset") or _DATASETS.get(_kind(item), ""))
        each = [ocrbench_correct(text, [answer], dataset=dataset) for answer in item.answers if text.strip()]
        worth.append(sum(each) if variant == "megatron" else max(each, default=0.0))
    points = {
        kind: sum(value for item, value in zip(items, worth, strict=True) if _kind(item) == kind)
        for kind in dict.fromkeys(map(_kind, items))
    }
    return Scores(metrics={"points": sum(worth)}, items=worth, groups={"type": points})


_DATASETS = {"Handwritten Mathematical Expression Recognition": "HME100k"}
"""Of a type that has a rule of its own, for tables that tell the type alone."""


def _kind(item: Item) -> str:
    return str(_of_one_name(item, "type", "question_type", "category") or "")


def _of_one_name(item: Item, *names: str) -> Any:
    """The first of some facts that there is: the repository, Hugging Face and VLMEvalKit call them differently."""
    return next((item.facts[name] for name in names if item.facts.get(name)), None)


def read_ocrbench_answers(path: Path) -> list[Answer] | None:
    """The benchmark's own file with ``predict`` in each row. Its ids, which come twice, are passed over."""
    rows = read_json(path) if suffix_of(path) == ".json" and path.is_file() else None
    if not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, dict) and row.keys() >= {"dataset_name", "image_path", "question"} for row in rows):
        return None
    return [
        Answer("", str(row["predict"]), asked=str(row["question"]), shown=str(row["image_path"]))
        for row in rows
        if row.get("predict") is not None
    ]


def _ocrbench_fields(item: Item, answer: str) -> dict[str, Any]:
    """As Megatron's example writes them."""
    del answer
    return {"dataset_name": _of_one_name(item, "dataset_name", "dataset"), "data_type": _kind(item)}


_VQA_ORACLE = "the official VQA program on 1,000 texts and the answers to three VQA v2 questions, all equal"
_CHOICE_ORACLE = (
    "MMMU's official program for its letters (1,800 answers); variant vlmevalkit: that harness on 456 made answers"
)
_ANLS_ORACLE = "the RRC script's outputs on DocVQA answers (.9167) and PyPI anls 0.0.2 (.378, variant paper)"

VQAV2 = Task(
    name="vqav2",
    title="VQA v2 (Goyal et al. 2017)",
    metric="VQA accuracy, percent",
    reader=read_vqav2,
    prompt=SINGLE_WORD,
    score=mean_score(_vqa, groups=("answer_type",)),
    variants=("published", "always-normalised", "megatron"),
    oracle=_VQA_ORACLE,
    version="2",
)
OK_VQA = Task(
    name="ok-vqa",
    title="OK-VQA (Marino et al. 2019)",
    metric="VQA accuracy, percent",
    reader=read_vqav2,
    prompt=SINGLE_WORD,
    score=mean_score(_vqa, groups=("question_type",)),
    variants=("published", "always-normalised", "megatron"),
    oracle=_VQA_ORACLE,
    version="2",
)
TEXTVQA = Task(
    name="textvqa",
    title="TextVQA (Singh et al. 2019)",
    metric="VQA accuracy, M4C's rule, percent",
    reader=read_vqav2,
    prompt=SINGLE_WORD_OR_NUMBER,
    score=mean_score(_text_vqa),
    variants=("published", "megatron"),
    oracle="M4C's program as LLaVA uses it on 1,000 texts and the answers to three questions, all equal",
    version="2",
)
DOCVQA = Task(
    name="docvqa",
    title="DocVQA, single page (Mathew et al. 2021)",
    metric="ANLS, percent",
    reader=read_questions("ucsf_document_id"),
    prompt=SINGLE_WORD_OR_NUMBER,
    score=mean_score(_anls, metric="ANLS"),
    variants=("published", "paper"),
    oracle=_ANLS_ORACLE,
)
INFOVQA = Task(
    name="infovqa",
    title="InfographicVQA (Mathew et al. 2022)",
    metric="ANLS, percent",
    reader=read_questions(),
    prompt=SINGLE_WORD_OR_NUMBER,
    score=mean_score(_anls, metric="ANLS"),
    variants=("published", "paper"),
    oracle=_ANLS_ORACLE,
)
CHARTQA = Task(
    name="chartqa",
    title="ChartQA (Masry et al. 2022)",
    metric="relaxed accuracy, percent",
    reader=read_chartqa,
    prompt=SINGLE_WORD,
    score=mean_score(_chart, metric="relaxed accuracy", groups=("type",)),
    oracle="InternVL's copy of its rule on 20,000 made pairs: equal, but that blanks around a text do not count here",
)
AI2D = Task(
    name="ai2d",
    title="AI2D (Kembhavi et al. 2016)",
    metric="accuracy, percent",
    reader=read_ai2d,
    prompt=lambda item: lettered(item) if item.options else question_only(item),
    score=mean_score(choice_or_text),
    variants=("published", "vlmevalkit", "first-if-none"),
    oracle=_CHOICE_ORACLE,
)
REALWORLDQA = Task(
    name="realworldqa",
    title="RealWorldQA (xAI 2024)",
    metric="accuracy, percent",
    reader=read_realworldqa,
    prompt=lambda item: lettered(item) if item.options else SINGLE_WORD(item),
    score=mean_score(choice_or_text, groups=("question_type",)),
    variants=("published", "vlmevalkit", "first-if-none"),
    oracle=_CHOICE_ORACLE,
)
OCRBENCH = Task(
    name="ocrbench",
    title="OCRBench (Liu et al. 2024)",
    metric="points of 1,000",
    reader=read_questions(
        "dataset_name", "dataset", "type", "question_type", "category", ids=("index",)
    ),  # its own ids come twice
    prompt=question_only,
    score=_ocrbench,
    variants=("published", "megatron"),
    oracle="its own program on answers made to its 1,000 questions, all equal",
    fields=_ocrbench_fields,
    own_answers=read_ocrbench_answers,
)
