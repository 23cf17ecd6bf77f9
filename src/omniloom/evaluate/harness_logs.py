"""Sample logs of lmms-eval, which say little of what was asked: ids from wherever they still stand, or places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import ID_COLUMNS, Answer, innermost
from omniloom.evaluate.reading import Row
from omniloom.evaluate.task import Item


def is_harness_log(row: Row) -> bool:
    """Whether a row is one of such a log."""
    return "filtered_resps" in row or (isinstance(row.get("doc"), Mapping) and "doc_id" in row)


def harness_answers(rows: Sequence[Row]) -> list[Answer]:
    """The answers of a log.

    Older logs hold the question itself, newer ones its id in what a score was made of, or nothing but its place in the
    data set. An id that comes twice is none: of MME's questions two have one.
    """
    names = [_name(row) for row in rows]
    texts = [innermost(row["filtered_resps"] if "filtered_resps" in row else row.get("resps", "")) for row in rows]
    if None not in names and len(set(names)) == len(names):
        return [Answer(str(name), text) for name, text in zip(names, texts, strict=True)]
    return [
        Answer(str(row.get("doc_id", "")), text, position=_place(row), target=str(row.get("target", "")))
        for row, text in zip(rows, texts, strict=True)
    ]


def placed(items: Sequence[Item], answers: Sequence[Answer]) -> list[Answer]:
    """Answers that have places instead of ids, under the ids of the items at these places.

    Raises:
        ConfigError: what a log says is right is not what the item there says: it has another order.
    """
    return [answer if answer.position is None else _placed(items, answer, answer.position) for answer in answers]


def _placed(items: Sequence[Item], answer: Answer, position: int) -> Answer:
    item = items[position] if 0 <= position < len(items) else None
    if item is None:
        return answer
    right = [*item.answers, *(item.options.get(letter, "") for letter in item.answers)]
    right += [str(number) for number, letter in enumerate(item.options) if letter in item.answers]
    told = answer.target.lower()
    if right and told and not any(text and text.strip().lower() in told for text in right):
        raise ConfigError(
            f"row {position} of the log: its answer {answer.target!r:.80} is not that of item {item.id!r}, "
            f"{item.answers[0]!r:.80}. The log names its questions by their place; give the data set in the order in "
            "which it was asked, such as the Parquet files that lmms-eval reads."
        )
    return replace(answer, id=item.id)


def _name(row: Row) -> str | None:
    """The id of what was asked, from the question or from what a score was made of."""
    document = row.get("doc")
    places = [document] if isinstance(document, Mapping) else [row[key] for key in row if key != "input_media"]
    for place in places:
        if isinstance(place, Mapping):
            found = next((place[name] for name in ID_COLUMNS if place.get(name) is not None), None)
            if found is not None:
                return str(found)
    return None


def _place(row: Row) -> int | None:
    number = str(row.get("doc_id"))
    return int(number) if number.isdecimal() else None
