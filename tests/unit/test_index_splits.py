"""Split files: ratio arithmetic, patterns, excludes, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.data.index.split_plan import SplitPlan, plan_splits
from omniloom.data.index.splits import (
    encode_splits,
    parse_part_patterns,
    parse_ratio,
    read_splits,
    split_by_patterns,
    split_by_ratio,
)
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.errors import ConfigError, DatasetError


def _names(count: int) -> list[str]:
    return [f"s{number:03d}.tar" for number in range(count)]


def _sizes(count: int, ratio: str) -> list[int]:
    return [len(names) for names in split_by_ratio(_names(count), parse_ratio(ratio)).values()]


@pytest.mark.parametrize(
    ("count", "ratio", "sizes"),
    [
        # Worked out with Energon's rule: borders at int(count * cumulated share), in doubles.
        (10, "8,1,1", [8, 1, 1]),
        (22, "8,1,1", [17, 2, 3]),
        (3, "1,0,0", [3, 0, 0]),
        (20, "0.9,0.1,0", [18, 2, 0]),
        (5, "9,1,0", [4, 1, 0]),
        (100, "29,71,0", [28, 72, 0]),  # 0.29 * 100 is 28.999999999999996
        # Energon's rounding loses the last shard of these; it goes to the last part instead.
        (10, "7,2,1", [7, 2, 1]),
        (10, "0.7,0.1,0.2", [7, 0, 3]),
    ],
)
def test_ratio_arithmetic(count: int, ratio: str, sizes: list[int]) -> None:
    assert _sizes(count, ratio) == sizes


@given(st.integers(0, 400), st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any), st.booleans())
def test_no_shard_is_lost_and_borders_are_energons(count: int, shares: list[int], shuffle: bool) -> None:
    names = _names(count)
    parts = split_by_ratio(names, dict(zip("abc", shares, strict=True)), shuffle_seed=42 if shuffle else None)
    expected = list(names)
    if shuffle:
        random.Random(42).shuffle(expected)
    assert [name for part in parts.values() for name in part] == expected
    cumulated = 0.0
    borders = []
    for share in shares:
        cumulated += share / sum(shares)
        borders.append(int(count * cumulated))
    last = max(at for at, share in enumerate(shares) if share)
    found = [sum(len(parts[key]) for key in "abc"[: at + 1]) for at in range(3)]
    assert found[:last] == borders[:last]


@pytest.mark.parametrize("text", ["", "1", "1,2", "1,2,3,4", "a,b,c", "0,0,0", "-1,1,1", "nan,1,1", "inf,1,1", "1;1;1"])
def test_unusable_ratios(text: str) -> None:
    with pytest.raises(ConfigError, match="three numbers"):
        parse_ratio(text)


def test_patterns_match_the_beginning_and_keep_their_backslashes() -> None:
    names = ["train/s0.tar", "train/s1.tar", "val/s0.tar", "x/train/s0.tar"]
    patterns = parse_part_patterns([r"train:train/s\d+\.tar$", "val:{val,x}/", "none:zzz"])
    assert split_by_patterns(names, patterns) == {"train": names[:2], "val": names[2:], "none": []}


@pytest.mark.parametrize(
    ("texts", "told"),
    [(["train"], "no name"), ([":x"], "no name"), (["a:("], "no regular expression"), (["a:x", "a:y"], "given twice")],
)
def test_unusable_patterns(texts: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_part_patterns(texts)


@pytest.mark.parametrize("name", ["split.yaml", "split.json"])
def test_written_and_read_again(name: str, tmp_path: Path) -> None:
    parts = {"train": ["a/s{0}.tar", *_names(12)], "val": ["b.tar"], "test": []}
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta" / name).write_text(encode_splits(parts, name=name, exclude=["s001.tar", "b.tar/{k1,k2}"]))
    splits = read_splits(tmp_path)
    assert splits.parts == parts
    assert splits.exclude == {"s001.tar", "b.tar/k1", "b.tar/k2"}
    assert "s001.tar" not in splits.shards_of("train")
    assert splits.excluded_keys(["b.tar"]) == {"b.tar": {"k1", "k2"}}


def test_keys_with_slashes_are_told_from_folders(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta/split.yaml").write_text(
        "split_parts: {train: [a/b.tar]}\nexclude: [a/b.tar/v1.0/0001, zz/x]\n"
    )
    assert read_splits(tmp_path).excluded_keys({"a/b.tar": 3}) == {"a/b.tar": {"v1.0/0001"}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train: [a.tar]", "expected a mapping with the key 'split_parts'"),
        ("split_parts: {train: a.tar}", "split part 'train' is 'a.tar'; expected a list"),
        ("split_parts: {train: [1]}", "expected a list of texts"),
        ("split_parts: {}\nfoo: 1", "unknown keys ['foo']"),
        ("split_parts: {train: ['{a']}", "without its partner"),
        ("split_parts: {train: ['../x.tar']}", "'../x.tar' lies outside the data set"),
        ("split_parts: {train: [/x.tar]}", "'/x.tar' lies outside the data set"),
    ],
)
def test_damaged_split_files(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta/split.yaml").write_text(text)
    with pytest.raises(DatasetError) as error:
        read_splits(tmp_path)
    assert told in str(error.value)
    assert "split.yaml" in str(error.value)


def test_unknown_and_empty_parts(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta/split.yaml").write_text(
        "split_parts: {train: [a.tar], val: [], odd: [b.tar]}\nexclude: [b.tar]"
    )
    splits = read_splits(tmp_path)
    with pytest.raises(DatasetError, match=r"no split part 'tarin'; there are \['odd', 'train', 'val'\]"):
        splits.shards_of("tarin")
    with pytest.raises(DatasetError, match="split part 'val' is empty"):
        splits.shards_of("val")
    with pytest.raises(DatasetError, match="split part 'odd' has only excluded shards"):
        splits.shards_of("odd")


def test_missing_split_file_and_wrong_suffix(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no split file"):
        read_splits(tmp_path, split_config="other.yaml")
    with pytest.raises(ConfigError, match=r"ends in \.yaml or \.json"):
        read_splits(tmp_path, split_config="split.toml")


@pytest.mark.parametrize(
    ("count", "ratio", "empty", "advice"),
    [(1, "9,1,0", "train", "1,0,0"), (3, "8,1,1", "val", "1,1,1"), (4, "8,1,1", "val", "2,1,1")],
)
def test_an_empty_part_is_an_error_with_a_ratio_that_works(count: int, ratio: str, empty: str, advice: str) -> None:
    with pytest.raises(DatasetError, match=f"split part '{empty}' would be empty") as error:
        SplitPlan(ratio=parse_ratio(ratio)).deal(_names(count))
    assert f"such as {advice}." in str(error.value)
    SplitPlan(ratio=parse_ratio(advice)).deal(_names(count))


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    plan = plan_splits(tmp_path, split_parts=["train:s", "val:none/"], split_config="split.yaml")
    with pytest.raises(DatasetError, match="split part 'val' would be empty: none of the 3 shards begins with 'none/'"):
        plan.deal(_names(3))


def test_kept_splits_take_new_shards(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    parts = {"train": ["s000.tar", "gone.tar"], "val": ["s001.tar"]}
    text = json.dumps({"split_parts": parts, "exclude": ["s002.tar"]})
    (tmp_path / ".nv-meta/split.json").write_text(text)
    plan = plan_splits(tmp_path, split_config="split.yaml", keep_split=True)
    assert plan.deal(_names(5)) == {"train": ["s000.tar", "s003.tar", "s004.tar"], "val": ["s001.tar"]}
    assert plan.excluded() == ["s002.tar"]
    plan = plan_splits(tmp_path, split_config="split.yaml", keep_split=True, split_ratio="0,1,1")
    assert plan.deal(_names(5)) == {"train": ["s000.tar"], "val": ["s001.tar", "s003.tar"], "test": ["s004.tar"]}


def test_yaml_of_the_split_is_the_dialects(tmp_path: Path) -> None:
    text = encode_splits({"train": ["010.tar"], "1e3": []}, name="split.yaml")
    assert load_yaml(text, name="x") == {"split_parts": {"train": ["010.tar"], "1e3": []}, "exclude": []}
