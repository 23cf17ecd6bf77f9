"""A LLaVA JSON read in place gives the samples that its conversion gives."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from omniloom.data.convert.llava import convert_llava
from omniloom.data.convert.llava_rows import LlavaRows, find_llava_entries
from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.shards.line_index import write_line_index
from omniloom.errors import DatasetError, SampleError

TURNS = [{"from": "human", "value": '<image>\nWhat is "it"? [{}]'}, {"from": "gpt", "value": "é, a square"}]
ENTRIES: list[dict[str, Any]] = [
    {"id": "plain", "image": "a.png", "conversations": TURNS},
    {"id": 7, "image": ["sub/b.jpg", "a.png"], "messages": [{"role": "user", "content": "two"}]},
    {"conversations": TURNS[:1], "image": None, "source": "web"},
    {"id": "with.dot", "image": "a.png", "conversations": TURNS, "weight": 0.5},
]  # fmt: skip


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    Image.new("RGB", (4, 3), "red").save(folder / "a.png")
    Image.new("RGB", (4, 3), "blue").save(folder / "sub/b.jpg")
    return folder


def write(path: Path, entries: list[Any]) -> Path:
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    path.write_text("\n".join(lines) if path.suffix == ".jsonl" else f"[{', '.join(lines)}]\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
@pytest.mark.parametrize("indexed", [False, True])
def test_samples_are_those_of_the_conversion(name: str, indexed: bool, images: Path, tmp_path: Path) -> None:
    path = write(tmp_path / name, ENTRIES)
    convert_llava(path, images=images, out=tmp_path / "out")
    converted = TarRows(open_dataset(tmp_path / "out"), split_config="split.yaml")
    if indexed:
        write_line_index(path, find_llava_entries(path))
    rows = pickle.loads(pickle.dumps(LlavaRows(str(path), images=str(images))))
    assert len(rows) == len(converted) == len(ENTRIES)
    for row in (3, 0, 2, 1):
        ours, theirs = rows.read(row), converted.read(row)
        assert (ours.name, ours.parts) == (theirs.name, theirs.parts)
        shard, span = rows.origin(row)
        assert shard == name
        assert span is not None
        assert json.loads(path.read_bytes()[slice(*span)].rstrip(b",] \n")) == ENTRIES[row]


def test_images_may_lie_in_a_zip_archive(images: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.write(images / "a.png", "a.png")
    path = write(tmp_path / "x.json", ENTRIES[:1])
    rows = pickle.loads(pickle.dumps(LlavaRows(str(path), images=str(tmp_path / "images.zip"))))
    assert rows.read(0).parts["png"] == (images / "a.png").read_bytes()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"image": "none.png", "conversations": TURNS}, "missing-image"),
        ({"image": "../x.json", "conversations": TURNS}, "outside-images"),
        ({"image": "/etc/hostname", "conversations": TURNS}, "outside-images"),
        ({"image": "a.png"}, "bad-conversations"),
        ({"id": [1], "conversations": TURNS}, "bad-id"),
    ],
)
def test_a_faulty_entry_is_a_fault_of_its_sample(entry: Any, reason: str, images: Path, tmp_path: Path) -> None:
    rows = LlavaRows(str(write(tmp_path / "x.json", [entry, ENTRIES[0]])), images=str(images))
    with pytest.raises(SampleError) as caught:
        rows.read(0)
    assert caught.value.reason == reason
    assert rows.read(1).name == "plain"


def test_only_wanted_parts_are_given(images: Path, tmp_path: Path) -> None:
    rows = LlavaRows(str(write(tmp_path / "x.json", ENTRIES)), images=str(images), wanted=frozenset({"json"}))
    assert list(rows.read(0).parts) == ["json"]
    (images / "a.png").unlink()
    assert list(rows.read(0).parts) == ["json"]  # no image is read for those who want none


def test_an_index_that_is_gone_is_told(images: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", ENTRIES)
    write_line_index(path, find_llava_entries(path))
    packed = pickle.dumps(LlavaRows(str(path), images=str(images)))
    (tmp_path / "x.json.idx").unlink()
    with pytest.raises(DatasetError, match="is gone since the loader was made"):
        pickle.loads(packed)
