"""The grammar of metadatasets: what is read, what is refused and with which words, and what it flattens to."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omniloom as ol
from omniloom.data.mix.flatten import Flat, FlatLeaf, flatten
from omniloom.data.mix.joiners import find_joiner
from omniloom.data.mix.names import stable_names
from omniloom.data.mix.paths import resolve_aux, resolve_path
from omniloom.data.mix.place import Place
from omniloom.data.mix.read import as_node, parse_metadataset, read_metadataset
from omniloom.data.mix.subset import Subset
from omniloom.data.mix.tree import JoinerName, Ref

V2 = "__module__: megatron.energon\n__class__: MetadatasetV2\n"


def write(tmp_path: Path, text: str, name: str = "mix.yaml") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def flat(path: Path, part: str = "train", *, training: bool = True) -> Flat:
    return flatten(Ref(path=str(path)), split_part=part, training=training)


def paths(found: Flat, below: Path) -> list[str]:
    return [str(Path(leaf.path).relative_to(below)) for leaf in found.leaves]


# What is refused

REFUSED = {
    "a key with a near miss": ("splits: {train: {path: a, split_prt: val}}", r"mix\.yaml:3 .*split_prt.*'split_part'"),
    "a key of another program": ("splits: {train: {path: a, ratio: 2}}", r"unknown key 'ratio' in an entry"),
    "a key at the top": ("splits: {train: {path: a}}\nsplit: 3", r"mix\.yaml:4 .*'split'.*Did you mean 'splits'"),
    "a node of two kinds": ("splits: {train: {path: a, blend: []}}", "exactly one of path, blend"),
    "a node of no kind": ("splits: {train: {blends: []}}", "Did you mean 'blend'"),
    "an empty blend": ("splits: {train: {blend: []}}", r"mix\.yaml:3 .*an empty list"),
    "an entry of a blend that is no mapping": ("splits:\n  train:\n    blend:\n      - a", r"mix\.yaml:6 .*'a' found"),
    "a weight that is text": ("splits: {train: {blend: [{path: a, weight: x}]}}", "weight 'x' found"),
    "a negative weight": ("splits: {train: {blend: [{path: a, weight: -1}]}}", "weight -1 found; expected a number"),
    "a truth value as weight": ("splits: {train: {blend: [{path: a, weight: true}]}}", "weight True found"),
    "a weight in epochs": ("splits: {train: {blend_epochized: [{path: a, weight: 1}]}}", "unknown key 'weight'"),
    "repetitions in a blend": ("splits: {train: {blend: [{path: a, repetitions: 1}]}}", "unknown key 'repetitions'"),
    "negative repetitions": ("splits: {train: {blend_epochized: [{path: a, repetitions: -2}]}}", "repetitions -2"),
    "a path that is a number": ("splits: {train: {path: 12}}", "a text expected. Put it in quotes"),
    "no path": ("splits: {train: {path: null}}", "no path"),
    "no splits": ("splits: {}", "no splits"),
    "subflavors that are a list": ("splits: {train: {path: a, subflavors: [1]}}", "a mapping expected"),
    "a multiplier of nought": ("splits: {train: {path: a, shuffle_over_epochs_multiplier: 0}}", "from 1 on, -1"),
    "a range backwards": ("splits: {train: {path: a, subset: {range: [10, 5]}}}", "0 <= start <= end"),
    "a range of two kinds": ("splits: {train: {path: a, subset: {range: [1, 50%]}}}", "two numbers such as"),
    "a share above all": ("splits: {train: {path: a, subset: {range: [0%, 101%]}}}", "from 0% to 100%"),
    "a range of three": ("splits: {train: {path: a, subset: {range: [1, 2, 3]}}}", "two numbers such as"),
    "an aux of no kind": ("splits: {train: {path: a, aux: {img: {pth: x}}}}", "Did you mean 'path'"),
    "a join of one": ("splits: {train: {join: [{path: a}], joiner: {__class__: TextSample}}}", "a join of one data"),
    "a join without joiner": ("splits: {train: {join: [{path: a}, {path: b}]}}", "no joiner"),
    "a first one that may miss": (
        "splits: {train: {join: [{path: a, nonmatch: skip}, {path: b}], joiner: {__class__: TextSample}}}",
        "nonmatch 'skip' on the first",
    ),
    "nonmatch of another word": (
        "splits: {train: {join: [{path: a}, {path: b, nonmatch: drop}], joiner: {__class__: TextSample}}}",
        "nonmatch='drop' found; expected error or skip or none",
    ),
    "a subset within a join": (
        "splits: {train: {join: [{path: a}, {path: b, subset: {range: [1, 2]}}], joiner: {__class__: TextSample}}}",
        "'subset' has no meaning on a data set of a join",
    ),
    "weights within epochs": (
        "splits: {train: {blend_epochized: [{blend: [{path: a}]}]}}", "a blend by weight stands in a mix that counts",
    ),
    "epochs within weights": (
        "splits: {train: {blend: [{blend_epochized: [{path: a}]}]}}", "a mix that counts epochs stands in a blend",
    ),
    "two units": (
        "splits: {train: {weights_in: tokens, blend: [{weights_in: samples, blend: [{path: a}]}]}}",
        "weights_in is tokens here and samples in a blend within it",
    ),
    "rows above a range": (
        "splits: {train: {subset: {range: [1, 9]}, blend: [{path: a, subset: {range: [0%, 50%]}}]}}",
        "a range in rows stands above another range",
    ),
    "a part that is not there": ("splits: {trian: {path: a}}", r"no split part 'train'.*Did you mean 'trian'"),
    "a variable that is not set": ("splits: {train: {path: $NOT_SET_HERE/a}}", "NOT_SET_HERE.*is not set"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named_with_its_line(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    path = write(tmp_path, V2 + text)
    with pytest.raises(ol.ConfigError, match=message) as caught:
        flat(path)
    assert "mix.yaml" in str(caught.value)


def test_v1_says_what_needs_v2(tmp_path: Path) -> None:
    path = write(tmp_path, "splits:\n  train:\n    datasets:\n      - path: a\n        subset: {range: [1, 2]}\n")
    with pytest.raises(ol.ConfigError, match=r"mix\.yaml:5 .*'subset' needs a metadataset V2"):
        flat(path)
    with pytest.raises(ol.ConfigError, match="class 'MetadatasetV3' found; expected Metadataset or MetadatasetV2"):
        flat(write(tmp_path, "__class__: MetadatasetV3\nsplits: {}\n"))


def test_lines_are_told_through_anchors_and_merges(tmp_path: Path) -> None:
    text = "base: &base\n"
    path = write(tmp_path, V2 + text + "splits: {train: {path: a}}\n")
    with pytest.raises(ol.ConfigError, match=r"mix\.yaml:3 \(base\): unknown key 'base'"):
        flat(path)
    merged = "x-one: &one\n  path: a\n  wieght: 2\nsplits:\n  train:\n    blend:\n      - {<<: *one, path: b}\n"
    with pytest.raises(ol.ConfigError, match=r"mix\.yaml:5 .*'wieght'.*'weight'"):
        flat(write(tmp_path, V2 + merged))


# What is read


def test_anchors_merges_variables_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OTHER", raising=False)
    text = """
splits:
  train:
    blend:
      - &one {path: "${DATA}/a", weight: 2, subflavors: {x: 1}}
      - {<<: *one, path: ~/b}
      - {path: "${OTHER:-rel}/c$$"}
"""
    found = flat(write(tmp_path, V2 + text))
    assert paths(found, tmp_path) == ["data/a", "home/b", "rel/c$"]
    assert [leaf.shares[0].at(0) for leaf in found.leaves] == [0.4, 0.4, 0.2]
    assert found.leaves[1].subflavors == {"x": 1}


def test_paths_are_taken_from_the_folder_of_their_file() -> None:
    place = Place()
    assert resolve_path("./x/../a", folder="/mix", place=place) == "/mix/a"
    assert resolve_path("/abs", folder="/mix", place=place) == "/abs"
    assert resolve_path("file:///abs/b", folder="/mix", place=place) == "/abs/b"
    assert resolve_path("msc://p/x", folder="/mix", place=place) == "msc://p/x"
    assert resolve_path("../a", folder="s3://bucket/mixes", place=place) == "s3://bucket/a"
    assert resolve_aux("images", folder="/mix", place=place) == "/mix/images"
    assert resolve_aux("filesystem://images", folder="/mix", place=place) == "filesystem:///mix/images"
    assert resolve_aux("filesystem:///abs", folder="/mix", place=place) == "filesystem:///abs"
    assert resolve_aux("filesystem+msc://p/x", folder="/mix", place=place) == "filesystem+msc://p/x"
    with pytest.raises(ol.ConfigError, match="only 'filesystem' may stand before"):
        resolve_aux("other+msc://p/x", folder="/mix", place=place)


def test_nested_files_have_their_own_folders_and_splits(tmp_path: Path) -> None:
    write(tmp_path, V2 + "splits: {val: {blend: [{path: x}, {path: ../y, weight: 3}]}}", "sub/inner.yaml")
    text = "splits: {train: {blend: [{path: sub/inner.yaml, split_part: val, weight: 1}, {path: z, weight: 1}]}}"
    found = flat(write(tmp_path, V2 + text))
    assert paths(found, tmp_path) == ["sub/x", "y", "z"]
    assert [leaf.split_part for leaf in found.leaves] == ["val", "val", "train"]
    assert [leaf.shares[0].at(0) * (leaf.shares[1].at(0) if leaf.shares[1:] else 1) for leaf in found.leaves] == [
        0.125, 0.375, 0.5,
    ]  # fmt: skip


def test_a_file_that_contains_itself_is_refused_by_its_way(tmp_path: Path) -> None:
    write(tmp_path, V2 + "splits: {train: {path: b.yaml}}", "a.yaml")
    write(tmp_path, V2 + "splits: {train: {blend: [{path: ./sub/../a.yaml}]}, val: {path: a.yaml}}", "b.yaml")
    (tmp_path / "sub").mkdir()
    with pytest.raises(ol.ConfigError, match=r"contains itself: .*a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        flat(tmp_path / "a.yaml")
    # Another part of the same file is no circle.
    write(tmp_path, V2 + "splits: {train: {path: c.yaml, split_part: val}, val: {path: leaf}}", "c.yaml")
    assert paths(flat(tmp_path / "c.yaml"), tmp_path) == ["leaf"]


def test_a_metadataset_takes_no_settings_of_a_data_set(tmp_path: Path) -> None:
    write(tmp_path, V2 + "splits: {train: {path: a}}", "inner.yaml")
    for setting in ("aux: {i: x}", "dataset_config: d.yaml", "split_config: s.yaml"):
        path = write(tmp_path, V2 + f"splits: {{train: {{path: inner.yaml, {setting}}}}}")
        with pytest.raises(ol.ConfigError, match=r"belongs to a data set, but .*inner\.yaml is a metadataset"):
            flat(path)


def test_aux_in_all_its_forms(tmp_path: Path) -> None:
    text = """
splits:
  train:
    path: a
    aux:
      one: ./images
      two: {path: /abs/images}
      three: {fs_path: files}
      four: "filesystem://files"
      five: {fs_path: "msc://p/files"}
"""
    (leaf,) = flat(write(tmp_path, V2 + text)).leaves
    assert leaf.aux == {
        "one": f"{tmp_path}/images",
        "two": "/abs/images",
        "three": f"filesystem://{tmp_path}/files",
        "four": f"filesystem://{tmp_path}/files",
        "five": "filesystem+msc://p/files",
    }


def test_weights_may_be_schedules(tmp_path: Path) -> None:
    text = """
splits:
  train:
    schedule_in: tokens
    weights_in: tokens
    blend:
      - {path: a, weight: {0: 1.0, 1_000_000: 0}}
      - {path: b, weight: {steps: {0: 0, 1e6: 3}}, mean_tokens: 700}
"""
    found = flat(write(tmp_path, V2 + text))
    assert (found.weights_in, found.schedule_in) == ("tokens", "tokens")
    shares = [leaf.shares[0] for leaf in found.leaves]
    assert [share.part.at(500_000) for share in shares] == [0.5, 0]
    assert [share.at(1_000_000) for share in shares] == [0, 1]
    assert found.leaves[1].mean_tokens == 700


# The same from Python


def test_values_of_python_are_the_same_tree(tmp_path: Path) -> None:
    text = """
splits:
  train:
    blend:
      - {path: /d/a, weight: 2, subset: {range: [10%, end]}}
      - weight: {0: 1, 10: 2}
        join: [{path: /d/b}, {path: /d/c, nonmatch: none}]
        joiner: {__class__: TextSample}
      - concat: [{path: /d/e}, {path: /d/f, subflavors: {x: 1}}]
        subset: {range: [0%, 50%]}
"""
    node = read_metadataset(str(write(tmp_path, V2 + text))).splits["train"]
    joined = ol.join(["/d/b", ("/d/c", "none")], joiner="megatron.energon.TextSample")
    both = ol.concat([Path("/d/e"), ol.source("/d/f", subflavors={"x": 1})], subset=("0%", "50%"))
    assert ol.blend(
        [(ol.source("/d/a", subset=("10%", "end")), 2), (joined, {0: 1, 10: 2}), (both, 1.0)]
    ) == node  # fmt: skip
    epochs = ol.blend_epochized([("/d/a", 2.5), (both, 1)])
    assert [repetitions for _, repetitions in epochs.parts] == [Fraction(5, 2), 1]
    assert flatten(as_node({"splits": {"train": epochs}}), split_part="train", training=True) == flatten(
        epochs, split_part="train", training=True
    )
    with pytest.raises(ol.ConfigError, match="a pair of data set and number"):
        ol.blend(["/d/a"])  # type: ignore[list-item]
    with pytest.raises(ol.ConfigError, match="42 found; expected a path"):
        as_node(42)


def test_fractions_are_taken_as_they_are_written() -> None:
    epochs = ol.blend_epochized([("/a", 0.29)])
    assert int(epochs.parts[0][1] * 100) == 29  # the float 0.29 is a little less than it says


# Rules of flattening


def test_ranges_go_together_inner_first() -> None:
    place = Place()
    inner = Subset.parse(["25%", "75%"], place=place)
    outer = Subset.parse(["0%", "50%"], place=place)
    assert inner.within(outer, place=place).of(100, where="x") == (25, 50)
    rows = Subset.parse([10, "end"], place=place).within(outer, place=place)
    assert rows.of(100, where="x") == (10, 55)
    assert Subset.parse([5, 5], place=place).of(9, where="x") == (5, 5)
    with pytest.raises(ol.ConfigError, match=r"rows \[10, 200\) asked for, but there are 100"):
        Subset.parse([10, 200], place=place).of(100, where="x")


def test_names_of_leaves_do_not_change_when_data_sets_are_added() -> None:
    leaves = [FlatLeaf(path=path, split_part="train") for path in ("/d/x", "/e/y")]
    assert stable_names(leaves) == ["x", "y"]
    more = [FlatLeaf(path="/f/x", split_part="train"), FlatLeaf(path="/d/x", split_part="val")]
    assert stable_names(leaves + more) == ["x", "y", "f/x", "d/x"]
    named = FlatLeaf(path="/g/x", split_part="train", name="mine")
    assert stable_names([*leaves, named]) == ["x", "y", "mine"]
    with pytest.raises(ol.ConfigError, match="a second data set with the name 'mine'"):
        stable_names([named, named])


def test_only_known_joiners_are_called_unless_the_caller_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = JoinerName(module="megatron.energon.flavors.text", name="TextSample")
    assert find_joiner(known, trust=False) == ol.TextSample.from_joined
    other = JoinerName(module="os.path", name="join")
    with pytest.raises(ol.ConfigError, match=r"os\.path\.join .*needs trust=True"):
        find_joiner(other, trust=False)
    assert find_joiner(other, trust=True)("a", "b") == "a/b"
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(ol.ConfigError, match="OMNILOOM_TRUST=0 forbids"):
        find_joiner(other, trust=True)
    with pytest.raises(ol.ConfigError, match="neither a function nor a class with from_joined"):
        find_joiner(int, trust=False)


def test_modes_are_free_in_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    text = "splits: {train: {blend: [{blend_epochized: [{path: a, repetitions: 2}]}, {path: b}]}}"
    assert paths(flat(write(tmp_path, V2 + text), training=False), tmp_path) == ["a", "b"]


@st.composite
def blends(draw: st.DrawFn, depth: int = 3) -> object:
    """A blend of paths, concats and smaller blends; weights from 1 to 9."""
    parts = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("path", "concat", "blend") if depth else ("path", "concat")))
        if kind == "blend":
            node = draw(blends(depth=depth - 1))
        else:
            node = ol.concat(["/d/x", "/d/y"]) if kind == "concat" else f"/d/{number}"
        parts.append((node, draw(st.integers(1, 9))))
    return ol.blend(parts)


@given(blends())
@settings(max_examples=60, deadline=None)
def test_shares_of_all_places_make_up_the_whole(mix: object) -> None:
    found = flatten(as_node(mix), split_part="train", training=True)
    places = {(leaf.group or number, leaf.shares): leaf for number, leaf in enumerate(found.leaves)}
    total = 0.0
    for _, shares in places:
        weight = 1.0
        for share in shares:
            weight *= share.at(0)
        total += weight
    assert total == pytest.approx(1)


def test_words_of_energons_pages_that_fail_there_are_understood():
    node = parse_metadataset(
        {
            "__class__": "MetadatasetV2",
            "splits": {
                "train": {"path": "a", "split": "val"},
                "val": {
                    "join": [{"path": "a"}, {"path": "b", "split_config": "own.yaml"}],
                    "joiner": {"__class__": "TextSample"},
                    "split_config": "shared.yaml",
                },
            },
        }
    )
    assert node.splits["train"].split_part == "val"
    assert [column.ref.split_config for column in node.splits["val"].columns] == ["shared.yaml", "own.yaml"]
