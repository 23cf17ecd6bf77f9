"""A plain folder: files of one name are one sample, as in an archive; nothing is read from outside of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from omniloom.data.index import folder_rows
from omniloom.data.index.folder_rows import FolderRows, write_folder_index
from omniloom.errors import DatasetError, SampleError


def fill(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


NAMES = ["b/2.jpg", "b/2.txt", "a/1.seg.png", "a/1.jpg", "10.jpg", "._10.jpg", ".DS_Store", "__MACOSX/x.jpg", "README"]
EXPECTED = [
    ("10", {"jpg": b"10.jpg"}),
    ("a/1", {"jpg": b"a/1.jpg", "seg.png": b"a/1.seg.png"}),
    ("b/2", {"jpg": b"b/2.jpg", "txt": b"b/2.txt"}),
]


@pytest.mark.parametrize("prepared", [False, True])
def test_samples_are_sorted_and_hold_all_files_of_a_name(prepared: bool, tmp_path: Path) -> None:
    root = fill(tmp_path / "set", NAMES)
    if prepared:
        assert write_folder_index(str(root)) == 3
    rows = pickle.loads(pickle.dumps(FolderRows(str(root))))
    assert [(raw.name, raw.parts) for raw in map(rows.read, range(len(rows)))] == EXPECTED
    assert rows.parts_of_first_row() == {"jpg"}
    assert rows.origin(2) == ("b/2.jpg", None)


def test_only_wanted_parts_are_read(tmp_path: Path) -> None:
    rows = FolderRows(str(fill(tmp_path, NAMES)), wanted=frozenset({"txt"}))
    assert [rows.read(row).parts for row in range(3)] == [{}, {}, {"txt": b"b/2.txt"}]


@pytest.mark.parametrize("prepared", [False, True])
def test_folders_named_for_parts_are_the_split(prepared: bool, tmp_path: Path) -> None:
    root = fill(tmp_path, ["train/cat/1.jpg", "train/dog/2.jpg", "validation/cat/3.jpg"])
    if prepared:
        write_folder_index(str(root))
    train, val = (FolderRows(str(root), split_part=part) for part in ("train", "val"))
    assert [train.read(row).name for row in range(len(train))] == ["train/cat/1", "train/dog/2"]
    assert [val.read(row).name for row in range(len(val))] == ["validation/cat/3"]
    with pytest.raises(DatasetError, match="no split part 'test'; its folders are named for train, val"):
        FolderRows(str(root), split_part="test")


def test_two_folders_for_one_part_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="dev and val both stand for the split part 'val'"):
        FolderRows(str(fill(tmp_path, ["dev/1.jpg", "val/2.jpg"])))


def test_other_folders_are_no_split(tmp_path: Path) -> None:
    assert len(FolderRows(str(fill(tmp_path, ["train/1.jpg", "extra/2.jpg"])), split_part="val")) == 2


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    root = fill(tmp_path / "set", ["1.jpg"])
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (root / "1.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(SampleError, match="out of the folder"):
        FolderRows(str(root)).read(0)


def test_a_file_that_is_gone_is_a_fault_of_its_sample(tmp_path: Path) -> None:
    rows = FolderRows(str(fill(tmp_path, ["1.jpg", "2.jpg"])))
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(SampleError, match=r"cannot read .*1\.jpg") as caught:
        rows.read(0)
    assert caught.value.reason == "missing-file"
    assert rows.read(1).parts == {"jpg": b"2.jpg"}


def test_a_folder_that_changed_is_refused_where_it_is_opened_again(tmp_path: Path) -> None:
    packed = pickle.dumps(FolderRows(str(fill(tmp_path, ["1.jpg"]))))
    fill(tmp_path, ["2.jpg"])
    with pytest.raises(DatasetError, match="files came or went since"):
        pickle.loads(packed)


def test_very_many_files_have_to_be_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_rows, "MAX_UNINDEXED_FILES", 2)
    root = fill(tmp_path, ["1.jpg", "2.jpg", "3.jpg"])
    with pytest.raises(DatasetError, match="more than 2 files"):
        folder_rows.list_folder(str(root), limit=2)
    write_folder_index(str(root))
    assert len(FolderRows(str(root))) == 3


def test_a_folder_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no files that could be samples"):
        FolderRows(str(fill(tmp_path, ["README", ".hidden"])))
