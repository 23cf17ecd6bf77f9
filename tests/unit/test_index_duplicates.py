"""Keys that several shards have, found by an external sort."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.index import duplicates
from omniloom.data.index.duplicates import KeyedShard, find_duplicates


def _shards(lists: Sequence[Sequence[str]]) -> list[KeyedShard]:
    return [
        KeyedShard(number, len(keys), (min(keys), max(keys)) if keys else None, lambda keys=keys: list(keys))
        for number, keys in enumerate(lists)
    ]


def test_ordered_shards_are_not_even_read(tmp_path: Path) -> None:
    def unread() -> list[str]:
        raise AssertionError("their ranges do not meet")

    shards = [KeyedShard(n, 10, (f"{n}0", f"{n}9"), unread) for n in (3, 1, 2)] + [KeyedShard(4, 0, None, unread)]
    assert find_duplicates(shards, work_folder=tmp_path) == (0, [])


def test_places_of_a_repeated_key(tmp_path: Path) -> None:
    found = find_duplicates(_shards([["b", "a"], ["c"], ["x", "a", "d"], ["a"]]), work_folder=tmp_path)
    assert found.repeated == 2
    assert found.examples == [("a", [(0, 1), (2, 1), (3, 0)])]
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sets(st.text("ab", max_size=4), max_size=8).map(sorted), max_size=5))
def test_same_as_counting(tmp_path_factory: pytest.TempPathFactory, lists: list[list[str]]) -> None:
    counts = Counter(key for keys in lists for key in keys)
    found = find_duplicates(_shards(lists), work_folder=tmp_path_factory.getbasetemp())
    assert found.repeated == sum(count - 1 for count in counts.values())
    assert [example.key for example in found.examples] == sorted(key for key, n in counts.items() if n > 1)[:20]


def test_many_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_KEYS", 500)
    draw = random.Random(5)
    keys = [f"{draw.getrandbits(60):x}" for _ in range(10_000)]
    lists = [keys[at::10] for at in range(10)]
    assert find_duplicates(_shards(lists), work_folder=tmp_path) == (0, [])
    lists[9] += lists[2][:3]
    found = find_duplicates(_shards(lists), work_folder=tmp_path)
    assert found.repeated == 3
    assert {example.key for example in found.examples} == set(lists[2][:3])


def test_everything_twice(tmp_path: Path) -> None:
    keys = [f"{number:05}" for number in range(3_000)]
    found = find_duplicates(_shards([keys, keys]), work_folder=tmp_path)
    assert found.repeated == 3_000
    assert len(found.examples) == 20
