"""`EPath`: as text, on a disk, in a store. Rules of text are those of Energon's documentation; files are looked at."""

import pickle
from pathlib import Path

import pytest
from omniloom.energon.epathlib import DEFAULT_PROFILE_NAME, EPath

from omniloom.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b/../c", "/a/c"),
        ("/a/./b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("msc://profile/a/.././b", "msc://profile/b"),
        ("msc://profile", "msc://profile"),
        (f"msc://{DEFAULT_PROFILE_NAME}/etc/hosts", "/etc/hosts"),
        ("s3://bucket/a/../b.tar", "s3://bucket/b.tar"),
        ("https://host/a/b", "https://host/a/b"),
    ],
)
def test_paths_are_absolute_and_resolved_as_text(text, expected):
    assert str(EPath(text)) == expected
    assert pickle.loads(pickle.dumps(EPath(text))) == EPath(text)


def test_a_relative_path_starts_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert EPath("a") == f"{tmp_path}/a"
    assert EPath("a").local_path() == tmp_path / "a"


def test_parts_of_a_url():
    path = EPath("msc://profile/data") / "parts" / "x.tar"
    assert (path.name, path.stem, path.suffix) == ("x.tar", "x", ".tar")
    assert path.parent == EPath("msc://profile/data/parts")
    assert path.with_suffix(".idx") == "msc://profile/data/parts/x.idx"
    assert path.relative_to(EPath("msc://profile/data")) == "parts/x.tar"
    assert path / "/etc" == EPath("/etc")
    assert path / EPath("s3://b/k") == "s3://b/k"
    assert not path.is_local()
    with pytest.raises(ValueError, match="not on a local disk"):
        path.local_path()
    with pytest.raises(ValueError, match="above the root"):
        EPath("msc://profile/a") / "../../b"
    with pytest.raises(ConfigError, match="different places"):
        path.relative_to(EPath("/data"))


def test_rclone_is_msc_with_a_warning():
    with pytest.warns(FutureWarning, match="deprecated"):
        assert str(EPath("rclone://s3/a")) == "msc://s3/a"


def test_dss_lies_below_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NVDATASET_CACHE_DIR", str(tmp_path))
    path = EPath("dss://charts@v0/images")
    (path / "0.jpg").write_bytes(b"x")
    assert (tmp_path / "charts" / "v0" / "images" / "0.jpg").read_bytes() == b"x"
    assert [str(one) for one in EPath("dss://charts@v0").walk()] == ["dss://charts@v0/images/0.jpg"]
    assert path.display_name == "charts@v0"
    assert Path(path) == tmp_path / "charts" / "v0" / "images"
    for wrong in ("dss://charts", "dss://charts@", "dss://@v0"):
        with pytest.raises(AssertionError, match="version"):
            EPath(wrong)
    monkeypatch.delenv("NVDATASET_CACHE_DIR")
    with pytest.raises(ConfigError, match="NVDATASET_CACHE_DIR"):
        EPath("dss://charts@v0")


def test_files_on_a_disk(tmp_path):
    root = EPath(tmp_path)
    (root / "a" / "x.txt").write_text("one")
    (root / "a" / "b" / "y.txt").write_bytes(b"four")
    (root / "a" / "[z].bin").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    assert sorted(one.relative_to(root) for one in root.walk()) == [
        "a/[z].bin", "a/b/y.txt", "a/x.txt", "link/y.txt",
    ]  # fmt: skip
    assert sorted(str(one) for one in root.glob("**/*.txt")) == [
        f"{tmp_path}/a/b/y.txt", f"{tmp_path}/a/x.txt", f"{tmp_path}/link/y.txt",
    ]  # fmt: skip
    assert [one.name for one in root.glob("a/[w-x].tx?")] == ["x.txt"]
    assert [one.name for one in root.glob("**/[!x]*.txt")].count("x.txt") == 0
    assert root.is_dir()
    assert not root.is_file()
    assert (root / "a" / "x.txt").size() == 3
    assert (root / "a" / "x.txt").stat().last_modified.timestamp() == pytest.approx(
        (tmp_path / "a" / "x.txt").stat().st_mtime
    )
    (root / "a").copy(root / "c")
    (root / "c" / "x.txt").move(root / "c" / "moved.txt")
    assert (root / "c" / "moved.txt").read_text() == "one"
    assert not (root / "c" / "x.txt").exists()
    assert (root / "c" / "b" / "y.txt").read_bytes() == b"four"
    with (root / "a" / "x.txt").open("rb") as file:
        assert file.read(2) == b"on"


def test_paths_sort_and_are_equal_to_their_text():
    assert sorted([EPath("/b"), EPath("/a/c"), EPath("/a")]) == ["/a", "/a/c", "/b"]
    assert {EPath("/a"): 1}["/a"] == 1


def test_a_missing_client_is_told_with_the_way_to_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "multistorageclient", None)
    with pytest.raises(ConfigError, match="pip install multi-storage-client"):
        EPath("msc://profile/x").read_bytes()


def test_files_of_the_multi_storage_client(tmp_path, monkeypatch):
    pytest.importorskip("multistorageclient")
    config = tmp_path / "msc.yaml"
    config.write_text(
        f"profiles:\n  here:\n    storage_provider:\n      type: file\n      options: {{base_path: {tmp_path}}}\n"
    )
    monkeypatch.setenv("MSC_CONFIG", str(config))
    root = EPath("msc://here/data")
    (root / "a" / "x.txt").write_text("one")
    assert (tmp_path / "data" / "a" / "x.txt").read_text() == "one"
    assert [str(one) for one in root.glob("**/*.txt")] == ["msc://here/data/a/x.txt"]
    (root / "a" / "x.txt").move(EPath(tmp_path) / "here.txt")
    assert (tmp_path / "here.txt").read_text() == "one"
    assert not (root / "a" / "x.txt").is_file()
