"""Opening a prepared set, and the description of its samples."""

from __future__ import annotations

import dataclasses
import importlib
import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from omniloom.data import kinds
from omniloom.data.index.dataset import ShardEntry, dataset_config, open_dataset
from omniloom.data.index.dataset_yaml import dataset_config_of, describe_samples, sample_loader_text
from omniloom.data.index.field_map import FieldOption, field_value, parse_field, parse_field_map, part_names
from omniloom.data.index.info import encode_info
from omniloom.data.index.omniloom_json import OmniloomInfo, ShardMark, encode_omniloom_info
from omniloom.data.index.sample_types import CRUDE_TYPE, LEGACY_CLASSES, SAMPLE_TYPES, menu
from omniloom.data.index.splits import encode_splits
from omniloom.errors import ConfigError, DatasetError


def _prepared(root: Path, counts: dict[str, int], parts: dict[str, list[str]], exclude: tuple[str, ...] = ()) -> Path:
    """Energon's files alone."""
    meta = root / ".nv-meta"
    meta.mkdir(parents=True)
    for name, count in counts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(1024))
        (root / f"{name}.idx").write_bytes(struct.pack(f"<{count + 1}Q", *range(count + 1)))
    (meta / ".info.json").write_text(encode_info(counts))
    (meta / "split.yaml").write_text(encode_splits(parts, name="split.yaml", exclude=exclude))
    return root


def test_energon_prepared_set(tmp_path: Path) -> None:
    names = ["b/s0.tar", "a.tar", "b/s0.tar"]
    root = _prepared(tmp_path, {"a.tar": 3, "b/s0.tar": 4}, {"train": names}, ("b/s0.tar/k1", "zz.tar"))
    index = open_dataset(root)
    keys = frozenset({"k1"})
    assert index.shards == (
        ShardEntry("b/s0.tar", f"{root}/b/s0.tar", 4, None, None, None, keys),
        ShardEntry("a.tar", f"{root}/a.tar", 3, None, None, None, frozenset()),
        ShardEntry("b/s0.tar", f"{root}/b/s0.tar", 4, None, None, None, keys),
    )
    assert (index.root, index.split_part, index.rule, index.samples) == (str(root), "train", "first-dot", 11)


def test_what_omniloom_knows_is_added(tmp_path: Path) -> None:
    root = _prepared(tmp_path, {"d/a.tar": 1, "b.tar": 2}, {"train": ["d/a.tar", "b.tar"]})
    marks = {"d/a.tar": ShardMark(1024, "ab", True), "b.tar": ShardMark(1024, "cd", False)}
    known = OmniloomInfo(index_uuid="u", omniloom_version="0", key_rule="last-dot", shards=marks)
    (root / ".nv-meta/omniloom.json").write_text(encode_omniloom_info(known))
    index = open_dataset(root)
    assert index.rule == "last-dot"
    assert [shard[3:6] for shard in index.shards] == [
        (1024, "ab", f"{root}/.nv-meta/parts/d/a.tar.parts"),
        (1024, "cd", None),
    ]


def test_clear_refusals(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"not prepared; run `omniloom prepare {tmp_path}`"):
        open_dataset(tmp_path)
    counts = {"a.tar": 1, "b.tar": 2, "e.tar": 0}
    root = _prepared(tmp_path / "s", counts, {"train": ["a.tar", "b.tar"], "val": ["e.tar"]})
    with pytest.raises(DatasetError, match=r"no split part 'test'; there are \['train', 'val'\]"):
        open_dataset(root, split_part="test")
    with pytest.raises(DatasetError, match="the shards of split part 'val' hold no samples"):
        open_dataset(root, split_part="val")
    (root / "b.tar.idx").write_bytes(struct.pack("<2Q", 0, 1))
    with pytest.raises(DatasetError, match=r"b\.tar\.idx: lists 1 samples, but \.info\.json says 2"):
        open_dataset(root)
    assert len(open_dataset(root, check_files=False).shards) == 2
    (root / "b.tar.idx").unlink()
    with pytest.raises(DatasetError, match=r"b\.tar\.idx: there is no index of the shard"):
        open_dataset(root)
    (root / "b.tar").unlink()
    with pytest.raises(DatasetError, match=r"shard 'b\.tar' of \.info\.json missing on disk"):
        open_dataset(root)
    (root / ".nv-meta/split.yaml").write_text("split_parts: {train: [a.tar, 'n{0..9}.tar']}")
    with pytest.raises(DatasetError, match=r"lists 10 shards: 'n0.tar', 'n1.tar', 'n2.tar' and 7 more that"):
        open_dataset(root)


def test_interrupted_placement_is_noticed(tmp_path: Path) -> None:
    root = _prepared(tmp_path, {"a.tar": 1}, {"train": ["a.tar"]})
    (root / ".nv-meta/.partial").mkdir()
    (root / ".nv-meta/.partial/putting-in-place").touch()
    with pytest.raises(DatasetError, match="was interrupted while it put its files in place"):
        open_dataset(root)


def test_twenty_thousand_shards_open_quickly(tmp_path: Path) -> None:
    # In an order that does not collapse to ranges, as after a shuffle.
    names = [f"part-{number // 1000:02}/s{number * 7919 % 20_000:06}.tar" for number in range(20_000)]
    root = _prepared(tmp_path, dict.fromkeys(names, 1), {"train": names})
    marks = dict.fromkeys(names, ShardMark(1024, "ab" * 16, False))
    (root / ".nv-meta/omniloom.json").write_text(
        encode_omniloom_info(OmniloomInfo(index_uuid="u", omniloom_version="0", shards=marks))
    )
    begin = time.process_time()
    index = open_dataset(root)
    used_seconds = time.process_time() - begin
    assert [shard.name for shard in index.shards] == names
    assert used_seconds < 5  # 0.2 where nothing else runs; a search for each name would take minutes


def test_dataset_config(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    with pytest.raises(DatasetError, match="no description of the samples"):
        dataset_config(tmp_path)
    (tmp_path / ".nv-meta/dataset.yaml").write_text("- a\n")
    with pytest.raises(DatasetError, match="holds list, expected a mapping"):
        dataset_config(tmp_path)
    (tmp_path / ".nv-meta/other.yaml").write_text("max_samples_per_sequence: 010\nsubflavors: {on: off}\n")
    config = {"max_samples_per_sequence": 10, "subflavors": {"on": "off"}}
    assert dataset_config(tmp_path, name="other.yaml") == config


# --- dataset.yaml in its three forms


def test_new_form() -> None:
    config = dataset_config_of("VQASample", {"image": "jpg,png", "context": "json[0][value]"})
    assert config == {
        "sample_type": {"__module__": "megatron.energon", "__class__": "VQASample"},
        "field_map": {"image": "jpg,png", "context": "json[0][value]"},
    }
    found = describe_samples(config, where="x")
    assert (found.type_name, found.crude, found.legacy, found.sample_loader) == ("VQASample", False, False, None)
    assert found.fields == {
        "image": (FieldOption("jpg", ()), FieldOption("png", ())),
        "context": (FieldOption("json", ("0", "value")),),
    }


def test_old_and_crude_forms() -> None:
    old = {"__module__": "megatron.energon", "__class__": "CaptioningWebdataset", "field_map": {"image": "jpg"}}
    found = describe_samples(old, where="x")
    assert (found.type_name, found.legacy, found.crude) == ("CaptioningSample", True, False)
    crude = describe_samples(dataset_config_of(CRUDE_TYPE, None), where="x")
    assert (crude.type_name, crude.crude, crude.fields) == (CRUDE_TYPE, True, None)
    own = describe_samples({"sample_type": {"__module__": "my.code", "__class__": "Mine"}}, where="x")
    assert (own.type_name, own.module) == ("Mine", "my.code")
    assert describe_samples({}, where="x").type_name == "unknown"


def test_sample_loader_form() -> None:
    config = dataset_config_of("CaptioningSample", None)
    assert config["sample_loader"] == "sample_loader.py:sample_loader"
    assert config["part_filter"] == "sample_loader.py:part_filter"
    text = sample_loader_text("CaptioningSample", ["jpg", "it's.txt"])
    names: dict[str, Any] = {}
    exec(compile(text, "sample_loader.py", "exec"), names)
    assert names["sample_loader"]({"...": 1}) == {"image": 1, "caption": 1}
    assert [names["part_filter"](part) for part in ("jpg", "it's.txt", "json")] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        ("VqaSample", None, "no sample type 'VqaSample'; there are CaptioningSample,"),
        ("CaptioningSample", {"image": "jpg", "text": "txt"}, "has no field 'text'; its fields are image"),
        ("VQASample", {"image": "jpg"}, "leaves out 'context'"),
        ("ImageSample", {"image": 3}, "field 'image' is mapped to 3"),
        ("ImageSample", {"image": ""}, "field 'image' is mapped to ''"),
    ],
)
def test_refused_descriptions(name: str, fields: dict[str, Any] | None, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        dataset_config_of(name, fields)
    assert told in str(error.value)


def test_menu_is_energons() -> None:
    assert menu() == [
        "CaptioningSample", "ImageClassificationSample", "ImageSample", "InterleavedSample", "MultiChoiceVQASample",
        "OCRSample", "Sample", "SimilarityInterleavedSample", "TextSample", "VQASample", "VidQASample",
        "CrudeWebdataset",
    ]  # fmt: skip
    assert LEGACY_CLASSES["VQAOCRWebdataset"] == "VQAOCRSample"
    assert len(LEGACY_CLASSES) == 11


def test_fields_are_those_of_the_sample_classes() -> None:
    for name, each in SAMPLE_TYPES.items():
        fields = [field for field in dataclasses.fields(getattr(kinds, name)) if not field.name.startswith("__")]
        assert [field.name for field in fields] == [field.name for field in each.fields]
        found = [None if field.default is dataclasses.MISSING else repr(field.default) for field in fields]
        assert found == [field.default for field in each.fields]


def test_fields_are_those_of_the_installed_energon() -> None:
    energon = pytest.importorskip("megatron.energon")
    for name, each in SAMPLE_TYPES.items():
        found = getattr(importlib.import_module(each.module), name)
        fields = [field for field in dataclasses.fields(found) if not field.name.startswith("__")]
        assert [field.name for field in fields] == [field.name for field in each.fields]
        assert [field.default is dataclasses.MISSING for field in fields] == [field.required for field in each.fields]
        assert issubclass(found, energon.Sample)


# --- the grammar of field maps


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("abcdef,ghi", [("abcdef", ()), ("ghi", ())]),
        ("abcdef[ghi]", [("abcdef", ("ghi",))]),
        ("abcdef[ghi][jkl]", [("abcdef", ("ghi", "jkl"))]),
        ("bbox.json[0][text]", [("bbox.json", ("0", "text"))]),
        ("jpg, png", [("jpg", ()), (" png", ())]),
        ("gt.txt", [("gt.txt", ())]),
        # A piece of another form makes the whole description one literal name.
        ("a[b,c", [("a[b,c", ()), ("c", ())]),
        ("a[]", [("a[]", ())]),
        ("[a]", [("[a]", ())]),
    ],
)
def test_field_grammar(text: str, options: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [tuple(option) for option in parse_field(text)] == options


def test_field_values() -> None:
    parts = {"json": [{"value": "q"}, {"value": ["a", "b"]}], "txt": "t"}
    assert field_value(parts, parse_field("json[0][value]")) == "q"
    assert field_value(parts, parse_field("json[-1][value][-2]")) == "a"
    assert field_value(parts, parse_field("jpg,json[7],json[0][no],txt")) == "t"
    assert part_names(parse_field_map({"a": "jpg,json[0]", "b": "txt"}, where="x")) == {"jpg", "json", "txt"}
    with pytest.raises(DatasetError, match=r"json\[2\]: no element 2 in a list of 2; jpg: there is no part 'jpg'"):
        field_value(parts, parse_field("json[2],jpg"))
    for text, told in (("txt[0]", "asked of a str"), ("json[x]", "json"), ("json[0][x]", "no key 'x' among")):
        with pytest.raises(DatasetError, match=told):
            field_value(parts, parse_field(text))


def test_malformed_field_map() -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        parse_field_map(["jpg"], where="dataset.yaml")
    assert json.dumps(str(parse_field("a[0][b]")[0])) == '"a[0][b]"'
