"""OCRBench v2: what an answer of each of its thirty types is worth (Fu et al. 2024, arXiv 2501.00321, section 3.3).

The rules are those of its program of April 2026, whose quirks are kept: they are in every published score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omniloom.evaluate.scores.anls import levenshtein
from omniloom.evaluate.scores.html_trees import teds
from omniloom.evaluate.scores.page_text import page_text
from omniloom.evaluate.scores.said_values import (
    flat_dictionary,
    last_box,
    literal,
    nested_dictionary,
    overlap,
    right_values,
    share_of_keys,
    words_with_boxes,
)
from omniloom.evaluate.scores.spotting import spotting
from omniloom.evaluate.scores.trees import Tree, tree_distance

_LEAST_SIMILARITY = 0.5
_FEW_WORDS, _FEW_PARTS = 5, 4
_MOST_DIGITS = 18
_SHORT_ANSWER = "简答"
_JOINTS = ("", ".", ". ", ",", ", ", "、", ";", "; ", " ", "和")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_PAGE_CHANGES = (
    (r"<bos>|<eos>|<pad>|<unk>", ""),
    (r"\s##(\S)", r"\1"),
    (r"\\\s", r"\\"),
    (r"\s\*\s\*\s", "**"),
    (r"{\s", "{"),
    (r"\s}", "}"),
    (r"\s}", "}"),
    (r"\\begin\s", r"\\begin"),
    (r"\\end\s", r"\\end"),
    (r"\\end{table}", r"\\end{table} \n\n"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the rule of a type looks at besides the answer.

    Attributes:
        question: as it was put.
        answers: those that are right: a list for most types, of one for many; four numbers where a box is asked for.
        method: ``multiple choice``, ``case sensitive``, ``exact match`` or ``regression``, where the file says so.
        boxes: of what is asked about; a list of boxes where words are to be found.
        words: in these boxes.
        synonyms: whether METEOR takes synonyms of WordNet for equal.
    """

    question: str
    answers: Any
    method: str | None = None
    boxes: Any = None
    words: Sequence[str] = ()
    synonyms: bool = True

    @property
    def texts(self) -> list[str]:
        """The answers as texts."""
        return list(map(str, self.answers if isinstance(self.answers, list) else [self.answers]))

    @property
    def first(self) -> Any:
        """The one answer of a type that has one."""
        return self.answers[0] if isinstance(self.answers, list) else self.answers


Rule = Callable[[str, Asked], float | None]
"""What an answer is worth, between 0 and 1; ``None`` where the item does not count."""


def _contained(said: str, answers: Sequence[str], *, few: Callable[[str], bool]) -> float:
    """1 where a short answer is in what was said; for a long one their similarity, from one half on."""
    worth = 0.0
    for answer in answers:
        worth = max(worth, float(answer in said) if few(answer) else _similar(said, answer))
    return worth


def _similar(said: str, answer: str) -> float:
    longest = max(len(said), len(answer))
    similarity = 1 - (levenshtein(said, answer) / longest if longest else 0.0)
    return similarity if similarity >= _LEAST_SIMILARITY else 0.0


def _few_words(answer: str) -> bool:
    return len(answer.split()) < _FEW_WORDS


def _few_parts(answer: str) -> bool:
    return len(answer.split(",")) < _FEW_PARTS


def _one_line(text: str) -> str:
    return text.strip().replace("\n", " ")


def _without_spaces(text: str) -> str:
    return _one_line(text).replace(" ", "")


def _by_method(said: str, asked: Asked) -> float | None:
    """Types whose file may ask for a letter, or for the same case."""
    if asked.method == "multiple choice":
        return float("".join(filter(str.isalpha, said)) == str(asked.first))
    if asked.method == "case sensitive":
        return _contained(_one_line(said), list(map(_one_line, asked.texts)), few=_few_words)
    return None


def _english(said: str, asked: Asked) -> float:
    worth = _by_method(said, asked)
    return _english_text(said, asked.texts) if worth is None else worth


def _english_text(said: str, answers: Sequence[str]) -> float:
    return _contained(_one_line(said.lower()), [_one_line(answer.lower()) for answer in answers], few=_few_words)


def _chinese(said: str, asked: Asked) -> float:
    worth = _by_method(said, asked)
    if worth is not None:
        return worth
    said = _without_spaces(said.lower())
    return _contained(said, [_without_spaces(answer.lower()) for answer in asked.texts], few=_few_parts)


def _page(said: str, asked: Asked) -> float:
    return page_text(said, str(asked.first), synonyms=asked.synonyms).mean if said else 0.0


def _translation(said: str, asked: Asked) -> float | None:
    if not said:
        return 0.0
    return _page(said, asked) if asked.first else None


def _handwritten(said: str, asked: Asked) -> float:
    answer = str(asked.first)
    if _SHORT_ANSWER in asked.question:
        return page_text(said, answer, synonyms=asked.synonyms).mean if said or answer else 0.0
    return float(any(joint.join(answer) in said for joint in _JOINTS))


def _formula(said: str, asked: Asked) -> float:
    return float(any(_without_spaces(answer) in _without_spaces(said) for answer in asked.texts))


def _chinese_formula(said: str, asked: Asked) -> float:
    if said.lower() == "nan":  # what its harness writes for no answer
        return 0.0
    said, answer = (_without_spaces(_TEXT.sub(r"\1", text)) for text in (said, str(asked.first)))
    return float(answer in said)


def _count(said: str, asked: Asked) -> float:
    answers = [_one_line(answer.lower()) for answer in asked.texts]
    if asked.method == "exact match":
        return float(any(answer in said for answer in answers))
    found = re.search(r"\d+", said)
    number = int(found[0]) if found and len(found[0]) <= _MOST_DIGITS else 0  # a longer one is not near any answer
    closeness = [1 - abs(number - int(answer)) / int(answer) for answer in answers if 0 < number < 2 * int(answer)]
    return max((near for near in closeness if near > _LEAST_SIMILARITY), default=0.0)


def _table(said: str, asked: Asked) -> float | None:
    """Tables in English: HTML or Markdown, as the question asks."""
    question = asked.question.lower()
    if "html" in question:
        return _html_table(said, asked)
    if "markdown" in question:
        return _teds(_html_of_markdown(said), _html_of_markdown(str(asked.first)))
    return None


def _html_table(said: str, asked: Asked) -> float:
    said = said.replace("\n", "")
    start = next((said.find(tag) for tag in ("<body", "<table") if tag in said), -1)
    return 0.0 if start < 0 else _teds(_whole_html(said[start:]), _whole_html(str(asked.first)))


def _teds(said: str, right: str) -> float:
    try:
        return teds(said, right)
    except ValueError:
        return 0.0


def _whole_html(table: str) -> str:
    table = table.replace("\n", "")
    if "<table" not in table:
        table = "<table>" + table
    if "</table>" not in table:
        table += "</table>"
    table = table if "<body>" in table else f"<body>{table}</body>"
    return table if "<html>" in table else f"<html>{table}</html>"


def _html_of_markdown(text: str) -> str:
    # Its program strips the letters of a fence, not the fence as a whole.
    lines = text.strip("`" + "markdown").strip("`").strip().split("\n")
    rows = [line.strip().split("|")[1:-1] for line in lines[:1] + lines[2:]]
    cells = ["".join(f"<td>{' ' if set(cell) == {' '} else cell.strip()}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<html><body><table>{table}</table></body></html>"


def _chart(said: str, asked: Asked) -> float:
    found = nested_dictionary(said)
    right = asked.first if isinstance(asked.first, dict) else nested_dictionary(str(asked.first))
    return _teds(_html_of_dictionary(found), _html_of_dictionary(right)) if found else 0.0


def _html_of_dictionary(found: Mapping[Any, Any]) -> str:
    # Each character of a value is a word of its own, as in its program.
    rows = "".join(f"  <tr><td>{key}</td><td>{' '.join(str(value))}</td></tr>\n" for key, value in found.items())
    return f"<html><body><table>\n{rows}</table></body></html>"


def _document(said: str, asked: Asked) -> float:
    """The headings of Markdown with the lines below them, as trees; what a line says does not count."""
    trees = [_outline(text) for text in (said, str(asked.first))]
    return 1 - tree_distance(*trees, rename=_rename_line) / max(tree.size() for tree in trees)


def _rename_line(one: str, other: str) -> float:
    return 0.0 if one.split() and other.split() else 1.0


def _outline(text: str) -> Tree[str]:
    root = Tree("ROOT")
    preface = root.add("TITLE")
    heading = ""
    for line in map(_plain_line, text.split("\n")):
        if line.startswith("#"):
            heading = line.replace("#", "")
            root.add(heading)
        else:
            (_first_labelled(root, heading) if heading else preface).add(line)
    return root


def _plain_line(line: str) -> str:
    for pattern, put in _PAGE_CHANGES:
        line = re.sub(pattern, put, line)
    return line.replace("\n", " ").replace("*", " ").replace("_", " ")


def _first_labelled(tree: Tree[str], label: str) -> Tree[str]:
    """The first node of that label from above and from the left: where its program puts a line."""
    if tree.label == label:
        return tree
    return next((_first_labelled(child, label) for child in tree.children if _holds(child, label)), tree)


def _holds(tree: Tree[str], label: str) -> bool:
    return tree.label == label or any(_holds(child, label) for child in tree.children)


def _keys(said: str, asked: Asked) -> float:
    try:
        right = right_values(asked.first)
    except ValueError:
        return 0.0
    return share_of_keys(flat_dictionary(said), right)


def _answer_with_box(said: str, asked: Asked) -> float:
    found = flat_dictionary(said)
    text = _english_text(found["answer"], asked.texts) if "answer" in found else 0.0
    return (text + overlap(literal(found.get("bbox", "")), asked.boxes)) / 2


def _box(said: str, asked: Asked) -> float:
    found = last_box(said)
    return overlap(found, asked.answers) if found else 0.0


def _spotted(said: str, asked: Asked) -> float:
    right = []
    for corners, text in zip(asked.boxes, asked.words, strict=False):
        across, down = list(map(int, corners[0::2])), list(map(int, corners[1::2]))
        right.append(((min(across), min(down), max(across), max(down)), str(text)))
    return spotting(words_with_boxes(said), right)


ABILITIES: dict[str, dict[str, dict[str, Rule]]] = {
    "english": {
        "text_recognition": {
            "text recognition en": _english, "fine-grained text recognition en": _page, "full-page OCR en": _page,
        },
        "text_detection": {"text grounding en": _box, "VQA with position en": _answer_with_box},
        "text_spotting": {"text spotting en": _spotted},
        "relationship_extraction": {"key information extraction en": _keys, "key information mapping en": _keys},
        "element_parsing": {
            "document parsing en": _document, "chart parsing en": _chart, "table parsing en": _table,
            "formula recognition en": _formula,
        },
        "mathematical_calculation": {"math QA en": _english, "text counting en": _count},
        "visual_text_understanding": {
            "document classification en": _english, "cognition VQA en": _english, "diagram QA en": _english,
        },
        "knowledge_reasoning": {
            "reasoning VQA en": _english, "science QA en": _english, "APP agent en": _english,
            "ASCII art classification en": _english,
        },
    },
    "chinese": {
        "text_recognition": {"full-page OCR cn": _page},
        "relationship_extraction": {
            "key information extraction cn": _keys, "handwritten answer extraction cn": _handwritten,
        },
        "element_parsing": {
            "document parsing cn": _document, "table parsing cn": _html_table,
            "formula recognition cn": _chinese_formula,
        },
        "visual_text_understanding": {"cognition VQA cn": _chinese},
        "knowledge_reasoning": {"reasoning VQA cn": _chinese, "text translation cn": _translation},
    },
}  # fmt: skip
"""Language, ability and type; the score of a language is the mean of its abilities, theirs that of all their items."""

RULES = {kind: rule for abilities in ABILITIES.values() for kinds in abilities.values() for kind, rule in kinds.items()}
