"""VQA accuracy and the text rules that go with it.

Rules: the VQA v2 evaluation (Goyal et al. 2017) and, for TextVQA, that of M4C, which LLaVA also applies before an
upload. Both drop articles: the letter of a multiple choice, "A", becomes nothing, so it never goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from omniloom.errors import ConfigError

Rule = Literal["official", "m4c"]

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
_MOST_PERIODS = 32  # the official program passes a flag in the place of a count, and is so limited
_NUMBERS = {"none": "0"} | {
    name: str(number)
    for number, name in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
}
_ARTICLES = frozenset(("a", "an", "the"))

# Words that are written with an apostrophe. Each stands for itself without its apostrophes, and where it has two,
# for itself without either of them.
_CONTRACTIONS = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd "
    "he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've "
    "needn't not've o'clock oughtn't shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll "
    "somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's "
    "there'd there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've "
    "weren't what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's who've "
    "why'll why're why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll "
    "you're you've"
)


def _without_some_apostrophes(word: str) -> list[str]:
    """The misspellings that stand for a word: one with a single apostrophe lacks it, others lack one of theirs."""
    places = [index for index, character in enumerate(word) if character == "'"]
    return [word[:place] + word[place + 1 :] for place in places]


_SPELLED = {wrong: word for word in _CONTRACTIONS.split() for wrong in _without_some_apostrophes(word)}
_SPELLED |= {"somebody'd": "somebodyd", "ow's'at": "'ow's'at", "'ows'at": "'ow's'at", "'ow'sat": "'ow's'at"}


def normalise_answer(answer: str, *, rule: Rule = "official") -> str:
    """An answer as it is compared: lower case, without punctuation and articles, number words as digits.

    Args:
        answer: what a model or a person said.
        rule: ``official`` (VQA v2) or ``m4c`` (TextVQA and LLaVA), which also sets ``'s`` apart and joins what commas
            and question marks stand between.
    """
    if rule == "m4c":
        answer = answer.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    return _digits_and_articles(_without_punctuation(text))


def vqa_accuracy(
    prediction: str, answers: Sequence[str], *, variant: Literal["official", "always-normalised", "m4c"] = "official"
) -> float:
    """The share of people who agree: the mean over answers of min(1, agreeing others / 3), between 0 and 1.

    Args:
        prediction: the model's answer.
        answers: what people answered, ten as a rule.
        variant: ``official`` leaves texts as they are where all people said the same, so that "Yes" against ten times
            "yes" is wrong; ``always-normalised`` does not; ``m4c`` normalises always, by M4C's rule (TextVQA).

    Raises:
        ConfigError: no answers.
    """
    if not answers:
        raise ConfigError("vqa_accuracy: no answers to compare with; at least one expected")
    given = [text.replace("\n", " ").replace("\t", " ").strip() for text in (prediction, *answers)]
    if variant != "official" or len(set(given[1:])) > 1:
        rule: Rule = "m4c" if variant == "m4c" else "official"
        given = [normalise_answer(text, rule=rule) for text in given]
    said, people = given[0], given[1:]
    agree = sum(one == said for one in people)
    return sum(min(1.0, (agree - (one == said)) / 3) for one in people) / len(people)


def capped_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """The simpler min(1, agreeing / 3) of Megatron's example, both sides normalised; between 0 and 1."""
    said = normalise_answer(prediction)
    return min(1.0, sum(normalise_answer(one) == said for one in answers) / 3)


def exact_match(
    prediction: str, answers: Sequence[str], *, normalise: Callable[[str], str] = normalise_answer
) -> float:
    """1 where the normalised prediction is one of the normalised answers. Where nothing is left, it is wrong."""
    said = normalise(prediction)
    return float(bool(said) and any(normalise(one) == said for one in answers))


def _without_punctuation(text: str) -> str:
    joins = _COMMA_IN_NUMBER.search(text) is not None
    out = text
    for mark in _PUNCTUATION:
        if mark in text:
            out = out.replace(mark, "" if joins or f"{mark} " in text or f" {mark}" in text else " ")
    return _PERIOD.sub("", out, count=_MOST_PERIODS)


def _digits_and_articles(text: str) -> str:
    words = (_NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(_SPELLED.get(word, word) for word in words if word not in _ARTICLES)
