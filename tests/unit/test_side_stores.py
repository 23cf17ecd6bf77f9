"""Stores beside a data set: what they give by key, where it came from, and what they refuse."""

from __future__ import annotations

import json
import pickle
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.kinds import TextSample
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.sample import SourceInfo
from omniloom.data.shards.write import TarWriter
from omniloom.data.side import (
    DecodeFileStore,
    JsonlFileStore,
    PrimaryFileStore,
    SystemFileStore,
    WebdatasetFileStore,
    add_source_info,
    get_source_info,
    open_side_store,
)
from omniloom.errors import ConfigError, DatasetError, MissingKeyError, ShardError, StorageError
from omniloom.tools.main import run


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    root = tmp_path / "shards"
    root.mkdir()
    for shard in range(2):
        with TarWriter(root / f"shard-{shard}.tar") as writer:
            for number in range(3):
                writer.add(f"v1.0/{shard}{number}.txt", f"text {shard}{number}".encode())
                writer.add(f"v1.0/{shard}{number}.seg.json", b'{"n": 1}')
    prepare(root)
    return root


def prepare(root: Path) -> None:
    assert (
        run(
            [
                "prepare",
                str(root),
                "--non-interactive",
                "--split-ratio=1,0,0",
                "--skip-dataset-yaml",
                "--force-overwrite",
            ]
        )
        == 0
    )


def test_parts_are_found_by_their_full_name(shards: Path) -> None:
    store = pickle.loads(pickle.dumps(WebdatasetFileStore(shards)))
    assert store["v1.0/12.txt"] == (b"text 12", SourceInfo(str(shards), "v1.0/12.txt", "shard-1.tar", ("v1.0/12.txt",)))
    assert store["v1.0/00.seg.json"][0] == b'{"n": 1}'
    assert (len(store), store.get_path()) == (6, str(shards))
    assert [one.name for one in store.list_sample_parts("v1.0/01")] == ["txt", "seg.json"]
    assert list(store.list_sample_parts("v1.0/01", slow_mode=True)) == list(store.list_sample_parts("v1.0/01"))
    assert [one.name for one in store.list_all_samples()] == [f"v1.0/{s}{n}" for s in range(2) for n in range(3)]
    assert sum(1 for _ in store.list_all_sample_parts()) == 12
    assert store.get_total_size() == 2 * 3 * 4 * 512
    store.close()
    assert store["v1.0/00.txt"][0] == b"text 00"


@pytest.mark.parametrize("key", ["v1.0/99.txt", "v1.0/00.png", "v1.0/00", "", "nothing"])
def test_a_missing_key_is_a_key_error_that_names_it(key: str, shards: Path) -> None:
    with pytest.raises(KeyError) as caught:
        WebdatasetFileStore(shards)[key]
    assert str(caught.value) == f"{shards}: no part has the name {key!r}"
    assert caught.value.reason == "missing-key"


def test_a_key_in_two_shards_is_ambiguous(shards: Path) -> None:
    with TarWriter(shards / "shard-2.tar") as writer:
        writer.add("v1.0/00.txt", b"again")
    prepare(shards)
    with pytest.raises(MissingKeyError, match=r"ambiguous: it is in shard-0\.tar \(row 0\) and shard-2\.tar \(row 0\)"):
        WebdatasetFileStore(shards)["v1.0/00.txt"]


def test_a_shard_that_changed_is_refused(shards: Path) -> None:
    store = WebdatasetFileStore(shards)
    with TarWriter(shards / "shard-0.tar") as writer:
        writer.add("other.txt", b"x")
    with pytest.raises(ShardError, match="does not fit its index"):
        store["v1.0/00.txt"]


def test_threads_have_connections_of_their_own(shards: Path) -> None:
    store = WebdatasetFileStore(shards)
    found: list[bytes] = []

    def read() -> None:
        found.extend(store[f"v1.0/{s}{n}.txt"][0] for s in range(2) for n in range(3))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 24


def test_a_set_without_key_database_says_how_to_get_one(shards: Path) -> None:
    (shards / ".nv-meta/index.sqlite").unlink()
    with pytest.raises(DatasetError, match=r"no key database.*Run `omniloom prepare"):
        WebdatasetFileStore(shards)


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "set/a").mkdir(parents=True)
    (tmp_path / "set/a/1.txt").write_bytes(b"one")
    (tmp_path / "secret").write_bytes(b"secret")
    store = pickle.loads(pickle.dumps(SystemFileStore(tmp_path / "set")))
    root = str(tmp_path / "set")
    assert store["a/1.txt"] == (b"one", SourceInfo(root, "a/1.txt", root, ("a/1.txt",)))
    assert store[f"{root}/a/1.txt"][0] == b"one"
    with pytest.raises(KeyError, match=r"no file 'b.txt'"):
        store["b.txt"]
    (tmp_path / "set/link").symlink_to(tmp_path / "secret")
    for key in ("../secret", str(tmp_path / "secret"), "a/../../secret", "link", "", "a\0b"):
        with pytest.raises(StorageError, match=r"out of the folder|no name of a file"):
            store[key]
    with pytest.raises(StorageError, match="not a plain file"):
        store["a"]
    assert SystemFileStore(tmp_path / "set", follow_links=True)["link"][0] == b"secret"


def test_a_store_without_folder_takes_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    assert SystemFileStore()[str(tmp_path / "x")][0] == b"x"
    with pytest.raises(StorageError, match="absolute paths only"):
        SystemFileStore()["x"]
    with pytest.raises(MissingKeyError):
        SystemFileStore()[str(tmp_path / "y")]


def test_records_by_number(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    store: Any = pickle.loads(pickle.dumps(JsonlFileStore(path)))
    expected = (b'{"a": 2}\n', SourceInfo(str(path), 1, "x.jsonl", ("1.json",)))
    assert store["1.json"] == store["1"] == store[1] == expected
    for key in ("2.json", "-1", "x", ""):
        with pytest.raises(MissingKeyError):
            store[key]


def test_get_adds_the_source_to_the_sample(shards: Path) -> None:
    store = WebdatasetFileStore(shards)
    source = SourceInfo("a", 0, "b", ("c",))
    crude: dict[str, Any] = {"__sources__": (source,)}
    typed = TextSample(__key__="k", __restore_key__=(), text="t")
    assert store.get("v1.0/00.txt", crude) == store.get("v1.0/00.txt", typed) == store.get("v1.0/00.txt") == b"text 00"
    assert crude["__sources__"] == (source, store["v1.0/00.txt"][1])
    assert typed.__sources__ == (store["v1.0/00.txt"][1],)


def test_sources_of_samples_and_lists_of_them() -> None:
    first, second = SourceInfo("a", 0, "b", ("c",)), SourceInfo("a", 1, "b", ("d",))
    crude = {"__sources__": (first,)}
    typed = TextSample(__key__="k", __restore_key__=(), text="t", __sources__=(second,))
    assert get_source_info(crude) == [first]
    assert get_source_info([crude, typed, None]) == [first, second]
    assert get_source_info({}) is None
    assert get_source_info(7) is None
    assert add_source_info(None, first) is None
    assert add_source_info({}, first) == {"__sources__": (first,)}


def test_decoding_and_the_samples_own_parts(shards: Path) -> None:
    store = PrimaryFileStore(DecodeFileStore(WebdatasetFileStore(shards), decoder=SampleDecoder()), "v1.0/10")
    assert store[".txt"][0] == store.get(".txt") == "text 10"
    assert store[".seg.json"][0] == {"n": 1}
    assert store["v1.0/02.txt"][0] == "text 02"
    assert store._get_raw(".txt")[0] == b"text 10"
    assert store._decode_raw(b"raw", fname="x.txt") == "raw"
    assert store.get_path() == str(shards)


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("shards", WebdatasetFileStore),
        ({"path": "shards"}, WebdatasetFileStore),
        ("x.jsonl", JsonlFileStore),
        ("filesystem://files", SystemFileStore),
        ({"fs_path": "files"}, SystemFileStore),
    ],
)
def test_references_of_a_mix(reference: Any, kind: type, shards: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "x.jsonl").write_text("{}\n")
    store = open_side_store(reference, relative_to=tmp_path)
    assert type(store) is kind
    assert Path(store.get_path()).parent == tmp_path


def test_absolute_references(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    assert open_side_store(f"filesystem://{tmp_path}/files", relative_to="/").get_path() == f"{tmp_path}/files"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("files", "is not prepared. Run `omniloom prepare .*or name it filesystem://"),
        ("none", "there is nothing"),
        ("filesystem://none", "is no folder"),
        ("mix.yaml", "is a mix; a store is one data set"),
        ("filesystem+file:///none", "is no folder"),
        ({"dir": "x"}, "expected a path of a prepared data set"),
        (7, "7 found"),
    ],
)
def test_other_references_are_refused(reference: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(ConfigError, match=message):
        open_side_store(reference, relative_to=tmp_path)


def test_media_metadata_is_that_of_the_database(shards: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds no media metadata.*prepare-media"):
        WebdatasetFileStore(shards).get_media_metadata("v1.0/00.txt")
    database = sqlite3.connect(shards / ".nv-meta/index.sqlite")
    database.execute("CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_type TEXT, metadata_json TEXT)")
    image = {"width": 4, "height": 5, "format": "PNG", "mode": "RGB"}
    database.execute("INSERT INTO media_metadata VALUES ('v1.0/00.png', 'image', ?)", (json.dumps(image),))
    database.commit()
    database.close()
    store = WebdatasetFileStore(shards)
    assert store.get_media_metadata("v1.0/00.png").to_dict() == image
    with pytest.raises(KeyError, match=r"no media metadata of 'v1\.0/01\.png'"):
        store.get_media_metadata("v1.0/01.png")
