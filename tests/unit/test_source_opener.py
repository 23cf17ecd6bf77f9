"""From a path to a leaf: kinds of sources, splits, settings of dataset.yaml, and code that only trust lets run."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from omniloom.data.index.file_splits import part_by_name
from omniloom.data.index.source_kind import find_source
from omniloom.data.leaf import Leaf
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.sample import SampleKey
from omniloom.data.shards.write import TarWriter
from omniloom.data.source import LeafOpener
from omniloom.errors import ConfigError, DatasetError, SampleError, StorageError
from omniloom.tools.main import run

OPENER = LeafOpener(SampleDecoder(), "train", "split.yaml", "dataset.yaml", None)
TEXT = {"sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"}, "field_map": {"text": "txt"}}
CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
LOADED = {
    "sample_type": TEXT["sample_type"],
    "sample_loader": "sample_loader.py",
    "part_filter": "sample_loader.py",
}
CODE = """
def sample_loader(raw):
    return {"text": raw["txt"] + "!"}

def part_filter(part):
    return part == "txt"
"""


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    root = tmp_path / "shards"
    root.mkdir()
    with TarWriter(root / "shard-0.tar") as writer:
        for number in range(4):
            writer.add(f"{number}.txt", f"text {number}".encode())
            writer.add(f"{number}.json", b'{"n": 1}')
    assert run(["prepare", str(root), "--non-interactive", "--split-ratio=1,0,0", "--skip-dataset-yaml"]) == 0
    return root


def describe(root: Path, config: Any, code: str = "") -> Path:
    (root / ".nv-meta").mkdir(exist_ok=True)
    (root / ".nv-meta/dataset.yaml").write_text(yaml.safe_dump(config))
    if code:
        (root / ".nv-meta/sample_loader.py").write_text(code)
    return root


def samples(path: Path, **settings: Any) -> list[Any]:
    leaf: Leaf = dataclasses.replace(OPENER, **settings).open(str(path), "x")
    again = pickle.loads(pickle.dumps(leaf))
    return [again.cook(again.read(row), SampleKey(0, 0, row)) for row in range(len(again.rows))]


# Kinds


@pytest.mark.parametrize(
    ("files", "path", "kind"),
    [
        (["a.jsonl"], "a.jsonl", "jsonl"),
        (["a.jsonl", "b.jsonl"], ".", "jsonl"),
        (["data/train-0.parquet", "README.md"], ".", "parquet"),
        (["x.parquet"], "x.parquet", "parquet"),
        (["state.json", "dataset_info.json", "data-0.arrow"], ".", "arrow"),
        (["dataset_dict.json", "train/state.json"], ".", "arrow"),
        (["x.json", "1.jpg"], "x.json", "llava"),
        (["1.jpg", "1.txt"], ".", "folder"),
        (["1.jpg", "1.json"], ".", "folder"),
        (["mix.yaml"], "mix.yaml", "metadataset"),
        ([".nv-meta/.info.json", "x.parquet"], ".", "webdataset"),
    ],
)
def test_kinds_are_told_by_endings_and_contents(files: list[str], path: str, kind: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert find_source(tmp_path / path).kind == kind


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        ([], "none.jsonl", "there is no such file or folder"),
        ([], ".", "not prepared .holds no files.; run `omniloom prepare"),
        (["a/x.tar"], ".", "not prepared .holds a/x.tar."),
        (["a.jsonl.gz", "b.jsonl"], ".", r"holds a\.jsonl\.gz; .* cannot be packed"),
        (["a.tar.gz"], ".", r"not prepared .holds a\.tar\.gz"),
        (["x.csv"], "x.csv", r"\.csv found; files that hold samples end in \.jsonl, \.parquet"),
        (["x.json", "images/1.jpg"], ".", "holds x.json, a JSON list, as LLaVA's data sets are"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(
    files: list[str], path: str, message: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[{}]")
    with pytest.raises(DatasetError, match=message):
        find_source(tmp_path / path)


def test_a_url_of_this_machine_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert find_source(f"file://{tmp_path}/a.jsonl") == find_source(tmp_path / "a.jsonl")
    with pytest.raises(StorageError, match="no store for 'nosuch://'"):
        find_source("nosuch://host/x")


def test_a_declared_source_is_that(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    entry = {"id": "a", "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]}
    (tmp_path / "x.json").write_text(json.dumps([entry]))
    describe(tmp_path, {"source": {"kind": "llava", "json": "x.json", "images": "images"}, "subflavors": {"a": "b"}})
    (sample,) = samples(tmp_path)
    assert (sample["__key__"], sample["__subflavors__"]) == ("a", {"a": "b"})
    assert sample["json"] == entry["conversations"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"kind": "csv"}, "a kind of webdataset, jsonl"),
        ({"kind": "jsonl", "file": "x"}, "unknown key 'file'"),
        ({"kind": "parquet", "files": "../x"}, "expected a path below"),
        ({"kind": "llava"}, "needs json"),
    ],
)
def test_a_malformed_declaration_is_refused(declared: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        find_source(describe(tmp_path, {"source": declared}))


# Splits of files


def test_names_of_files_tell_their_part() -> None:
    names = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/validation-00000.parquet"]
    assert part_by_name(names, "train", where="x") == names[:2]
    assert part_by_name(names, "val", where="x") == part_by_name(names, "validation", where="x") == names[2:]
    assert part_by_name(["a.parquet", "constrained.parquet"], "val", where="x") == ["a.parquet", "constrained.parquet"]
    with pytest.raises(DatasetError, match=r"no split part 'test'; the names of its files tell \['train', 'val'\]"):
        part_by_name(names, "test", where="x")
    with pytest.raises(DatasetError, match=r"the name of extra\.parquet tells no part"):
        part_by_name([*names, "extra.parquet"], "train", where="x")


def test_a_split_file_decides_and_excludes(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"n": "{name}0"}}\n{{"n": "{name}1"}}\n')
    (tmp_path / ".nv-meta").mkdir()
    split = {"split_parts": {"train": ["{a,b}.jsonl"], "val": ["c.jsonl"]}, "exclude": ["a.jsonl/1"]}
    (tmp_path / ".nv-meta/split.yaml").write_text(yaml.safe_dump(split))
    leaf = OPENER.open(str(tmp_path), "x")
    assert [leaf.rows.read(row).name for row in (0, 2, 3)] == ["a/0", "b/0", "b/1"]
    assert [sample["json"]["n"] for sample in samples(tmp_path, split_part="val")] == ["c0", "c1"]


# Samples


def test_jsonl_is_crude_and_its_records_are_values(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": [1]}\n')
    for decoder in (SampleDecoder(), None):
        (sample,) = samples(tmp_path / "x.jsonl", decoder=decoder, subflavors={"k": 1})
        assert sample["json"] == {"a": [1]}
        assert (sample["__key__"], sample["__shard__"], sample["__subflavors__"]) == ("0", "x.jsonl", {"k": 1})
        assert sample["__sources__"][0].file_names == ("0.json",)


def test_a_folder_of_jsonl_may_be_typed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"caption": "one"}\n{"other": 1}\n')
    describe(tmp_path, {**TEXT, "field_map": {"text": "json[caption],json[other]"}})
    assert [(type(one).__name__, one.text) for one in samples(tmp_path)] == [("TextSample", "one"), ("TextSample", 1)]


def test_a_field_without_column_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"caption": "one"}\n')
    describe(tmp_path, TEXT)
    with pytest.raises(ConfigError, match=r"field 'text' is mapped to txt, but there is no such column.*json"):
        samples(tmp_path)


# Settings of dataset.yaml


def test_settings_of_dataset_yaml_are_obeyed(shards: Path) -> None:
    config = {**CRUDE, "part_filter": ["txt"], "subflavors": {"a": 1, "b": 1}, "subset": {"range": ["50%", "100%"]}}
    describe(shards, config)
    found = samples(shards, subflavors={"b": 2})
    assert [(one["__key__"], one["txt"], "json" in one) for one in found] == [
        ("2", "text 2", False),
        ("3", "text 3", False),
    ]
    assert found[0]["__subflavors__"] == {"a": 1, "b": 2}
    assert [source.index for one in found for source in one["__sources__"]] == [2, 3]  # rows of the whole data set


def test_the_decoder_of_dataset_yaml(shards: Path) -> None:
    describe(shards, {**CRUDE, "decoder": None})
    assert samples(shards)[0]["txt"] == b"text 0"
    decoder = {"__module__": "megatron.energon", "__class__": "SampleDecoder", "image_decode": "pil"}
    describe(shards, {**CRUDE, "decoder": decoder})
    leaf = OPENER.open(str(shards), "x")
    assert leaf.cook_row.decoder is not None
    assert leaf.cook_row.decoder.image_decode == "pil"
    describe(shards, {**CRUDE, "decoder": {**decoder, "colour": "red"}})
    with pytest.raises(ConfigError, match="the decoder has no option 'colour'; its options are image_decode"):
        samples(shards)


def test_old_keys_of_the_decoder_are_taken(shards: Path) -> None:
    describe(shards, {**CRUDE, "auto_decode": False})
    assert samples(shards)[0]["txt"] == b"text 0"
    describe(shards, {**CRUDE, "auto_decode": True, "image_decode": "pil", "ignore_decoder_errors": True})
    leaf = OPENER.open(str(shards), "x")
    assert leaf.cook_row.decoder is not None
    assert leaf.cook_row.decoder.image_decode == "pil"


def test_keys_without_effect_say_so(shards: Path, caplog: pytest.LogCaptureFixture) -> None:
    describe(shards, {**CRUDE, "max_samples_per_sequence": 100})
    assert len(samples(shards)) == 4
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.endswith("max_samples_per_sequence has no effect here; give it to get_train_dataset")


def test_json_lines_are_read_as_strictly_as_parts(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": NaN}\n')
    with pytest.raises(SampleError) as caught:
        samples(tmp_path / "x.jsonl")
    assert caught.value.reason == "number"
    (sample,) = samples(tmp_path / "x.jsonl", decoder=SampleDecoder(strict_json=False))
    assert sample["json"]["a"] != sample["json"]["a"]


def test_split_part_of_dataset_yaml_wins(shards: Path) -> None:
    describe(shards, {**CRUDE, "split_part": "train"})
    assert len(samples(shards, split_part="nonsense")) == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**CRUDE, "part_fliter": ["txt"]}, "unknown key 'part_fliter'. Did you mean 'part_filter'"),
        ({**CRUDE, "subflavors": "a"}, "subflavors is 'a'; expected a mapping"),
        ({**CRUDE, "part_filter": [1]}, "expected a list of parts"),
        ({**CRUDE, "subset": [0, 1]}, "expected a mapping such as"),
        ({**TEXT, "part_filter": ["txt"]}, "part_filter stands beside a field_map"),
        ({"sample_type": TEXT["sample_type"]}, "neither field_map nor sample_loader"),
        (
            {**TEXT, "sample_type": {"__module__": "my.types", "__class__": "Mine"}},
            r"my\.types\.Mine is not one of omniloom's",
        ),
    ],
)
def test_malformed_settings_are_refused(config: Any, message: str, shards: Path) -> None:
    describe(shards, config)
    with pytest.raises(ConfigError, match=message):
        samples(shards)


def test_stores_for_typed_samples_are_refused(shards: Path) -> None:
    describe(shards, TEXT)
    with pytest.raises(ConfigError, match=r"the mix gives stores .images. to samples of type TextSample"):
        samples(shards, aux={"images": None})


# Trust


def test_code_of_a_data_set_is_run_only_where_it_is_trusted(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = shards / "ran"
    describe(shards, LOADED, code=f"open({str(ran)!r}, 'w')\n{CODE}")
    with pytest.raises(ConfigError, match=r"part_filter .sample_loader.py. is code of the data set.*trust=True"):
        samples(shards)
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(ConfigError, match="which OMNILOOM_TRUST=0 forbids to run"):
        samples(shards, trust=True)
    assert not ran.exists()
    monkeypatch.delenv("OMNILOOM_TRUST")
    assert [sample.text for sample in samples(shards, trust=True)] == [f"text {number}!" for number in range(4)]
    assert ran.exists()


def test_trusted_code_that_fails_is_told(shards: Path) -> None:
    describe(shards, LOADED, code="def part_filter(part): return True\n1 / 0\n")
    with pytest.raises(ConfigError, match=r"sample_loader\.py: cannot be run: ZeroDivisionError"):
        samples(shards, trust=True)
    describe(
        shards, {**LOADED, "part_filter": ["txt"], "sample_loader": "sample_loader.py:none"}, code="x = 1\n# other"
    )
    with pytest.raises(ConfigError, match=r"cannot be run|defines no function 'none'"):
        samples(shards, trust=True)


def test_classes_of_others_are_imported_only_where_trusted(shards: Path) -> None:
    describe(
        shards, {"sample_type": {"__module__": "types", "__class__": "SimpleNamespace"}, "field_map": {"text": "txt"}}
    )
    with pytest.raises(ConfigError, match=r"types\.SimpleNamespace is not one of omniloom's"):
        samples(shards)
    assert samples(shards, trust=True)[1].text == "text 1"
