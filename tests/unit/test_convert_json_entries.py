"""Streaming of JSON arrays and JSONL: the same values as the json module, strict where it is lax."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.convert import json_entries
from omniloom.data.convert.json_entries import RawEntry, read_entries
from omniloom.errors import DatasetError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(max_size=5), child, max_size=4),
    max_leaves=12,
)  # fmt: skip


def _read(path: Path, data: bytes | str) -> list[RawEntry]:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(read_entries(path))


@given(
    values=st.lists(JSON_VALUES, min_size=1, max_size=8), chunk_bytes=st.integers(1, 40), indent=st.none() | st.just(1)
)
@settings(max_examples=150, deadline=None)
def test_an_array_gives_what_the_json_module_gives(
    values: list[object], chunk_bytes: int, indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("json") / "x.json"
    text = json.dumps(values, indent=indent, ensure_ascii=chunk_bytes % 2 == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_entries, "CHUNK_BYTES", chunk_bytes)
        entries = _read(path, text)
    assert [entry.value for entry in entries] == json.loads(text)
    assert [entry.position for entry in entries] == list(range(len(values)))
    assert all(entry.reason is None for entry in entries)
    if indent:
        lines = [entry.line for entry in entries]
        starts = [line for line, row in enumerate(text.split("\n"), 1) if row.startswith(" ") and row[1] not in " ]}"]
        assert lines == starts


def test_jsonl_gives_one_entry_a_line_and_goes_on_after_a_bad_one(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"id": 1}\n\n{"id": 2}\r\n{"id": 3,}\n{"id": "\xff"}\n{"id": 9007199254740993}'
    entries = _read(tmp_path / "x.jsonl", data)
    assert [(e.position, e.line, e.reason) for e in entries] == [
        (0, 1, None),
        (1, 3, None),
        (2, 4, "syntax"),
        (3, 5, "encoding"),
        (4, 6, None),
    ]
    assert entries[4].value == {"id": 9007199254740993}
    assert "column 10" in entries[2].detail or "column 9" in entries[2].detail
    assert "byte 8" in entries[3].detail


@pytest.mark.parametrize(
    ("text", "reason", "found"),
    [
        ('{"a": NaN}', "number", "/a: NaN"),
        ('{"a": -Infinity}', "number", "-Infinity"),
        ('{"a": 1e400}', "number", "1e400"),
        ('{"a": 1, "b": 2, "a": 3}', "duplicate-key", "/a"),
        ('{"a": "\\ud83d"}', "surrogate", "/a"),
        ('{"a": ["\\uD83D x"]}', "surrogate", "/a/0"),
    ],
)
@pytest.mark.parametrize("form", ["x.json", "x.jsonl"])
def test_unsound_json_is_a_bad_entry(text: str, reason: str, found: str, form: str, tmp_path: Path) -> None:
    data = f'[{{"id": 0}}, {text}, {{"id": 2}}]' if form == "x.json" else f'{{"id": 0}}\n{text}\n{{"id": 2}}\n'
    entries = _read(tmp_path / form, data)
    assert [entry.reason for entry in entries] == [None, reason, None]
    assert found in entries[1].detail
    assert entries[1].value is None


def test_pairs_of_surrogates_and_nul_padding_are_sound(tmp_path: Path) -> None:
    assert _read(tmp_path / "x.jsonl", b'{"a": "\\ud83d\\ude00"}\0\0\n')[0].value == {"a": "\U0001f600"}


def test_numbers_of_thousands_of_digits_are_an_error_with_a_place(tmp_path: Path) -> None:
    text = '{"a": ' + "1" * 5000 + "}"
    assert _read(tmp_path / "x.jsonl", text)[0].reason == "number"
    with pytest.raises(DatasetError, match=r"line 2: Exceeds the limit"):
        _read(tmp_path / "x.json", f"[\n{text}]")


def test_deep_nesting_is_no_recursion_error(tmp_path: Path) -> None:
    deep = "[" * 100_000
    assert _read(tmp_path / "x.jsonl", '{"a": ' + deep)[0].reason == "depth"
    with pytest.raises(DatasetError, match="nested too deeply"):
        _read(tmp_path / "x.json", '[{"a": ' + deep)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no entries"),
        (b" \n ", "holds no entries"),
        (b"[]", "an empty JSON list"),
        (b"hello", "starts with b'h'"),
        (b"[1, 2", "line 1: expected ',' or ']' after an entry, found the end of the file"),
        (b'[{"a": 1}\n {"a": 2}]', "line 2: expected ',' or ']' after an entry, found '{'"),
        (b'[{"a": 1},\n{"a": 2,\n}]', "line 3|line 2"),
        (b"[1,\n2]\nx", "line 3: text after the end of the list"),
        (b'[{"a": "raw\nnewline"}]', "Invalid control character"),
        (b'["\xff\xfe"]', "byte 2 is not UTF-8"),
        ('[{"a": 1}]'.encode("utf-16"), "UTF-16"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        _read(tmp_path / "x.json", data)
    assert str(tmp_path / "x.json") in str(caught.value)


def test_entries_before_a_syntax_error_come_out(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"a": 1}, {"a": 2}, oops]')
    reader = read_entries(path)
    assert [next(reader).value for _ in range(2)] == [{"a": 1}, {"a": 2}]
    with pytest.raises(DatasetError, match="Expecting value"):
        next(reader)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" + ",".join(json.dumps({"id": n, "text": "x" * 1000}) for n in range(12_000)) + "]")
    tracemalloc.start()
    count = sum(1 for _ in read_entries(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 12_000
    assert path.stat().st_size > 12e6
    assert peak < 8e6
