"""Items that are answered here and scored elsewhere: questions of one's own, and OCRBench v2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import read_rows, texts, wanted
from omniloom.evaluate.scores.vqa import exact_match
from omniloom.evaluate.task import Item, Scores, Task, image_name, mean_score, question_only

_V2_FACTS = ("answers", "dataset_name", "type", "eval", "bbox", "bbox_list", "content", "raw_text", "image_shape")


def read_own(path: Path) -> list[Item]:
    """Rows of ``question`` and ``image`` (one, or a list ``images``), with an id and answers where there are some."""
    items = []
    for number, row in enumerate(read_rows(path)):
        images = row.get("images") or [row.get("image")]
        items.append(
            Item(
                id=str(next((row[name] for name in ("id", "sample_id", "question_id") if name in row), number)),
                question=str(wanted(row, "question", where=path)),
                answers=texts(row.get("answers", row.get("answer", ()))),
                images=tuple(image_name(image) for image in images if image),
            )
        )
    return items


def read_ocrbench_v2(path: Path) -> list[Item]:
    """``OCRBench_v2.json``: rows of id, type, question, answers and image."""
    return [
        Item(
            id=str(row.get("id", number)),
            question=str(wanted(row, "question", where=path)),
            answers=tuple(map(str, row["answers"] if isinstance(row.get("answers"), list) else [row.get("answers")])),
            images=(image_name(wanted(row, "image_path", "image", where=path)),),
            facts={name: row[name] for name in _V2_FACTS if row.get(name) is not None}
            | {"answers": row.get("answers")},
        )
        for number, row in enumerate(read_rows(path))
    ]


def _own(item: Item, text: str, variant: str) -> float:
    del variant
    return exact_match(text, item.answers)


def _elsewhere(items: Sequence[Item], texts: Sequence[str], variant: str) -> Scores:
    del texts, variant
    raise ConfigError(
        f"ocrbench-v2: {len(items)} answers, which are not scored here: that wants METEOR, tree distances and a "
        "tokenizer of Chinese. Give its own program, OCRBench_v2/eval_scripts/eval.py, the lines of answers as a JSON "
        "list; they hold what it asks for."
    )


def _v2_fields(item: Item, answer: str) -> dict[str, Any]:
    """What its own program reads, and what Megatron's example writes."""
    row = {"id": int(item.id) if item.id.isdecimal() else item.id, "predict": answer, "question": item.question}
    return row | dict(item.facts) | {"data_type": item.facts.get("type")}


INFERENCE = Task(
    name="inference",
    title="Questions of one's own",
    metric="equal to an answer after VQA normalisation, percent",
    read=read_own,
    prompt=question_only,
    score=mean_score(_own, metric="equal"),
    oracle="the official VQA program's normalisation",
)
OCRBENCH_V2 = Task(
    name="ocrbench-v2",
    title="OCRBench v2 (Fu et al. 2024), answers for its own program",
    metric="none here",
    read=read_ocrbench_v2,
    prompt=question_only,
    score=_elsewhere,
    oracle="",
    columns=("predict",),
    fields=_v2_fields,
)
