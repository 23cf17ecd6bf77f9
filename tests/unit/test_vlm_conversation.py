"""Placeholders are parts, not substrings; mismatches are found sample by sample (case C31)."""

from __future__ import annotations

import pytest

from omniloom.errors import SampleError
from omniloom.vlm.conversation import (
    MEGATRON_PLACEHOLDERS,
    ImagePart,
    PlaceholderPolicy,
    Turn,
    read_conversation,
)

Said = list[dict[str, object]]


def _said(*texts: str) -> Said:
    return [{"from": ("human", "gpt")[n % 2], "value": text} for n, text in enumerate(texts)]


def _images(turns: tuple[Turn, ...]) -> list[int]:
    return [part.index for turn in turns for part in turn.parts if isinstance(part, ImagePart)]


def test_a_placeholder_in_an_answer_stays_text() -> None:
    turns = read_conversation(_said("<image>\nWhich tag?", "Write <image> there."), images=1)
    assert turns[0].parts == (ImagePart(0), "\nWhich tag?")
    assert turns[1].parts == ("Write <image> there.",)


def test_an_image_without_placeholder_comes_first_or_is_refused() -> None:
    turns = read_conversation(_said("What?", "A cat."), images=2)
    assert turns[0].parts == (ImagePart(0), ImagePart(1), "\n", "What?")
    with pytest.raises(SampleError, match="0 placeholders for 1 image") as caught:
        read_conversation(_said("What?", "A cat."), images=1, policy=PlaceholderPolicy(unplaced="reject"))
    assert caught.value.reason == "placeholder-count"


@pytest.mark.parametrize(("text", "images"), [("<image><image> a", 1), ("<image> a", 0), ("<image> a", 2)])
def test_a_mismatch_is_refused(text: str, images: int) -> None:
    with pytest.raises(SampleError, match=f"placeholders? for {images} image") as caught:
        read_conversation(_said(text, "b"), images=images)
    assert caught.value.reason == "placeholder-count"


def test_megatrons_policy_repeats_deletes_and_prepends() -> None:
    def shown(text: str, images: int) -> tuple[object, ...]:
        return read_conversation(_said(text, "b"), images=images, policy=MEGATRON_PLACEHOLDERS)[0].parts

    assert shown("<image><image>a", 1) == (ImagePart(0), ImagePart(0), "a")
    assert shown("<image>a", 0) == ("a",)
    assert shown("<image>a", 3) == (ImagePart(0), ImagePart(1), "\n", ImagePart(2), "a")
    with pytest.raises(SampleError):
        shown("<image><image><image>a", 2)


def test_a_placeholder_in_the_system_turn_is_one() -> None:
    said = [{"role": "system", "content": "Look: <image>"}, *_said("a", "b")]
    assert _images(read_conversation(said, images=1)) == [0]


def test_numbers_name_images_in_any_order() -> None:
    turns = read_conversation(_said("<image-2> or <image-1>?", "One.", "And <image-2>?", "Two."), images=2)
    assert _images(turns) == [1, 0, 1]
    with pytest.raises(SampleError, match="names image 3, and there are 2"):
        read_conversation(_said("<image-3>", "b"), images=2)
    with pytest.raises(SampleError, match="1 placeholder for 2 images"):
        read_conversation(_said("<image-1>", "b"), images=2)


def test_messages_with_parts_need_no_placeholders_and_keep_literal_ones() -> None:
    content = [{"type": "image"}, {"type": "text", "text": "What does <image> mean?"}]
    turns = read_conversation([{"role": "user", "content": content}, {"role": "assistant", "content": "x"}], images=1)
    assert turns[0].parts == (ImagePart(0), "What does <image> mean?")


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"from": "narrator", "value": "a"}, "bad-role"),
        ({"from": "human"}, "bad-content"),
        ({"from": "gpt", "value": [{"type": "image"}]}, "bad-content"),
    ],
)
def test_odd_turns_are_refused(turn: dict[str, object], reason: str) -> None:
    with pytest.raises(SampleError) as caught:
        read_conversation([turn], images=0)
    assert caught.value.reason == reason


def test_no_turns_are_refused() -> None:
    with pytest.raises(SampleError, match="no turns"):
        read_conversation([], images=0)
