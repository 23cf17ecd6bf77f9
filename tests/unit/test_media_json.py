"""Strict JSON: what is taken and what is refused, with reason and place."""

from __future__ import annotations

import functools
import json

import pytest

from omniloom.data.media.json_part import has_padding, parse_strict_json
from omniloom.errors import SampleError


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\xef\xbb\xbf[1]", [1]),
        (b"null", None),
        (b'{"id": 9007199254740993}', {"id": 9007199254740993}),
        (b"[1]\0\0\0", [1]),
        (b'"\\ud83d\\ude00"', "😀"),
        (b"-1.5e300", -1.5e300),
        ('"é"'.encode(), "é"),
        (b"\n\n [1]\n\n", [1]),
        (b"[" * 400 + b"]" * 400, functools.reduce(lambda inner, _: [inner], range(399), [])),
    ],
)
def test_taken(data: bytes, value: object) -> None:
    assert parse_strict_json(data) == value


@pytest.mark.parametrize(
    ("data", "reason", "told"),
    [
        (b'{"a": [1, NaN]}', "number", "at /a/1: NaN"),
        (b"[-Infinity]", "number", "at /0: -Infinity"),
        (b'{"a/b": {"~": 1e400}}', "number", "at /a~1b/~0: 1e400"),
        (b'[{"x": 1}, {"k": 1, "k": 2}]', "duplicate-key", "at /1/k: the key 'k' comes twice"),
        (b'{"t": "\\ud83d"}', "surrogate", "at /t"),
        (b'{"\\ud83d": 1}', "surrogate", "half of a surrogate pair"),
        (b'"caf\xe9"', "encoding", "line 1: byte 4 (0xe9)"),
        (b"[1,\n2,\n\xff]", "encoding", "line 3"),
        ('"x"'.encode("utf-16"), "encoding", "UTF-16"),
        ('"x"'.encode("utf-16-le"), "encoding", "UTF-16"),
        (b"[1,]", "syntax", "line 1, column 4"),
        (b'{"a": "x\ny"}', "syntax", "line 1, column 9"),
        (b"", "empty-member", "empty"),
        (b"\0\0", "empty-member", "empty"),
        (b"   ", "syntax", "line 1"),
        (b"[" * 100_000, "depth", "deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "depth", "deeply"),
        (b"9" * 5_000, "number", "digits"),
        (b'{"a": 1, "a": 2', "syntax", "line 1, column 16"),
        (b'{"a": 1, "a": ' + b"[" * 450 + b"]" * 450 + b"}", "duplicate-key", "/a"),
        (b'{"a": NaN, "b": ' + b"[" * 50_000, "depth", "400 levels"),
        (b"[" * 401 + b"]" * 401, "depth", "400 levels"),
        (b"[1]\n[2]", "syntax", "line 2, column 1"),
    ],
)
def test_refused(data: bytes, reason: str, told: str) -> None:
    with pytest.raises(SampleError) as error:
        parse_strict_json(data)
    assert error.value.reason == reason
    assert told in str(error.value)


def test_padding_is_told() -> None:
    assert has_padding(b"{}\0")
    assert not has_padding(json.dumps({}).encode())
