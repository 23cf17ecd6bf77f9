"""Open answers as MMMU's evaluator compares them (Yue et al. 2024): numbers to two decimals, texts by containment."""

from __future__ import annotations

import re
from collections.abc import Sequence

Value = str | float

_SENTENCES = re.compile(r"\.\s(?=[A-Z])|\n")
_INDICATORS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
_NOTHING = frozenset(":,.!?;'")
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)


def mmmu_open_values(response: str) -> list[Value]:
    """The texts and numbers in a response that may be its answer: each once, in the order in which they were found."""
    parts = _key_parts(response)
    found = [*parts, *(number for part in parts for pattern in _NUMBERS for number in pattern.findall(part))]
    return list(dict.fromkeys(value for text in found for value in _normalised(text)))


def mmmu_open_correct(values: Sequence[Value], answers: Sequence[str]) -> bool:
    """Whether a right answer is contained in one of the texts, or equal to one of the numbers."""
    right = [value for answer in answers for value in _normalised(answer)]
    texts = [value for value in right if isinstance(value, str)]
    return any(value in right if isinstance(value, float) else any(text in value for text in texts) for value in values)


def _key_parts(response: str) -> list[str]:
    """The shortest text after a word that announces an answer, of each sentence; all where there is none."""
    # Lower case comes first there too, so that only line ends separate sentences.
    lowered = response.strip().strip(".").lower()
    sentences = _SENTENCES.split(lowered)
    parts = []
    for index, sentence in enumerate(sentences):
        indicators = (*_INDICATORS, "=") if index == len(sentences) - 1 else _INDICATORS
        tails = [sentence.split(indicator)[-1].strip() for indicator in indicators if indicator in sentence]
        shortest = ""
        for tail in tails:  # an empty tail is replaced by the next one, as there
            if not shortest or len(tail) < len(shortest):
                shortest = tail
        if shortest and shortest not in _NOTHING:
            parts.append(shortest)
    return parts or [lowered]


def _normalised(text: str) -> list[Value]:
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        lowered = text.lower()
        return [f" {lowered}", f"{lowered} "] if len(lowered) == 1 else [lowered]
