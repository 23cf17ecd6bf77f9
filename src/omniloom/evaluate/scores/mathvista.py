"""MathVista's rules (Lu et al. 2024): from an extracted answer to the value that is compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from omniloom.evaluate.scores.anls import levenshtein

QuestionType = Literal["multi_choice", "free_form"]
Integers = Literal["whole", "cut"]
AnswerType = Literal["text", "integer", "float", "list"]

_LETTER = re.compile(r"\(([a-zA-Z])\)")
_QUOTED = re.compile(r'The answer is "(.*)"\.')


def mathvista_extraction(
    response: str, *, question_type: QuestionType, answer_type: AnswerType, choices: Sequence[str] | None = None
) -> str | None:
    """The answer in a response, by the rules that need no language model; ``None`` where they do not find it.

    The published scores use GPT-4 where this gives none.

    Args:
        response: what the model said.
        question_type: of the problem.
        answer_type: of the problem.
        choices: texts of the choices.
    """
    if not response:
        return ""
    if question_type == "multi_choice" and response in (choices or ()):
        return response
    kind = {"integer": int, "float": float}.get(answer_type)
    if kind is not None:
        try:
            return str(kind(response))
        except ValueError:
            pass
    quoted = _QUOTED.search(response)
    return quoted[1] if quoted else None


def mathvista_prediction(
    extraction: object,
    *,
    question_type: QuestionType,
    answer_type: AnswerType,
    choices: Sequence[str] | None = None,
    precision: float | None = None,
    integers: Integers = "whole",
) -> str | None:
    """An extracted answer as the value that is compared with the right one; ``None`` where it is none of its kind.

    Args:
        extraction: the extracted answer.
        question_type: of the problem; a choice is given by letter, by text, or by the text most like it.
        answer_type: of the problem.
        choices: texts of the choices.
        precision: decimals of a float.
        integers: ``whole``: "1.0" and "66.67" are no integers, as when most published files were scored; ``cut``: what
            follows the point is cut off, as the official program does since.
    """
    text = str(extraction).strip() if extraction is not None else ""
    if question_type == "multi_choice":
        return _choice(text, choices or ())
    try:
        if answer_type == "integer":
            return str(int(text) if integers == "whole" else int(float(text)))
        if answer_type == "float":
            return str(round(float(text), int(precision or 0)))
    except (ValueError, OverflowError):
        return None
    return text


def mathvista_correct(prediction: str | None, answer: object) -> bool:
    """Whether a prediction is the right answer: equal as text, but for white space around it."""
    return prediction is not None and prediction.strip() == str(answer).strip()


def _choice(text: str, choices: Sequence[str]) -> str | None:
    letters = _LETTER.findall(text)
    letter = letters[0].upper() if letters else text
    options = [chr(ord("A") + index) for index in range(len(choices))]
    if letter in options:
        return choices[options.index(letter)]
    return min(choices, key=lambda choice: levenshtein(letter, choice)) if choices else None
