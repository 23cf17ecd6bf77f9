"""Benchmark files: JSON, JSON lines and Parquet, read with errors that name the row and the key."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from string import ascii_uppercase
from typing import Any
from zipfile import BadZipFile

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import ID_COLUMNS, id_text
from omniloom.evaluate.tables import parquet_files, parquet_rows

Row = Mapping[str, Any]

_LARGEST_CELL = 1 << 30
_GZIP = b"\x1f\x8b"
_POINTED = re.compile(r"\d+\.0$")
_VLMEVALKIT = {"index", "prediction"}
"""Keys of the rows that VLMEvalKit writes as JSON; they are as those of its tables."""
SHEETS = (".tsv", ".csv", ".xlsx")
WRAPPERS = (
    "data", "questions", "annotations", "samples", "items", "logs", "predictions", "results", "output", "res_list",
    "result_list",
)  # fmt: skip
"""Keys under which a file has its rows."""


def read_rows(path: Path) -> list[Row]:
    """The objects of a ``.json`` (a list, or one under ``data``, ``questions``, ...), ``.jsonl`` or ``.parquet`` file.

    A ``.json`` file may hold JSON lines, too, and all but ``.xlsx`` and Parquet may be gzipped (``.gz`` after the
    suffix).

    Tables (``.tsv``, ``.csv``, ``.xlsx``) give rows, whose columns ``A``, ``B``, ... are also its ``options``.

    A JSON object of objects, or one under these keys, gives those, each with its key as ``id`` unless it has one. A
    folder, or a prefix of names, gives the rows of all its Parquet tables of one split.

    Raises:
        ConfigError: the file is missing or holds something else; it names the file and line.
    """
    return [_with_plain_ids(row) for row in _rows(path)]


def _rows(path: Path) -> list[Row]:
    tables = parquet_files(path)
    if tables:
        return [row for table in tables for row in parquet_rows(table)]
    if not path.is_file():
        lacking = "no *.parquet in this folder" if path.is_dir() else "there is no such file"
        raise ConfigError(f"{path}: {lacking}.")
    suffix = suffix_of(path)
    if suffix in SHEETS:
        return _sheet(path) if suffix == ".xlsx" else _table(path)
    if suffix in (".jsonl", ".ndjson"):
        rows = [_object(_loads(line, path, number), path, number) for number, line in _lines(text_of(path))]
        return [one for row in rows for one in _of_document(row)]
    loaded = read_json(path)
    if isinstance(loaded, Mapping):
        for name in WRAPPERS:
            found = loaded.get(name)
            if isinstance(found, list) or (isinstance(found, Mapping) and all(map(_is_row, found.values()))):
                loaded = found
                break
    if isinstance(loaded, Mapping):
        loaded = [{"id": key, **value} if _is_row(value) else value for key, value in loaded.items()]
    if not isinstance(loaded, list):
        raise ConfigError(f"{path}: {type(loaded).__name__} found; a list of objects expected.")
    rows = [_object(row, path, number) for number, row in enumerate(loaded, 1)]
    return [_with_options(dict(row)) if row.keys() >= _VLMEVALKIT else row for row in rows]


def _with_plain_ids(row: Row) -> Row:
    """A row whose ids are whole numbers where a table holds them with a point."""
    pointed = {name: int(row[name]) for name in ID_COLUMNS if isinstance(row.get(name), float) and row[name] % 1 == 0}
    return {**row, **pointed} if pointed else row


def suffix_of(path: Path) -> str:
    """The suffix of a file, ``.jsonl`` of ``a.jsonl.gz``."""
    return Path(path.name.removesuffix(".gz")).suffix


def text_of(path: Path) -> str:
    """What stands in a file of UTF-8, gzipped or not, with or without a byte order mark.

    Raises:
        ConfigError: it is not UTF-8, with the byte; or its gzip is broken.
    """
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: begins as gzip does, and cannot be unpacked: {error}. Fetch it again.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is {data[error.start]:#04x}, which is not UTF-8. Save the file as UTF-8."
        ) from None


def read_json(path: Path) -> Any:
    """The value of a JSON file, or the list of those in its lines. Raises ConfigError with file and line."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file.")
    text = text_of(path)
    lines = list(_lines(text))
    if len(lines) > 1 and all(_is_object(line) for _, line in lines[:2]):  # POPE's files, for one
        return [_loads(line, path, number) for number, line in lines]
    return _loads(text, path, None)


def pairs_of(path: Path) -> list[tuple[str, Any]]:
    """Keys and values of the object in a JSON file, and so of objects in it; one that comes twice is there twice."""
    pairs: list[tuple[str, Any]] = json.loads(text_of(path), object_pairs_hook=list)
    return pairs


def letter_of(answer: Any, options: Mapping[str, str]) -> str:
    """The letter of an option, where an answer is its number from 0; any other answer as a text."""
    text = id_text(answer)
    known = list(options)
    return known[int(text)] if text.isdecimal() and int(text) < len(known) else text


def wanted(row: Row, *names: str, where: object) -> Any:
    """The first of some keys that a row has. Raises ConfigError naming those that were looked for and found."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ConfigError(f"{where}: none of the keys {', '.join(names)} in a row; found: {', '.join(map(str, row))}.")


def texts(value: Any) -> tuple[str, ...]:
    """One or several answers as texts; objects give their ``answer`` or ``caption``."""
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return tuple(
        str(wanted(one, "answer", "caption", "text", where="an answer")) if isinstance(one, Mapping) else str(one)
        for one in several
    )


def letters(options: Any) -> dict[str, str]:
    """Options by letter, from a list, a mapping, or a list written as text."""
    if isinstance(options, str):
        options = _list_in(options)
    if isinstance(options, Mapping):
        return {str(letter): str(text) for letter, text in options.items()}
    return {chr(ord("A") + index): str(text) for index, text in enumerate(options or ())}


def _table(path: Path) -> list[Row]:
    """The rows of a text with a column for each comma or tab; numbers that pandas wrote as "12.0" are whole ids."""
    csv.field_size_limit(_LARGEST_CELL)  # tables of VLMEvalKit hold images
    mark = "\t" if suffix_of(path) == ".tsv" else ","
    lines = csv.DictReader(io.StringIO(text_of(path), newline=""), delimiter=mark)
    rows = []
    try:
        for row in lines:
            if None in row:
                raise ConfigError(
                    f"{path}: line {lines.line_num} has {len(row) - 1 + len(row[None])} columns; {len(row) - 1} as in "
                    f"the first line expected. Put a text that holds {mark!r} in quotes."
                )
            rows.append(row)
    except csv.Error as error:
        raise ConfigError(f"{path}: line {lines.line_num} is in no table: {error}. Save the file again.") from None
    for name in ID_COLUMNS:
        if all(_POINTED.match(row.get(name) or "") for row in rows):
            rows = [row | {name: row[name].partition(".")[0]} for row in rows]
    return list(map(_with_options, rows))


def _sheet(path: Path) -> list[Row]:
    """The rows of the sheet that was looked at last; those without anything in them are passed over."""
    try:
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra
        from openpyxl.utils.exceptions import InvalidFileException  # noqa: PLC0415
    except ImportError:
        raise ConfigError(f"{path}: reading .xlsx needs openpyxl. Install omniloom[eval].") from None
    try:
        rows = load_workbook(path, read_only=True, data_only=True).active.iter_rows(values_only=True)
        head, *rest = [list(row) for row in rows if any(cell is not None for cell in row)] or [[]]
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, BadZipFile, InvalidFileException) as error:
        raise ConfigError(f"{path}: no sheet of Excel: {error}. Save it again as .xlsx.") from None
    return [_with_options(dict(zip_longest(map(str, head), row[: len(head)]))) for row in rest]


def _with_options(row: dict[str, Any]) -> Row:
    right = row.get("answer")
    if isinstance(right, str) and right.startswith("[") and right.endswith("]"):
        row["answer"] = literal_list(right) or right  # VLMEvalKit's tables write lists as texts
    there = {letter: str(row[letter]) for letter in ascii_uppercase if row.get(letter) not in (None, "", "nan")}
    return {**row, "options": there} if "A" in there and "options" not in row else row


def _list_in(text: str) -> Any:
    """A list that is written as text, as JSON or as Python has it; nothing is run."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ConfigError(f"options {text!r:.200}: a list expected, as JSON or Python write it.") from None


def literal_list(text: str) -> list[Any]:
    """The list that a text is; empty for none."""
    try:
        found = _list_in(text)
    except ConfigError:
        return []
    return found if isinstance(found, list) else []


def _of_document(row: Row) -> list[Row]:
    """The questions of a document as DUE has it (Borchmann et al. 2021): its annotations; another row is its own."""
    annotations = row.get("annotations")
    if not isinstance(annotations, list) or not {"name", "language"} <= row.keys():
        return [row]
    rows: list[Row] = []
    for one in annotations:
        said = [value.get("value", "") for value in one["values"]]
        variants = [text for value in one["values"] for text in value.get("value_variants", ())]
        asked = {"id": one["id"], "question": one["key"], "image": row["name"]}
        rows.append(asked | {"answers": variants or said, "prediction": said})
    return rows


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), Mapping)
    except (ValueError, RecursionError):
        return False


def _loads(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"line {line}" if line is not None else f"line {getattr(error, 'lineno', '?')}"
        raise ConfigError(f"{path}: {place} is not JSON: {error}.") from None


def _object(row: Any, path: Path, number: int) -> Row:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{path}: row {number} is {type(row).__name__}; an object expected.")
    return row
