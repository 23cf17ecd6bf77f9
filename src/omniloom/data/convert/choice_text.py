"""A question with choices as a text, and which of them is meant by what data sets give as the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omniloom.errors import SampleError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ANSWER_BY_LETTER = "Answer with the option's letter from the given choices directly."


def choice_text(question: str, choices: Sequence[str]) -> str:
    """The question, a line for each choice with its letter, and how to answer."""
    options = "".join(f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, choices, strict=False))
    return f"{question}\n{options}{ANSWER_BY_LETTER}"


def choice_meant(answer: Any, choices: Sequence[str]) -> int:
    """Which choice an answer is, from 0: one of their texts, a number from 0, or a letter.

    Raises:
        SampleError: ``bad-choice``: it is none of them, or could be two (the text of one and the number of another).
    """
    text = str(answer).strip()
    meant = {number for number, choice in enumerate(choices) if choice.strip() == text and isinstance(answer, str)}
    if text.isdecimal() and int(text) < len(choices):
        meant.add(int(text))
    elif len(text) == 1 and text.isalpha() and not meant:
        meant.add(LETTERS.find(text.upper()))
    if len(meant) != 1 or not 0 <= min(meant) < len(choices) <= len(LETTERS):
        raise SampleError(
            f"answer {text!r} to {len(choices)} choices could be any of {len(meant)}; one of their texts, a number "
            f"from 0 to {len(choices) - 1} or a letter, and at most {len(LETTERS)} choices, expected",
            reason="bad-choice",
        )
    return meant.pop()
