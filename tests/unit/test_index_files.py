"""The sidecar's files one by one: .tar.idx, .info.json, omniloom.json, index.sqlite, parts tables."""

from __future__ import annotations

import io
import json
import pickle
import sqlite3
import struct
import tarfile
from array import array
from pathlib import Path

import pytest

from omniloom.data.index.database import DatabaseWriter, find_all, look_up
from omniloom.data.index.info import encode_info, is_prepared, read_info
from omniloom.data.index.omniloom_json import OmniloomInfo, ShardMark, encode_omniloom_info, read_omniloom_info
from omniloom.data.shards.parts_table import (
    PartsTable,
    read_keys,
    read_parts_table,
    read_summary,
    write_parts_table,
)
from omniloom.data.shards.scan import ShardScan, scan_shard
from omniloom.data.shards.tar_index import encode_tar_index, read_tar_index, samples_in_index, tar_index_path
from omniloom.errors import DatasetError, ShardError, StorageError


def _tar(path: Path, *members: tuple[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def _scan(tmp_path: Path, *names: str, shard: str = "s.tar") -> ShardScan:
    path = _tar(tmp_path / shard, *((name, b"x" * number) for number, name in enumerate(names)))
    return scan_shard(path, shard=shard)


# --- .tar.idx


@pytest.mark.parametrize(
    ("tar", "index"),
    [("x.tar", "x.tar.idx"), ("a.b/x.tar", "a.b/x.tar.idx"), ("x.tgz", "x.tar.idx"), ("x.tar.gz", "x.tar.tar.idx")],
)
def test_index_path(tar: str, index: str) -> None:
    assert tar_index_path(tar) == index


def test_index_bytes(tmp_path: Path) -> None:
    # Energon's own example of a shard with three samples.
    data = struct.pack("<4Q", 0, 2048, 4608, 6144)
    assert encode_tar_index(array("Q", [0, 2048, 4608, 6144])) == data
    (tmp_path / "x.tar.idx").write_bytes(data)
    assert read_tar_index(tmp_path / "x.tar").tolist() == [0, 2048, 4608, 6144]
    assert samples_in_index(tmp_path / "x.tar") == 3


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"", "0 bytes"), (b"x" * 12, "12 bytes, expected a multiple of 8"), (struct.pack("<2Q", 8, 0), "do not rise")],
)
def test_damaged_index(data: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar.idx").write_bytes(data)
    with pytest.raises(DatasetError, match=told):
        read_tar_index(tmp_path / "x.tar")


def test_missing_index_names_the_command(tmp_path: Path) -> None:
    for read in (read_tar_index, samples_in_index):
        with pytest.raises(DatasetError, match=r"x\.tar\.idx: there is no index.*omniloom prepare"):
            read(tmp_path / "x.tar")


# --- .info.json


def _meta(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / ".nv-meta").mkdir(exist_ok=True)
    (tmp_path / ".nv-meta" / name).write_text(text, encoding="utf-8")


def test_info_round_trip(tmp_path: Path) -> None:
    _meta(tmp_path, ".info.json", encode_info({"b.tar": 2, "a.tar": 1}))
    info = read_info(tmp_path)
    assert list(info.shard_counts.items()) == [("b.tar", 2), ("a.tar", 1)]
    assert (info.energon_version, info.samples) == ("7.4.1", 3)


def test_old_info_yaml_is_read(tmp_path: Path) -> None:
    assert not is_prepared(tmp_path)
    _meta(tmp_path, ".info.yaml", "shard_counts:\n  a.tar: 010\nenergon_version: 5.0\n")
    assert is_prepared(tmp_path)
    info = read_info(tmp_path)
    assert (info.shard_counts, info.energon_version) == ({"a.tar": 10}, "5.0")
    _meta(tmp_path, ".info.json", encode_info({"a.tar": 3}))
    assert read_info(tmp_path).shard_counts == {"a.tar": 3}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no valid JSON"),
        ("[]", "expected a mapping"),
        ('{"shard_counts": {"a.tar": -1}}', "'a.tar' has -1 samples"),
        ('{"shard_counts": {"a.tar": true}}', "'a.tar' has True samples"),
        ('{"shard_counts": {"a.tar": 1.5}}', "1.5 samples"),
        ('{"shard_counts": {"../a.tar": 1}}', "'../a.tar' lies outside"),
        ('{"shard_counts": {}, "x": 1}', "unknown keys ['x']"),
        ("[" * 100_000, "no valid JSON"),
    ],
)
def test_damaged_info(text: str, told: str, tmp_path: Path) -> None:
    _meta(tmp_path, ".info.json", text)
    with pytest.raises(DatasetError) as error:
        read_info(tmp_path)
    assert told in str(error.value)


def test_not_prepared_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"omniloom prepare {tmp_path}"):
        read_info(tmp_path)
    with pytest.raises(DatasetError, match="there is no such folder"):
        read_info(tmp_path / "missing")


# --- omniloom.json


def test_omniloom_json_round_trip_and_its_uuid(tmp_path: Path) -> None:
    info = OmniloomInfo(
        index_uuid="u1",
        omniloom_version="0.1.0",
        key_rule="last-dot",
        ignored={"apple-double": 2},
        shards={"a/b.tar": ShardMark(10_240, "ff" * 16, True)},
    )
    assert read_omniloom_info(tmp_path) is None
    _meta(tmp_path, "omniloom.json", encode_omniloom_info(info))
    assert read_omniloom_info(tmp_path) == info
    _meta(tmp_path, "index.uuid", "u1")
    assert read_omniloom_info(tmp_path) == info
    _meta(tmp_path, "index.uuid", "u2")  # Energon has indexed the set since
    assert read_omniloom_info(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [({"format": 2}, "has format 2"), ({"shards": {"a": [1]}}, "damaged"), ({"key_rule": "x"}, "unknown key rule 'x'")],
)
def test_damaged_omniloom_json(change: dict[str, object], told: str, tmp_path: Path) -> None:
    plain = json.loads(encode_omniloom_info(OmniloomInfo(index_uuid="u", omniloom_version="0")))
    _meta(tmp_path, "omniloom.json", json.dumps(plain | change))
    with pytest.raises(DatasetError, match=told):
        read_omniloom_info(tmp_path)


# --- index.sqlite


def test_database_rows_and_order_of_keys(tmp_path: Path) -> None:
    writer = DatabaseWriter(tmp_path / "x.sqlite")
    writer.append(0, _scan(tmp_path, "b.txt", "b.jpg", "a.txt"))
    writer.append(1, _scan(tmp_path, "A.txt", "ä.txt"))
    assert writer.finish().repeated == 0
    with sqlite3.connect(tmp_path / "x.sqlite") as db:
        # 512 bytes of header before each payload, payloads padded to 512: sizes 0, 1, 2 for the first shard.
        rows = db.execute("SELECT * FROM samples").fetchall()
        assert [row[1] for row in rows] == ["A", "a", "b", "ä"]
        assert sorted(rows) == [
            (0, "a", 1, 1536, 1024), (0, "b", 0, 0, 1536), (1, "A", 0, 0, 512), (1, "ä", 1, 512, 1024),
        ]  # fmt: skip
        assert sorted(db.execute("SELECT * FROM sample_parts WHERE tar_file_id = 0")) == [
            (0, 0, "jpg", 1024, 1), (0, 0, "txt", 512, 0), (0, 1, "txt", 2048, 2),
        ]  # fmt: skip
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.tar", "x.sqlite"]


def test_repeated_keys_are_kept_counted_and_ambiguous(tmp_path: Path) -> None:
    writer = DatabaseWriter(tmp_path / ".nv-meta" / "index.sqlite") if (tmp_path / ".nv-meta").mkdir() is None else None
    assert writer is not None
    writer.append(0, _scan(tmp_path, "a.txt", "b.txt"))
    writer.append(1, _scan(tmp_path, "c.txt", "b.txt"))
    duplicates = writer.finish()
    assert duplicates.repeated == 1
    assert [(each.key, each.places) for each in duplicates.examples] == [("b", [(0, 1), (1, 1)])]
    _meta(tmp_path, ".info.json", encode_info({"x.tar": 2, "y.tar": 2}))
    assert look_up(tmp_path, "c")[1:] == ("y.tar", 0, 0, 512)
    assert len(find_all(tmp_path, "b")) == 2
    with pytest.raises(DatasetError, match=r"'b' is ambiguous: it is in x\.tar \(row 1\) and y\.tar \(row 1\)"):
        look_up(tmp_path, "b")
    with pytest.raises(DatasetError, match="no sample has the key 'z'"):
        look_up(tmp_path, "z")
    with sqlite3.connect(tmp_path / ".nv-meta/index.sqlite") as db:
        # The form of earlier versions: an index on the key in place of the constraint.
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        assert "idx_samples_sample_key" in names
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_names_that_are_not_utf8_can_be_found(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    key = b"caf\xe9".decode("utf-8", "surrogateescape")
    writer = DatabaseWriter(tmp_path / ".nv-meta" / "index.sqlite")
    writer.append(0, _scan(tmp_path, f"{key}.txt", "b.txt"))
    writer.finish()
    _meta(tmp_path, ".info.json", encode_info({"x.tar": 2}))
    assert look_up(tmp_path, key).row == 0
    assert look_up(tmp_path, "b").row == 1


def test_look_up_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="without --no-sqlite"):
        look_up(tmp_path, "a")
    _meta(tmp_path, ".info.json", encode_info({"x.tar": 2}))
    _meta(tmp_path, "index.sqlite", "this is no database, it is a text that is long enough to be refused" * 10)
    with pytest.raises(StorageError, match=r"index\.sqlite: cannot be read"):
        look_up(tmp_path, "a")


def test_database_in_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write the key database"):
        DatabaseWriter(tmp_path / "missing" / "x.sqlite")


# --- parts tables


@pytest.mark.parametrize(
    "names",
    [
        ("a.txt", "b.txt", "c.txt"),
        ("a.jpg", "a.txt", "b.seg.png", "b.txt"),
        ("a.jpg", "b.jpg", "a.txt", "b.txt"),  # interleaved
        ("README", "a.txt", "._a.txt", ".DS_Store"),
        ("d" * 99 + ".", "x.x"),
        (),
        (b"caf\xe9".decode("utf-8", "surrogateescape") + ".txt", 'quo"te.txt'),
    ],
)
def test_parts_table_gives_the_scan_back(names: tuple[str, ...], tmp_path: Path) -> None:
    scan = _scan(tmp_path, *names)
    path = tmp_path / "deep" / "s.tar.parts"
    written = write_parts_table(path, scan, mtime_ns=17, on_duplicate="first")
    assert read_parts_table(path) == scan
    assert read_keys(path) == scan.keys
    summary = read_summary(path)
    assert summary.samples == len(scan.keys)
    assert summary.part_counts == {name: scan.part_names.count(name) for name in scan.part_names}
    assert (summary.mtime_ns, summary.on_duplicate, summary.irregular) == (17, "first", scan.irregular)
    assert summary.key_range == ((min(scan.keys), max(scan.keys)) if scan.keys else None)
    assert written.samples == summary.samples
    assert [path.name for path in path.parent.iterdir()] == ["s.tar.parts"]


def test_parts_table_by_row(tmp_path: Path) -> None:
    scan = _scan(tmp_path, "a.jpg", "b.jpg", "a.txt", "b.txt")
    write_parts_table(tmp_path / "t", scan, mtime_ns=0, on_duplicate="error")
    table = PartsTable(tmp_path / "t")
    # Payloads of 0, 1, 2 and 3 bytes: headers at 0, 512, 1536, 2560.
    assert table.row(0) == ("a", [("jpg", 512, 512), ("txt", 2048, 2050)])
    assert table.row(1) == ("b", [("jpg", 1024, 1025), ("txt", 3072, 3075)])
    assert len(table) == 2
    for row in (-1, 2):
        with pytest.raises(IndexError, match="has 2 samples"):
            table.row(row)
    assert pickle.loads(pickle.dumps(table)).row(1)[0] == "b"
    table.close()
    assert table.row(0)[0] == "a"


def test_offsets_beyond_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "big.tar"
    with path.open("wb") as file:
        for name, size in (("a.bin", 5 << 30), ("b.txt", 2)):
            member = tarfile.TarInfo(name)
            member.size = size
            file.write(member.tobuf(tarfile.GNU_FORMAT))
            file.seek((size + 511) & -512, 1)
        file.write(bytes(1024))
    scan = scan_shard(path, shard="big.tar")
    write_parts_table(tmp_path / "t", scan, mtime_ns=0, on_duplicate="error")
    assert read_parts_table(tmp_path / "t") == scan
    assert PartsTable(tmp_path / "t").row(1) == ("b", [("txt", (5 << 30) + 1024, (5 << 30) + 1026)])


def test_damaged_parts_tables(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parts_table(path, _scan(tmp_path, "a.jpg", "b.jpg", "a.txt"), mtime_ns=0, on_duplicate="error")
    whole = path.read_bytes()
    header_end = 12 + int.from_bytes(whole[8:12], "little")
    damaged = {
        "missing": None,
        "empty": b"",
        "other": b"something else entirely",
        "cut header": whole[:40],
        "cut keys": whole[: header_end + 3],
        "cut columns": whole[:-3],
        "flipped": whole[:-8] + bytes([whole[-8] ^ 255]) + whole[-7:],
        "huge header": whole[:8] + b"\xff\xff\xff\xff" + whole[12:],
        "more samples": whole.replace(b'"samples": 2', b'"samples": 3'),
        "other format": whole.replace(b'"format": 1', b'"format": 9'),
        "bomb": whole.replace(b'"bytes": [', b'"bytes": [1'),
    }
    for what, data in damaged.items():
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        with pytest.raises(ShardError, match="not a usable parts table") as error:
            read_parts_table(path)
        assert error.value.reason == "bad-parts-table", what
