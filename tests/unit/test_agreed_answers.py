"""Of several answers, the one that is most like all of them: by hand, and as the vote of a majority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.evaluate.agreed import most_alike
from omniloom.evaluate.scores.captions import agreement
from omniloom.generate.prompts import Answer

ONE_WORD = st.lists(st.sampled_from(["yes", "no", "red", "blue"]), min_size=1, max_size=9)


def chosen(*texts: str) -> str:
    return most_alike([Answer(text, True) for text in texts]).text


def test_by_hand() -> None:
    """Bigrams: ``a dog`` is shared, ``dog runs`` and ``dog sits`` are not.

    Of "a dog runs" and "a dog sits" words agree to 2/3, bigrams to 1/2, longer ones not at all: (2/3 + 1/2) / 4. Each
    agrees with itself in three orders of n-grams: 3/4; and with the empty text not at all.
    """
    worth = agreement([["a", "dog", "runs"], ["a", "dog", "sits"], []])
    both = (3 / 4 + (2 / 3 + 1 / 2) / 4) / 3
    assert worth == pytest.approx([both, both, 0])


def test_what_is_said_oftener_is_given_although_the_first_said_another() -> None:
    assert chosen("a man on a bike", "a dog in the grass", "a dog runs in the grass") != "a man on a bike"
    assert chosen("", "a dog", "") == "a dog"
    assert chosen("") == ""


@given(ONE_WORD)
def test_of_answers_of_a_word_the_majority_is_given(texts: list[str]) -> None:
    most = max(texts.count(text) for text in texts)
    assert texts.count(chosen(*texts)) == most
