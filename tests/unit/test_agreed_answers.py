"""Of several answers, the one that is most like all of them: by hand, and as the vote of a majority."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.evaluate.agreed import most_alike
from omniloom.evaluate.scores.captions import Rarity, agreement
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


def test_what_is_rare_in_texts_counts_for_more() -> None:
    """In four texts ``a`` is in all, ``dog`` in two, ``runs`` in one: they weigh log 1, log 2, log 4; ``sits`` log 4.

    Of "a dog" and "dog runs" the word ``dog`` agrees: log 2 squared, over the norms log 2 and root of log 2 squared and
    log 4 squared; a quarter of that, as no longer n-gram agrees. Bigrams are as rare as can be, each in one order.
    """
    rarity = Rarity.in_texts([["a", "dog", "runs"], ["a", "dog"], ["a", "cat"], ["a", "b"]])
    low, high = math.log(2), math.log(4)
    alike = low * low / (low * math.hypot(low, high)) / 4
    worth = agreement([["a", "dog"], ["dog", "runs"]], rarity=rarity)
    assert worth == pytest.approx([(1 / 2 + alike) / 2] * 2)


def test_what_is_said_oftener_is_given_although_the_first_said_another() -> None:
    assert chosen("a man on a bike", "a dog in the grass", "a dog runs in the grass") != "a man on a bike"
    assert chosen("", "a dog", "") == "a dog"
    assert chosen("") == ""


@given(ONE_WORD)
def test_of_answers_of_a_word_the_majority_is_given(texts: list[str]) -> None:
    most = max(texts.count(text) for text in texts)
    assert texts.count(chosen(*texts)) == most
