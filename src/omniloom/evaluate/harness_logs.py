"""Sample logs of lmms-eval, which say little of what was asked: ids from wherever they still stand, or places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omniloom.evaluate.answer import ID_COLUMNS, Answer, innermost
from omniloom.evaluate.reading import Row


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
