"""Stop texts across token borders, and text shown while it grows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.errors import ConfigError
from omniloom.generate.batches import batches_by_tokens
from omniloom.generate.stops import GrowingText, text_before_stop

LETTERS = st.text("ab <|", max_size=14)
STOPS = st.lists(st.text("ab <|", min_size=1, max_size=4), max_size=3)


def character_by_character(text: str, stops: Sequence[str]) -> str | None:
    """The definition: reading stops at the first character with which a stop text is whole."""
    for end in range(len(text) + 1):
        fitting = [stop for stop in stops if text[:end].endswith(stop)]
        if fitting:
            return text[: end - max(map(len, fitting))]
    return None


@given(LETTERS, STOPS)
def test_a_cut_is_that_of_reading_character_by_character(text: str, stops: list[str]) -> None:
    assert text_before_stop(text, stops) == character_by_character(text, stops)


@pytest.mark.parametrize(
    ("text", "stops", "before"),
    [
        ("a cat.\nUSER: more", ["\nUSER:"], "a cat."),
        ("a cat</s", ["</s>"], None),
        ("xabc", ["ab", "xabc"], "x"),
        ("xab", ["ab", "xab"], ""),
        ("aab", ["ab"], "a"),
        ("", ["a"], None),
        ("a", [], None),
    ],
)
def test_cuts(text: str, stops: list[str], before: str | None) -> None:
    assert text_before_stop(text, stops) == before


@given(st.lists(st.text("ab <|é😀", min_size=1, max_size=3), max_size=8), STOPS)
def test_what_is_shown_is_the_answer_and_never_taken_back(tokens: list[str], stops: list[str]) -> None:
    growing = GrowingText(stops)
    shown, text = "", ""
    # Byte by byte, as byte-level tokens may come; a broken character decodes to U+FFFD.
    data = "".join(tokens).encode()
    for end in range(1, len(data) + 1):
        text = data[:end].decode(errors="replace")
        shown += growing.more(text)
        if text_before_stop(text, stops) is not None:
            break
    before = text_before_stop(text, stops)
    answer = (text if before is None else before).strip()
    assert answer.startswith(shown)
    assert shown + growing.rest(answer) == answer


def test_text_is_shown_as_early_as_it_can_be() -> None:
    growing = GrowingText(["\nUSER"])
    steps = [" A", " A cat", " A cat \n", " A cat \nUSA", " A cat \nUSA\ufffd"]
    assert [growing.more(text) for text in steps] == ["A", " cat", "", " \nUSA", ""]
    assert growing.rest("A cat \nUSAé") == "é"


def test_a_decoder_that_changed_its_mind_shows_the_answer_again() -> None:
    growing = GrowingText()
    assert growing.more("do n't") == "do n't"
    assert growing.more("don't go") == ""
    assert growing.rest("don't go") == "\ndon't go"


@given(st.lists(st.integers(1, 60)), st.integers(1, 100), st.integers(1, 6))
def test_batches_keep_order_and_bounds(sizes: list[int], budget: int, rows: int) -> None:
    batches = list(batches_by_tokens(sizes, tokens=int, budget_tokens=budget, most_rows=rows))
    assert [size for batch in batches for size in batch] == sizes
    for number, batch in enumerate(batches):
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or max(batch) * len(batch) <= budget
        if number + 1 < len(batches):  # the next one would not have gone in as well
            more = [*batch, batches[number + 1][0]]
            assert len(more) > rows or max(more) * len(more) > budget


def test_batches_take_one_thing_more_and_no_bound_below_one() -> None:
    taken = []

    def things():
        for number in range(10):
            taken.append(number)
            yield number

    assert next(batches_by_tokens(things(), tokens=lambda _: 1, budget_tokens=3, most_rows=9)) == [0, 1, 2]
    assert taken == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="budget_tokens 0 and most_rows 4"):
        list(batches_by_tokens([1], tokens=int, budget_tokens=0, most_rows=4))
