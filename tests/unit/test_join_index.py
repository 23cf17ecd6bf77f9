"""The index of a join against a join by a Python dict, in one bucket and in many; what it refuses; where it lies."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.mix.join_index import Column, build_join_index, join_index_path
from omniloom.data.sample import RawSample
from omniloom.errors import DatasetError, SkipSample


class Keys:
    """Rows that are nothing but keys; ``None`` stands for a row that is left out."""

    def __init__(self, keys: list[str | None]) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"Keys({self.keys!r})"

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, row: int) -> RawSample:
        key = self.keys[row]
        if key is None:
            raise SkipSample("excluded")
        return RawSample(key, "keys.tar", {"txt": key.encode()})

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        return "keys.tar", None

    def parts_of_first_row(self) -> frozenset[str]:
        return frozenset({"txt"})


def built(columns: list[Column], bucket_rows: int) -> list[list[int]]:
    with tempfile.TemporaryDirectory() as folder:
        return np.load(build_join_index(columns, Path(folder), bucket_rows=bucket_rows)).tolist()  # type: ignore[no-any-return]


names = st.one_of(st.none(), st.integers(0, 60).map("k{}".format))


@given(
    primary=st.lists(names, max_size=40),
    secondaries=st.lists(
        st.tuples(
            st.lists(names, max_size=40, unique_by=lambda key: key or object()), st.sampled_from(["skip", "none"])
        ),
        min_size=1,
        max_size=3,
    ),
    bucket_rows=st.sampled_from([1, 3, 1_000]),
)
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_a_join_by_hand(
    primary: list[str | None], secondaries: list[tuple[list[str | None], str]], bucket_rows: int
) -> None:
    expected = []
    for row, key in enumerate(primary):
        partners = [keys.index(key) if key is not None and key in keys else -1 for keys, _ in secondaries]
        skipped = any(p < 0 and rule == "skip" for p, (_, rule) in zip(partners, secondaries, strict=True))
        if key is not None and not skipped:
            expected.append([row, *partners])
    columns = [Column(Keys(primary), "error", "primary")]
    columns += [Column(Keys(keys), rule, "secondary") for keys, rule in secondaries]  # type: ignore[arg-type]
    assert built(columns, bucket_rows) == expected


@pytest.mark.parametrize("bucket_rows", [2, 1_000])
def test_keys_that_come_twice_and_partners_that_are_missing_are_named(bucket_rows: int) -> None:
    primary = Column(Keys(["a", "b", "a", "c"]), "error", "first")
    once = Column(Keys(["c", "x", "b", "a"]), "error", "second")
    assert built([primary, once], bucket_rows) == [[0, 3], [1, 2], [2, 3], [3, 0]]
    twice = Column(Keys(["c", "a", "b", "a"]), "none", "second")
    with pytest.raises(DatasetError, match="second: 1 keys come more than once, so that it cannot be joined: 'a'"):
        built([primary, twice], bucket_rows)
    with pytest.raises(DatasetError, match=r"second: no sample for 1 of 4 keys of first, such as 'c'\. Set its `nonm"):
        built([primary, Column(Keys(["a", "b"]), "error", "second")], bucket_rows)


def test_an_index_is_kept_where_it_can_be_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "mine"))
    columns = [Column(Keys(["a", "b"]), "error", "first"), Column(Keys(["b"]), "skip", "second")]
    beside = join_index_path(columns, cache_folder=str(tmp_path / "mix.yaml.cache"))
    assert Path(beside).parent == tmp_path / "mix.yaml.cache/omniloom"
    stamp = Path(beside).stat().st_mtime_ns
    assert join_index_path(columns, cache_folder=str(tmp_path / "mix.yaml.cache")) == beside
    assert Path(beside).stat().st_mtime_ns == stamp
    (tmp_path / "taken").write_text("a file where a folder would be")
    elsewhere = join_index_path(columns, cache_folder=str(tmp_path / "taken"))
    assert Path(elsewhere).parent == tmp_path / "mine"
    assert "a join's index cannot be kept here" in caplog.text
    other = [columns[0], Column(Keys(["b"]), "none", "second")]
    assert join_index_path(other, cache_folder=None) != elsewhere
    assert len(list((tmp_path / "mine").iterdir())) == 2
