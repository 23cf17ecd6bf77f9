"""Restore keys: to plain values and back, and onto values that have room for one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from omniloom.data.pipeline.restore import BatchKey, key_of, plain_key, renumbered, with_restore_key
from omniloom.data.sample import PackKey, SampleKey
from omniloom.errors import StateError

ONE, OTHER = SampleKey(0, 3, 17), SampleKey(1, 0, 4, 2)
PACK = PackKey((ONE, OTHER), 1)


@pytest.mark.parametrize("key", [ONE, OTHER, PACK, BatchKey((ONE, OTHER)), BatchKey((PACK, ONE), 3)])
def test_a_key_survives_json(key: Any) -> None:
    assert key_of(json.loads(json.dumps(plain_key(key))), leaves=2) == key


def test_plain_forms_are_what_the_documents_say() -> None:
    assert plain_key(ONE) == (0, 3, 17, 0)
    assert plain_key(PACK) == ("pack", 1, (0, 3, 17, 0), (1, 0, 4, 2))
    assert plain_key(BatchKey((PACK,))) == ("batch", 0, ("pack", 1, (0, 3, 17, 0), (1, 0, 4, 2)))
    assert key_of([[0, 3, 17], [1, 0, 4, 2]], leaves=2) == BatchKey((ONE, OTHER))  # a list of keys is a batch


@pytest.mark.parametrize(
    "plain",
    [
        (), "text", 5, None, (0, 1), (0, 1, 2, 3, 4), (2, 0, 0), (-1, 0, 0), (0, "x", 1), ("pack",), ("pack", 0),
        ("pack", 0, ("pack", 0, (0, 0, 0))), ("batch", 0, ("batch", 0, (0, 0, 0))), ("Webdataset", 5), [["x"]],
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused_with_what_is(plain: Any) -> None:
    with pytest.raises(StateError, match=r"found; \(data set, epoch, row\[, part\]\), \('pack', part, \*samples\)"):
        key_of(plain, leaves=2)


@dataclass
class Roomy:
    __restore_key__: Any = None


@dataclass(frozen=True)
class Frozen:
    __restore_key__: Any = None


def test_it_is_set_where_there_is_room() -> None:
    assert with_restore_key(Roomy(), ONE) == Roomy((0, 3, 17, 0))
    assert with_restore_key(Frozen(), ONE) == Frozen((0, 3, 17, 0))
    assert with_restore_key({"__restore_key__": None}, ONE) == {"__restore_key__": (0, 3, 17, 0)}
    assert with_restore_key({"text": "x"}, ONE) == {"text": "x"}
    assert with_restore_key("text", ONE) == "text"


def test_what_waits_is_renumbered_in_a_changed_mix_and_dropped_with_its_data_set() -> None:
    state = {"again": [[0, 0, 5, 0], [1, 0, 6, 0]], "waiting": [["pack", 0, [0, 0, 1, 0], [1, 0, 2, 0]]], "index": 3}
    assert renumbered(state, ["a", "b"], ["c", "b", "a"]) == {
        "again": [[2, 0, 5, 0], [1, 0, 6, 0]],
        "waiting": [["pack", 0, [2, 0, 1, 0], [1, 0, 2, 0]]],
    }
    assert renumbered(state, ["a", "b"], ["b"]) == {"again": [[0, 0, 6, 0]], "waiting": [["pack", 0, [0, 0, 2, 0]]]}
    assert renumbered({"index": 3}, ["a"], ["a"]) == {}
