"""Strict reading of a JSON part: what Python takes and other readers refuse is refused, with the place and a reason.

The decoder, lint and the converters read by this one function. It stands on Python's own parser, whose fast path it
keeps: orjson is quicker, but takes a key twice in one object and makes floats of large whole numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from omniloom.errors import SampleError

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
MAX_DEPTH = 400
"""Levels of nesting that are read; a fixed number, so that it does not depend on who calls."""


class _Marked:
    """Stands in a parsed value for something that is not allowed there."""

    def __init__(self, reason: str, what: str) -> None:
        self.reason = reason
        self.what = what


class _RefusedError(ValueError):
    """Raised inside the parser; the place is found in a second pass."""


def parse_strict_json(data: bytes) -> Any:
    """The value of a JSON text.

    A byte order mark and NULs at the end are taken. Refused are other encodings than UTF-8, ``NaN``, infinities,
    numbers too large for a float, a key twice in one object, lone surrogates, too deep nesting, and what is no JSON.

    Raises:
        SampleError: ``encoding``, ``empty-member``, ``number``, ``duplicate-key``, ``surrogate``, ``depth`` or
            ``syntax``; the message holds line and column, or the JSON pointer of the value.
    """
    text = _decoded(data)
    try:
        try:
            value = _decode(text)
            _check_values(value, 0)
            if "\\u" in text:  # the only way to half of a surrogate pair: the text itself is UTF-8
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (_RefusedError, UnicodeEncodeError) as error:
            # What is refused may stand before a mistake in the syntax, which the second reading then finds.
            raise _placed(text) from error
    except json.JSONDecodeError as error:
        raise SampleError(f"line {error.lineno}, column {error.colno}: {error.msg}", reason="syntax") from error
    except RecursionError as error:
        raise SampleError(f"nested too deeply to be read: more than {MAX_DEPTH} levels", reason="depth") from error
    except SampleError:
        raise
    except ValueError as error:  # whole numbers of thousands of digits
        raise SampleError(str(error), reason="number") from error
    return value


def has_padding(data: bytes) -> bool:
    """Whether a text ends in NULs, as some writers leave it."""
    return data.endswith(b"\0")


def _decoded(data: bytes) -> str:
    if data.startswith(_UTF16_BOMS) or data[:2].count(0) == 1:
        raise SampleError("the text is UTF-16 or UTF-32; expected UTF-8", reason="encoding")
    data = data.removeprefix(_UTF8_BOM).rstrip(b"\0")
    if not data:
        raise SampleError("the part is empty; expected JSON", reason="empty-member")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SampleError(
            f"line {line}: byte {error.start} ({data[error.start]:#04x}) is not UTF-8", reason="encoding"
        ) from error


def _no_constant(name: str) -> Any:
    raise _RefusedError(name)


def _check_values(value: Any, depth: int) -> None:
    """Refuse infinities, which 1e400 becomes without a word, and what is nested too deeply."""
    kind = type(value)
    if kind is float and math.isinf(value):
        raise _RefusedError
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return
    if depth == MAX_DEPTH:
        raise RecursionError
    for item in value:
        kind = type(item)
        if kind is dict or kind is list or kind is float:
            _check_values(item, depth + 1)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError
    return found


_decode = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_duplicates).decode


def _placed(text: str) -> SampleError:
    """The refusal with the place of what is refused: everything is read again, with marks in place of errors."""

    def number(digits: str) -> Any:
        value = float(digits)
        return _Marked("number", f"{digits} is too large for a number") if math.isinf(value) else value

    def pairs(items: list[tuple[str, Any]]) -> Any:
        seen: dict[str, Any] = {}
        for key, value in items:
            seen[key] = _Marked("duplicate-key", f"the key {key!r} comes twice") if key in seen else value
        return seen

    value = json.loads(
        text,
        parse_constant=lambda name: _Marked("number", f"{name} is no JSON number"),
        parse_float=number,
        object_pairs_hook=pairs,
    )
    for pointer, mark in _marks(value, ""):
        return SampleError(f"at {pointer or 'the top'}: {mark.what}", reason=mark.reason)
    return SampleError("not valid JSON", reason="syntax")


def _marks(value: Any, pointer: str) -> Iterator[tuple[str, _Marked]]:
    if isinstance(value, _Marked):
        yield pointer, value
    elif isinstance(value, dict):
        for key, item in value.items():
            below = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if _is_lone(key):
                yield below, _Marked("surrogate", "a key holds half of a surrogate pair")
            yield from _marks(item, below)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _marks(item, f"{pointer}/{number}")
    elif isinstance(value, str) and _is_lone(value):
        yield pointer, _Marked("surrogate", "the text holds half of a surrogate pair")


def _is_lone(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
