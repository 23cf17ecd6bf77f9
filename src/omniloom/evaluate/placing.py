"""To which item an answer is: by its id, its place, or by what was asked about which image."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations
from pathlib import PurePosixPath

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.task import Item

_NUMBERED = re.compile(r"(?:^|_)0*(\d+)$")  # COCO_val2014_000000391895
_ASKED = re.compile(r"^(?:question|q) ?: ", re.IGNORECASE)
_FEW_PARTS = 3
_KINDS = ("part", "task_type", "category", "type")
_TAG = re.compile(r"<image(?: \d)?>")
_WORD = re.compile(r"\w+")
_BY_CHANCE = 0.25
_LABELS = 2
_LEAST_SHARED = 0.9  # of a question's words in what was asked: prompts put other words in the place of an image's tag


def placed(items: Sequence[Item], answers: Sequence[Answer]) -> list[Answer]:
    """Answers under the ids of their items.

    Where no id is one of an item, as in files of LLaVA's scripts, whose ids are those of images, or in files without
    ids, the question decides, with the image where the file names it. So it does where ids are those of items by chance
    alone: more than a quarter of the answers that tell what was asked, or what is right, tell something else than the
    item: POPE's three files have half of their questions in common.
    A question that comes several times does so only where all questions stand in the order of the items, or where the
    file says what is right. Other answers stay as they are, and are to no item.

    Raises:
        ConfigError: what a log says is right is not what the item there says: it has another order. Or ids are those of
            items by chance, and the questions are not.
    """
    answers = [answer if answer.position is None else _at_place(items, answer, answer.position) for answer in answers]
    known = {item.id: item for item in items}
    matched = [(known[answer.id], answer) for answer in answers if answer.id in known]
    if not answers:
        return []
    by_chance = matched and _contradiction(items, matched)
    if not by_chance:
        return answers if matched else _without_ids(items, answers)
    found = _without_ids(items, [replace(answer, id="") for answer in answers])
    if 2 * sum(answer.id in known for answer in found) < len(matched):
        raise ConfigError(
            f"{by_chance}. The ids of the two files are the same by chance: give the file that was asked, in its order."
        )
    return found


def _without_ids(items: Sequence[Item], answers: Sequence[Answer]) -> list[Answer]:
    """Answers under the ids of their items, by order, question and image."""
    names = set().union(*map(_names_of, items))
    by_image = all(not names.isdisjoint(_shown(answer)) for answer in answers)
    for order in [] if by_image or len(items) != len(answers) else _orders(items):
        if all(map(_fits, order, answers)):
            return [replace(answer, id=item.id) for item, answer in zip(order, answers, strict=True)]
    return list(_by_question(items, answers, by_image=by_image))


def _contradiction(items: Sequence[Item], matched: Sequence[tuple[Item, Answer]]) -> str:
    """Why answers are not to the items of their ids, as more than a quarter of those that tell it say; else nothing."""
    asked = [(item, answer) for item, answer in matched if item.question and answer.asked]
    others = [(item, answer) for item, answer in asked if not _asks(item, answer)]
    if len(others) > _BY_CHANCE * len(asked) and len({answer.asked for _, answer in asked}) > 1:
        item, answer = others[0]
        return f"item {item.id!r} asks {item.question!r:.80}, and its answer is to {answer.asked!r:.80}"
    right = {text.strip().lower() for item in items for text in item.answers}
    told = [(item, answer) for item, answer in matched if answer.target]
    known = [(item, answer) for item, answer in told if answer.target.strip().lower() in right]
    others = [(item, answer) for item, answer in known if not _agrees(item, answer.target)]
    # Else what is right may be written in another way, as letters for texts, or numbers for two labels.
    if len(others) > _BY_CHANCE * len(told) and len({answer.target for _, answer in told}) > _LABELS:
        item, answer = others[0]
        return (
            f"of item {item.id!r}, {item.answers[0]!r:.80} is right, and its answer's file says {answer.target!r:.80}"
        )
    return ""


def _asks(item: Item, answer: Answer) -> bool:
    """Whether an answer's prompt may be one of an item: one has the other in it, or nearly all of its words."""
    question, asked = (_plain(_TAG.sub("", text)) for text in (item.question, answer.asked))
    if question in asked or asked in question:
        return True
    words = set(_WORD.findall(question))
    return len(words & set(_WORD.findall(asked))) >= _LEAST_SHARED * len(words)


def _orders(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The order of the items, and those with their few parts in another order: POPE's three go in any."""
    yield items
    parts: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        parts[str(item.facts.get("category"))].append(item)
    if 1 < len(parts) <= _FEW_PARTS:
        for chosen in permutations(parts.values()):
            yield list(chain.from_iterable(chosen))


def _at_place(items: Sequence[Item], answer: Answer, position: int) -> Answer:
    item = items[position] if 0 <= position < len(items) else None
    if item is None:
        return answer
    if not _agrees(item, answer.target):
        raise ConfigError(
            f"row {position} of the log: its answer {answer.target!r:.80} is not that of item {item.id!r}, "
            f"{item.answers[0]!r:.80}. The log names its questions by their place; give the data set in the order in "
            "which it was asked, such as the Parquet files that lmms-eval reads."
        )
    return replace(answer, id=item.id)


def _agrees(item: Item, target: str) -> bool:
    """Whether what a file says is right may be what the item says; so it is where one of them says nothing."""
    right = [*item.answers, *(item.options.get(letter, "") for letter in item.answers)]
    right += [str(number) for number, letter in enumerate(item.options) if letter in item.answers]
    right += [letter for letter, text in item.options.items() if text in item.answers]
    told = target.lower()
    return not right or not told or any(text and text.strip().lower() in told for text in right)


def _fits(item: Item, answer: Answer) -> bool:
    """Whether an answer without a known id may be to an item, and says enough to tell."""
    question = _plain(item.question)
    tells = bool(question and answer.asked) or bool(answer.target and item.answers)
    asked = not (question and answer.asked) or question in _plain(answer.asked)
    shown = not answer.shown or not _names_of(item) or not _names_of(item).isdisjoint(_names(answer.shown))
    return tells and asked and shown and _agrees(item, answer.target) and _same_kind(item, answer)


def _by_question(items: Sequence[Item], answers: Sequence[Answer], *, by_image: bool) -> Iterator[Answer]:
    """Answers under the first item of that question and image that has none yet; others as they are."""
    by_line: dict[str, list[Item]] = defaultdict(list)
    by_name: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_line[_line(item.question)].append(item)
        for name in _names_of(item):
            by_name[name].append(item)
    used: set[str] = set()
    for answer in answers:
        exact_first = (item for name in _shown(answer) for item in by_name.get(name, ()))
        several = exact_first if by_image else _of_question(by_line, answer)
        asked = _plain(answer.asked)
        fitting = [item for item in several if not asked or _plain(item.question) in asked]
        # Another question may be a part of the one that was asked.
        longest = max((len(item.question) for item in fitting), default=0)
        fitting = [item for item in fitting if len(item.question) == longest and _same_kind(item, answer)]
        if not by_image and len(fitting) > 1:
            fitting = [item for item in fitting if answer.target and _agrees(item, answer.target)]
        found = next((item.id for item in fitting if item.id not in used), None)
        if found is not None:
            used.add(found)
        yield answer if found is None else replace(answer, id=found)


def _of_question(by_line: Mapping[str, Sequence[Item]], answer: Answer) -> Iterator[Item]:
    """Items whose question begins as a line of the prompt does, and of the image, where the answer names one."""
    lines = dict.fromkeys(map(_line, [answer.asked, *answer.asked.splitlines()]))
    several = chain.from_iterable(by_line.get(line, ()) for line in lines if line)
    return (item for item in several if not answer.shown or not _names_of(item).isdisjoint(_names(answer.shown)))


def _same_kind(item: Item, answer: Answer) -> bool:
    told = next((item.facts[name] for name in _KINDS if item.facts.get(name)), None)
    return not answer.kind or told is None or _plain(str(told)) == _plain(answer.kind)


def _shown(answer: Answer) -> list[str]:
    """Under which names the image of an answer may go; an id that is no item's may be one."""
    return _names(answer.shown) if answer.shown else _names(answer.id, whole="/" in answer.id)


def _names_of(item: Item) -> set[str]:
    part = item.facts.get("part")
    images = [name for name in item.images if isinstance(name, str)]
    in_parts = {f"{part}/{folder}{name}" for name in images for folder in ("", "images/")} if part else set()
    return {name for image in images for name in _names(image)} | in_parts


def _names(name: str, *, whole: bool = False) -> list[str]:
    """Under which names an image goes, the exact one first: its path, its file, without suffix, COCO's number in it."""
    stem = PurePosixPath(name).stem
    number = _NUMBERED.search(stem)
    several = [name] if whole else [name, PurePosixPath(name).name, stem, *((number[1],) if number else ())]
    return list(dict.fromkeys(several))


def _line(question: str) -> str:
    """The first line that says something, without what it begins with in prompts."""
    lines = (_plain(_ASKED.sub("", line.strip())) for line in question.replace("<image>", "").splitlines())
    return next((line for line in lines if line), "")


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").lower().split())
