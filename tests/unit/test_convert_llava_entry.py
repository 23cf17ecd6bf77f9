"""Shapes of LLaVA entries, as people's files have them, come out in one shape."""

from __future__ import annotations

from typing import Any

import pytest

from omniloom.data.convert.llava_entry import read_llava_entry
from omniloom.errors import SampleError

ASKED = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]


@pytest.mark.parametrize(
    ("image", "names", "shape"),
    [
        ({"image": "a.jpg"}, ("a.jpg",), "image: string"),
        ({"image": ["a.jpg"]}, ("a.jpg",), "image: list"),
        ({"image": ["a.jpg", "b.jpg"]}, ("a.jpg", "b.jpg"), "image: list"),
        ({"images": ["a.jpg"]}, ("a.jpg",), "image: list"),
        ({"image": None}, (), "image: null"),
        ({"image": ""}, (), "image: empty"),
        ({"image": []}, (), "image: empty"),
        ({}, (), "image: absent"),
    ],
)
def test_image_shapes(image: dict[str, Any], names: tuple[str, ...], shape: str) -> None:
    entry = read_llava_entry({"id": "a", "conversations": ASKED, **image}, position=0)
    assert entry.images == names
    assert shape in entry.shapes
    assert entry.extra == {}


def test_roles_and_ids_and_unknown_fields() -> None:
    entry = read_llava_entry(
        {
            "id": 1,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi", "weight": 0},
                {"role": "assistant", "content": "Ho"},
            ],
            "model": "x",
            "nested": {"a": [1]},
        },
        position=7,
    )
    assert entry.identifier == "1"
    assert entry.turns == [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Hi", "weight": 0},
        {"from": "gpt", "value": "Ho"},
    ]
    assert entry.extra == {"model": "x", "nested": {"a": [1]}}
    assert entry.shapes == ("id: integer", "image: absent", "roles: other")
    assert entry.notices == ()


def test_an_entry_of_the_guides_form_is_not_changed() -> None:
    entry = read_llava_entry({"id": "004539375", "image": "00453/004539375.jpg", "conversations": ASKED}, position=0)
    assert entry.turns == ASKED
    assert [list(turn) for turn in entry.turns] == [["from", "value"]] * 2
    assert entry.is_one_question


def test_missing_id_is_its_position() -> None:
    entry = read_llava_entry({"conversations": ASKED, "image": "a.jpg"}, position=12)
    assert entry.identifier == "entry-000000012"
    assert entry.notices == (("missing-id", "named entry-000000012"),)


@pytest.mark.parametrize(
    ("images", "text", "noticed"),
    [(1, "<image> x", False), (1, "x", False), (0, "x", False), (2, "<image><image>", False),
     (1, "<image><image>", True), (0, "<image>", True), (2, "x", True)],
)  # fmt: skip
def test_placeholders_are_counted_against_images(images: int, text: str, noticed: bool) -> None:
    turns = [{"from": "human", "value": text}, {"from": "gpt", "value": "I see <image> literally."}]
    entry = read_llava_entry({"id": "a", "image": ["a.jpg"] * images, "conversations": turns}, position=0)
    assert ["placeholder-count"] * noticed == [reason for reason, _ in entry.notices]


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        ([1], "not-an-object", "found a list"),
        (None, "not-an-object", "found nothing"),
        ({"id": True, "conversations": ASKED}, "bad-id", "found true or false"),
        ({"id": 1.5, "conversations": ASKED}, "bad-id", "found a number"),
        ({"id": "a", "image": 5, "conversations": ASKED}, "bad-image-field", "as image, found a number"),
        (
            {"id": "a", "images": ["a", None], "conversations": ASKED},
            "bad-image-field",
            "in the list images, found nothing",
        ),
        ({"id": "a"}, "bad-conversations", "as conversations, found nothing"),
        ({"id": "a", "conversations": "x"}, "bad-conversations", "found text"),
        ({"id": "a", "conversations": []}, "no-turns", "conversations is an empty list"),
        ({"id": "a", "conversations": ["x"]}, "bad-conversations", "turn 0: expected an object"),
        ({"id": "a", "conversations": [*ASKED, {"from": "human"}]}, "bad-conversations", "turn 2: no text under value"),
        ({"id": "a", "conversations": [{"value": "x"}]}, "bad-conversations", "turn 0: no text under from"),
    ],
)
def test_unknown_shapes_are_refused_with_what_was_found(value: Any, reason: str, message: str) -> None:
    with pytest.raises(SampleError, match=message) as caught:
        read_llava_entry(value, position=0)
    assert caught.value.reason == reason
