"""Letters of multiple choices, found in what a model said. No letter is guessed unless that is asked for."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Literal

Fallback = Literal["none", "first", "random"] | random.Random

ENDS = ",.!?;:'"
"""What MMMU's programs take off both ends of an answer, one character after the other."""
LONG_WORDS = 5
"""More words than these, and the text of an option is looked for as well."""

_SCIENCE_QA_OPTIONS = "ABCDE"
_THE_ANSWER_IS = re.compile(r"The answer is ([A-Z]).")
_LEADING = re.compile(r"\(?([A-Z])(?:[).:]|$)")
_BEGINNINGS = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option isThe correct option is",
    "Best answer:Best option:",
)
_SIGNS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_ANSWER_IS = re.compile(r"(?i)(?:correct\s+)?answer\s+is\s+\**([ABCD])\**")
_REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_CAPITAL = re.compile("[ABCD]")
_MARKED = re.compile(r"\\(?:answer|boxed)\{([^{}]*)\}")


def mmmu_choice(
    response: str, options: Mapping[str, str], *, fallback: Fallback = "none", item: str = ""
) -> str | None:
    """The letter that MMMU's evaluator finds (Yue et al. 2024); of several, the one that is said last.

    It looks for "(A)", else for " A ", else, in long answers, for the text of an option.

    Args:
        response: what the model said.
        options: text of each option by its letter.
        fallback: where there is none: ``none`` gives none, ``first`` the first letter (as Megatron's example), and
            ``random`` any, drawn from the item's name. The official program draws from one generator for all items,
            so that its choice hangs on their order: ``random.Random(42)``, kept from item to item, draws as it does.
        item: name of the item, for ``random``.
    """
    for character in ENDS:
        response = response.strip(character)
    padded = f" {response} "
    places = {letter: padded.rfind(f"({letter})") for letter in options}
    if max(places.values(), default=-1) < 0:
        places = {letter: padded.rfind(f" {letter} ") for letter in options}
    if max(places.values(), default=-1) < 0 and len(padded.split()) > LONG_WORDS:
        lowered = padded.lower()
        places = {letter: lowered.rfind(text.lower()) for letter, text in options.items()}
    found = [letter for letter in options if places[letter] >= 0]
    if found:
        return max(found, key=lambda letter: places[letter])  # the first of those that begin at one place
    return guessed_letter(options, fallback, item=item)


def guessed_letter(options: Mapping[str, str], fallback: Fallback, *, item: str = "") -> str | None:
    """A letter where none was said, as the fallback has it; see `mmmu_choice`."""
    if fallback == "none" or not options:
        return None
    letters = list(options)
    if fallback == "first":
        return letters[0]
    return (random.Random(item) if fallback == "random" else fallback).choice(letters)


def leading_letter(response: str, options: Mapping[str, str]) -> str | None:
    """The letter that an answer begins with, or is: "B", "(B)", "B. dog", "B: dog"; not the article of "A dog"."""
    found = _LEADING.match(response.strip())
    return found[1] if found and found[1] in options else None


def vlmevalkit_choice(response: str, options: Mapping[str, str]) -> str | None:
    """The letter that VLMEvalKit finds without asking a language model (its version e8e78f0); ``None``: no option's.

    The one letter among the words, if it is one of the last five; else the letter after "answer is"; else the one
    option whose text is in an answer that is not much longer than all options. A refusal is no option's.
    """
    if any(refusal in response for refusal in _REFUSALS):
        return None
    words = response.translate(_SIGNS).split()
    said = [letter for letter in options if letter in words]
    if len(said) == 1 and words.index(said[0]) > len(words) - 5:
        return said[0]
    if not said and "Z" in words:
        return None
    told = _ANSWER_IS.search(response)
    if told and told[1].upper() in options:
        return told[1].upper()
    lowered = response.lower()
    if len(lowered) > 2 * sum(map(len, options.values())):
        return None
    held = [letter for letter, text in options.items() if text.lower() in lowered]
    return held[0] if len(held) == 1 else None


def first_capital(response: str) -> str | None:
    """The letter that Video-MME's program finds (Fu et al. 2024): the first capital from A to D, of a word or alone.

    Before, it takes away what an answer may begin with; two commas are missing in its list, so that four of these
    beginnings stay.
    """
    for beginning in _BEGINNINGS:
        response = response.replace(beginning, "")
    found = _CAPITAL.search(response)
    return found[0] if found else None


def mvbench_correct(response: str, letter: str, text: str) -> bool:
    """MVBench's rule (Li et al. 2024): the first word is in the right option's letter, or has it in it.

    So "b", "(B", "B." and "(B)dog" are right for "(B) dog", and so is ")". It would be right to say nothing, too, which
    is not followed here.
    """
    if not response.strip():
        return False
    said, right = response.lower().split(" ")[0], f"({letter}) {text}".lower().split(" ")[0]
    return said.replace(".", "") in right or right in said


def motionbench_letter(response: str) -> str:
    """What MotionBench's program makes of an answer (Hong et al. 2025): the first character of what it has in brackets.

    It looks before the first ")", there after the first "(", and takes the first character of the first word.
    """
    before = response.strip().split(")", maxsplit=1)[0].strip()
    inside = before.split("(")[1].strip() if "(" in before else before
    return inside.split(" ", maxsplit=1)[0][:1]


def marked_answer(response: str) -> str:
    r"""What stands in ``\answer{...}`` or ``\boxed{...}``, the last of them; the response where there is none."""
    marked = _MARKED.findall(response)
    return marked[-1] if marked else response


def science_qa_choice(response: str, choices: Sequence[str]) -> int:
    """The index of the choice that LLaVA's ScienceQA evaluator finds, or -1.

    It takes a letter alone, a letter with ". " after it, or "The answer is X." said once.

    Args:
        response: what the model said.
        choices: the choices of the problem; a letter beyond them is -1.
    """
    if response in _SCIENCE_QA_OPTIONS and len(response) == 1:
        letter = response
    elif response[1:3] == ". " and response[0] in _SCIENCE_QA_OPTIONS:
        letter = response[0]
    else:
        said = _THE_ANSWER_IS.findall(response)
        if len(said) != 1:
            return -1
        letter = said[0]
    index = _SCIENCE_QA_OPTIONS.find(letter)
    return index if 0 <= index < len(choices) else -1
