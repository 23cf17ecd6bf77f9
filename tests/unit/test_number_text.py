"""Lists of numbers as texts: exact, of a size known by hand, damaged ones refused."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.data.loader.number_text import numbers_of_text, text_of_numbers
from omniloom.data.loader.state import LaneState, pack_lane, unpack_lane
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.errors import StateError


@given(st.lists(st.integers(-(2**70), 2**70)))
def test_any_numbers_come_back(numbers: list[int]) -> None:
    text = text_of_numbers(numbers)
    assert json.loads(json.dumps(text)) == text
    assert numbers_of_text(text) == numbers


def test_four_bytes_are_five_characters() -> None:
    # Bytes 0, 1, 2, 3 are 66,051 = 9 x 85 x 85 + 12 x 85 + 6; the digits 0, 0, 9, 12, 6 are written so.
    assert text_of_numbers([0, -1, 1, -2]) == "009C6"
    assert len(text_of_numbers([63] * 4)) == 5  # a byte each
    assert len(text_of_numbers([64] * 4)) == 10  # two bytes each


@pytest.mark.parametrize(("text", "words"), [('"', "no list of numbers"), ("zz", "cut short")])
def test_damaged_texts_are_refused(text: str, words: str) -> None:
    with pytest.raises(StateError, match=words):
        numbers_of_text(text)


def test_shares_of_tokens_of_a_large_job_take_less_than_twenty_megabytes() -> None:
    """12,288 lanes x 100 leaves, 200,000 draws a lane: the bar is 20 MB for all lanes."""
    leaves = tuple(Leaf(f"leaf-{n:03d}", 1_000_000, 1.0 + n % 7) for n in range(100))
    stream = Plan(leaves, shuffle=Shuffle(runs=True, block_rows=2_000), weights_in="tokens").open(Lane(5, 12_288))
    for key in islice(stream, 200_000):
        stream.tell(key.dataset, 300 + key.row % 1_000 + 20 * key.dataset)  # type: ignore[attr-defined]
    state = stream.state_dict()
    packed = json.dumps(pack_lane(LaneState(9, state), [leaf.name for leaf in leaves]), separators=(",", ":"))
    assert len(packed) * 12_288 < 18_000_000
    assert unpack_lane(json.loads(packed), [leaf.name for leaf in leaves]).stream == state
