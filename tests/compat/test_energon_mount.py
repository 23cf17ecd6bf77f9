"""A data set as files: the tree driven directly, and mounted where the kernel has FUSE."""

import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import omniloom
from omniloom.data.side.file_tree import SEVERAL_TIMES, FileTree
from omniloom.data.side.stores import WebdatasetFileStore
from omniloom.errors import ConfigError
from omniloom.tools import mount

PARTS = {
    "a.jpg": b"picture",
    "a.txt": b"text",
    "b.json": b"{}",
    "deep/er/c.d.txt": b"deep",
    "../out.txt": b"outside",
}


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    with tarfile.open(folder / "x.tar", "w") as archive:
        for name, data in PARTS.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    omniloom.prepare_dataset(folder, split_ratio={"train": 1}, num_workers=1)
    return folder


def test_flat_each_part_is_a_file(shards):
    tree = FileTree(WebdatasetFileStore(shards))
    assert sorted(tree.names("/")) == ["a.jpg", "a.txt", "b.json", "deep"]
    assert tree.names("/deep/er") == ["c.d.txt"]
    assert tree.size("/a.jpg") == 7
    assert tree.size("/deep") is None
    assert tree.read("/deep/er/c.d.txt") == b"deep"
    assert (tree.files, tree.left_out) == (4, 1)
    for path in ("/none", "/a.jpg/x", "/out.txt"):
        with pytest.raises(FileNotFoundError):
            tree.size(path)
    with pytest.raises(NotADirectoryError):
        tree.names("/a.jpg")
    with pytest.raises(IsADirectoryError):
        tree.read("/deep")


@pytest.mark.parametrize("allow_slow", [False, True])
def test_by_sample_each_sample_is_a_folder(shards, allow_slow):
    if allow_slow:  # an old database, which has no table of parts
        with sqlite3.connect(shards / ".nv-meta" / "index.sqlite") as database:
            database.execute("DROP TABLE sample_parts")
    tree = FileTree(WebdatasetFileStore(shards), by_sample=True, allow_slow=allow_slow)
    assert sorted(tree.names("/")) == ["a", "b", "deep"]
    assert sorted(tree.names("/a")) == ["jpg", "txt"]
    assert tree.names("/deep/er/c") == ["d.txt"]
    assert tree.read("/a/txt") == b"text"


def test_a_key_of_several_shards_is_marked():
    class Store:
        def list_all_sample_parts(self):
            return [omniloom.data.side.key_index.ListedEntry("a.txt", 4, shard) for shard in (0, 1)]

    tree = FileTree(Store(), by_sample=True)
    assert tree.names("/a") == ["txt", SEVERAL_TIMES]
    assert tree.read(f"/a/{SEVERAL_TIMES}") == b""


def test_the_answers_to_a_file_systems_questions(shards):
    operations = mount.MountedTree(FileTree(WebdatasetFileStore(shards)), seconds=5.0)
    found = operations.getattr("/a.jpg")
    assert (found["st_size"], found["st_mtime"], oct(found["st_mode"])) == (7, 5.0, "0o100444")
    assert oct(operations.getattr("/")["st_mode"]) == "0o40555"
    assert set(operations.readdir("/", 0)) == {".", "..", "a.jpg", "a.txt", "b.json", "deep"}
    handle = operations.open("/a.jpg", os.O_RDONLY)
    assert operations.read("/a.jpg", 4, 3, handle) == b"ture"
    assert operations.release("/a.jpg", handle) == 0
    with pytest.raises(OSError, match="Read-only"):
        operations.open("/a.jpg", os.O_RDWR)
    assert operations.statfs("/")["f_files"] == 4


def test_without_the_library_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    with pytest.raises(ConfigError, match=r"pip install omniloom\[mount\]"):
        mount._fuse()


def can_mount():
    try:
        import mfusepy  # noqa: F401, PLC0415 - loads the system's library
    except (ImportError, OSError):
        return False
    return os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None


@pytest.mark.skipif(not can_mount(), reason="no FUSE here")
@pytest.mark.parametrize("options", [[], ["--sample-folders"]])
def test_a_real_mount(shards, tmp_path, options):
    point = tmp_path / "mounted"
    point.mkdir()
    command = [sys.executable, "-m", "omniloom", "mount", str(shards), str(point), *options]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 60
        while not os.path.ismount(point) and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if not os.path.ismount(point):
            program.kill()
            pytest.skip(f"the kernel lets nobody mount here: {program.communicate()[0][-300:]}")
        picture = point / ("a/jpg" if options else "a.jpg")
        assert picture.read_bytes() == b"picture"
        names = {str(path.relative_to(point)) for path in point.rglob("*") if path.is_file()}
        flat = {"a.jpg", "a.txt", "b.json", "deep/er/c.d.txt"}
        assert names == ({"a/jpg", "a/txt", "b/json", "deep/er/c/d.txt"} if options else flat)
        assert Path(shutil.copy(picture, tmp_path / "copy")).stat().st_size == 7
        with pytest.raises(OSError, match=r"Read-only|Permission"):
            (point / "new").write_bytes(b"")
    finally:
        subprocess.run(["fusermount3", "-u", str(point)], check=False, capture_output=True)
        program.wait(30)
