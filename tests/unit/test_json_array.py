"""Entries of a JSON list are found where a JSON parser finds them."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.shards import json_array
from omniloom.data.shards.json_array import find_entries
from omniloom.errors import DatasetError

KEYS = st.text(st.sampled_from('ab"\\{'), max_size=3)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('\\"{}[],: \né'), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.text("ab", max_size=2), VALUES, max_size=3), min_size=1, max_size=6),
    st.sampled_from([None, 0, 2]),
    st.sampled_from([5, 64, 1 << 20]),
    st.booleans(),
)
def test_every_entry_is_found_whatever_the_chunks(
    entries: list[dict[str, Any]], indent: int | None, chunk: int, ascii_only: bool
) -> None:
    text = json.dumps(entries, indent=indent, ensure_ascii=ascii_only).encode()
    with tempfile.TemporaryDirectory() as folder, patch.object(json_array, "CHUNK_BYTES", chunk):
        Path(folder, "x.json").write_bytes(text)
        offsets = find_entries(Path(folder, "x.json"))
    found = [json.loads(text[a:b].rstrip(b",] \n")) for a, b in itertools.pairwise(offsets)]
    assert found == entries
    assert offsets[-1] == len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("[]", "an empty JSON list"),
        ("{}", r"byte 0: b'\{\}' found, '\[' of a JSON list expected"),
        ("[{},]", "byte 3: .* '\\]' after an entry expected"),
        ("[{} {}]", "byte 4: .* one ',' and the next entry expected"),
        ("[1,{}]", "byte 1: .* '{' of an entry expected"),
        ("[{}", "byte 3: the end of the file found, the end of the list expected"),
        ('[{"a": [1}', "the end of the file found, the end of the entry that begins at byte 1"),
        ("[{}]x", "byte 4: b'x' found, the end of the file after the list expected"),
        ("[{},,{}]", "byte 3"),
    ],
)
def test_what_is_no_list_of_objects_is_refused_with_its_byte(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DatasetError, match=message):
        find_entries(tmp_path / "x.json")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf [ {"a": 1} ]\n')
    assert list(find_entries(tmp_path / "x.json")) == [6, 17]
