"""JSONL: the index has the bytes that the format's owner writes, and records are read at their place."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import pytest

from omniloom.data.shards import line_index
from omniloom.data.shards.jsonl import JsonlRows, open_jsonl
from omniloom.data.shards.line_index import find_lines, records_in_index, write_line_index
from omniloom.data.shards.rows import RowFile, SubRows
from omniloom.errors import ConfigError, DatasetError, ShardError, SkipSample


def write(path: Path, data: bytes, *, index: bool = True) -> RowFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if index:
        write_line_index(path, find_lines(path))
    return RowFile(path.name, str(path), 0)


# Offsets as Energon 7.4.1 was seen to write them.
OFFSETS = [
    (b'{"a":1}\n{"a":2}\n', (0, 8, 16)),
    (b'\n{"a":1}\n\n\n\n{"a":2}\n', (0, 12, 20)),
    (b'{"a":1}\n{"a":2}', (0, 8, 15)),
    (b'{"a":1}\r\n  \r\n{"a":2}\n', (0, 13, 21)),
]


@pytest.mark.parametrize(("data", "offsets"), OFFSETS)
def test_the_index_is_n_and_one_little_endian_offsets(data: bytes, offsets: tuple[int, ...], tmp_path: Path) -> None:
    write(tmp_path / "x.jsonl", data)
    assert (tmp_path / "x.jsonl.idx").read_bytes() == struct.pack(f"<{len(offsets)}Q", *offsets)


@pytest.mark.parametrize("index", [True, False])
def test_records_are_read_in_any_order_with_and_without_index(index: bool, tmp_path: Path) -> None:
    lines = [json.dumps({"n": number, "text": "é" * number}, ensure_ascii=False) for number in range(50)]
    rows = open_jsonl([write(tmp_path / "x.jsonl", "\n".join(lines).encode(), index=index)])
    again: JsonlRows = pickle.loads(pickle.dumps(rows))
    assert len(again) == 50
    for row in (49, 0, 17, 3):
        raw = again.read(row)
        assert (raw.name, raw.shard) == (str(row), "x.jsonl")
        assert json.loads(raw.parts["json"]) == {"n": row, "text": "é" * row}
        shard, span = again.origin(row)
        assert span is not None
        assert (tmp_path / shard).read_bytes()[slice(*span)] == raw.parts["json"]


def test_rows_take_no_memory_of_their_own_in_a_pickle(tmp_path: Path) -> None:
    rows = open_jsonl([write(tmp_path / "x.jsonl", b'{"a": 1}\n' * 20_000)])
    assert len(pickle.dumps(rows)) < 1_000


def test_several_files_are_one_list_and_keys_tell_the_file(tmp_path: Path) -> None:
    files = [write(tmp_path / f"part-{n}.jsonl", b'{"a":1}\n' * (n + 1)) for n in range(3)]
    rows = open_jsonl(files)
    assert [rows.read(row).name for row in range(len(rows))] == [
        "part-0/0", "part-1/0", "part-1/1", "part-2/0", "part-2/1", "part-2/2",
    ]  # fmt: skip
    assert [rows.row_of(rows.read(row).name) for row in range(len(rows))] == list(range(6))
    with pytest.raises(KeyError):
        rows.row_of("part-1/2")


def test_excluded_records_are_skipped_and_count(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", b'{"a":1}\n' * 3)._replace(excluded=frozenset({"1"}))
    rows = open_jsonl([file])
    assert len(rows) == 3
    with pytest.raises(SkipSample, match="excluded"):
        rows.read(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no records"),
        (b" \n\n", "holds no records"),
        (b'{"a":1}\n[1]\n', r"line 2 is b'\[1\]'; expected one JSON object a line"),
        (b'{"a":\n1}\n', "line 1 is"),
    ],
)
def test_what_is_no_jsonl_is_refused_with_its_line(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(DatasetError, match=message):
        find_lines(tmp_path / "x.jsonl")


def test_a_byte_order_mark_is_taken(tmp_path: Path) -> None:
    rows = open_jsonl([write(tmp_path / "x.jsonl", b'\xef\xbb\xbf{"a":1}\n{"a":2}\n')])
    assert json.loads(rows.read(0).parts["json"]) == {"a": 1}


def test_an_index_of_another_state_of_the_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", b'{"a":1}\n')
    rows = open_jsonl([file])
    Path(file.path).write_bytes(b'{"a":1}\n{"a":2}\n')
    with pytest.raises(ShardError, match="has 16 bytes, but its index was made when it had 8"):
        rows.read(0)
    with pytest.raises(ShardError, match="has 16 bytes"):
        open_jsonl([file])


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", b'{"a":1}\n')
    (tmp_path / "x.jsonl.idx").write_bytes(b"12345")
    with pytest.raises(DatasetError, match="damaged: 5 bytes"):
        records_in_index(file.path)


def test_a_large_file_without_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "MAX_UNINDEXED_BYTES", 10)
    file = write(tmp_path / "x.jsonl", b'{"a":1}\n' * 2, index=False)
    with pytest.raises(DatasetError, match=r"16 bytes are too many .*`omniloom prepare"):
        open_jsonl([file])


def test_a_range_of_rows_is_rows(tmp_path: Path) -> None:
    rows = open_jsonl([write(tmp_path / "x.jsonl", b'{"a":1}\n' * 10)])
    part = SubRows(SubRows(rows, 2, 8), 1, 3)
    assert [part.read(row).name for row in range(len(part))] == ["3", "4"]
    assert part.origin(0) == rows.origin(3)
    assert pickle.loads(pickle.dumps(part)).read(1).name == "4"
    with pytest.raises(ConfigError, match=r"rows 5 to 11 .* it has 10 rows"):
        SubRows(rows, 5, 11)
