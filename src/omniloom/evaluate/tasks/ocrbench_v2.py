"""OCRBench v2: thirty types of reading, in English and Chinese."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import Row, literal_list, read_rows, wanted
from omniloom.evaluate.scores.ocrbench_v2 import ABILITIES, RULES, Asked
from omniloom.evaluate.task import Item, Scores, Task, image_name, mean, question_only

_FACTS = ("dataset_name", "type", "eval", "bbox", "bbox_list", "content", "raw_text", "image_shape")
WITHOUT_SYNONYMS = "without-synonyms"


def read_ocrbench_v2(path: Path) -> list[Item]:
    """``OCRBench_v2.json``: rows of id, type, question, answers and image; or VLMEvalKit's table of it."""
    return [_item(row, number, path) for number, row in enumerate(read_rows(path))]


def _item(row: Row, number: int, path: Path) -> Item:
    told = {name: row[name] for name in _FACTS if row.get(name) is not None}
    if "index" in row:  # VLMEvalKit's, in which all is text
        told = {name: _value(value) for name, value in told.items() if not str(value).startswith("without ")}
        told["type"] = row.get("category")
    answers = row.get("answers", row.get("answer"))
    image = row.get("image_path") or row.get("image")
    return Item(
        id=str(row.get("id", row.get("index", number))),
        question=str(wanted(row, "question", where=path)),
        answers=() if answers is None else tuple(map(str, answers if isinstance(answers, list) else [answers])),
        images=(image_name(image),) if image else (),
        facts=told | {"answers": answers},
    )


def _value(value: Any) -> Any:
    """A list that stands in a table as text."""
    return literal_list(value) or value if isinstance(value, str) and value.startswith("[") else value


def _worth(item: Item, text: str, variant: str) -> float | None:
    kind = str(item.facts.get("type"))
    if kind not in RULES:
        raise ConfigError(f"ocrbench-v2: item {item.id} is of type {kind!r}; one of {', '.join(RULES)} expected.")
    asked = Asked(
        question=item.question,
        answers=item.facts["answers"],
        method=item.facts.get("eval"),
        boxes=item.facts.get("bbox", ()),
        words=item.facts.get("content", ()),
        synonyms=variant != WITHOUT_SYNONYMS,
    )
    try:
        return RULES[kind](text, asked)
    except (ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError) as broken:
        raise ConfigError(
            f"ocrbench-v2: item {item.id} ({kind}): its answers {str(asked.answers)[:80]} are not what this type has: "
            f"{broken}. Compare it with OCRBench_v2.json."
        ) from broken


def _score(items: Sequence[Item], texts: Sequence[str], variant: str) -> Scores:
    """Each language's mean of its abilities; items that do not count are left out of all means."""
    worth = [_worth(item, text, variant) for item, text in zip(items, texts, strict=True)]
    by_type: dict[str, list[float]] = {}
    for item, value in zip(items, worth, strict=True):
        if value is not None:
            by_type.setdefault(str(item.facts["type"]), []).append(value)
    metrics, groups = {}, {}
    for language, abilities in ABILITIES.items():
        means = {}
        for ability, kinds in abilities.items():
            values = [value for kind in kinds for value in by_type.get(kind, ())]
            if values:
                means[ability] = 100 * mean(values)
        if means:
            metrics[language] = mean(list(means.values()))
            groups[language] = means
    groups["type"] = {kind: 100 * mean(by_type[kind]) for kind in RULES if kind in by_type}
    return Scores(metrics=metrics, items=[value or 0.0 for value in worth], groups=groups)


def _fields(item: Item, answer: str) -> dict[str, Any]:
    """What its own program reads, and what Megatron's example writes."""
    row = {"id": int(item.id) if item.id.isdecimal() else item.id, "predict": answer, "question": item.question}
    return row | dict(item.facts) | {"data_type": item.facts.get("type")}


OCRBENCH_V2 = Task(
    name="ocrbench-v2",
    title="OCRBench v2 (Fu et al. 2024)",
    metric="mean of the abilities in a language, percent",
    reader=read_ocrbench_v2,
    prompt=question_only,
    score=_score,
    oracle="its own program on 784 made answers of all thirty types, all equal",
    variants=("published", WITHOUT_SYNONYMS),
    columns=("predict",),
    fields=_fields,
)
