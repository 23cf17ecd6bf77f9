"""Rows of tables (Parquet, Arrow) as parts of samples, and how parts become the values of columns again.

======================== ===================================================================================
column                   parts
======================== ===================================================================================
text                     ``<column>``: UTF-8
binary                   ``<column>``: the bytes
struct {bytes, path}     ``<column>.<kind>``: bytes of the image, sound or video, named for the path's ending or,
                         without one, for the content
anything else            ``<column>``: JSON. Bytes within are parts ``<column>/0``, ``<column>/1.jpg``, ...; a mark
                         stands in their places. Dates, times and decimals are texts.
null                     none
======================== ===================================================================================
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.media.image_kinds import sniff_image
from omniloom.errors import ConfigError, SampleError

if TYPE_CHECKING:
    import pyarrow as pa

ColumnKind = Literal["text", "bytes", "media", "tree", "json"]
"""As in the table above; ``json`` is a record of JSONL, read as strictly as the decoder says."""

_MEDIA_MARK = "\0media"
_BYTES_MARK = "\0bytes"
_MARK_IN_JSON = b'{"\\u0000'
_LONGEST_ENDING = 5


def import_pyarrow(what: str) -> Any:
    """The module pyarrow.

    Raises:
        ConfigError: it is not installed; names the extra.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"{what}: tables need the extra: pip install 'omniloom[tables]'") from error
    return pa


class BatchTable:
    """Rows of record batches, laid end to end."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = [batch for batch in batches if batch.num_rows]
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, row: int) -> dict[str, Any]:
        """Values of a row by column, copied."""
        number = bisect_right(self._ends, row)
        batch = self._batches[number]
        (values,) = batch.slice(row - self._ends[number] + batch.num_rows, 1).to_pylist()
        return dict(values)


def column_kinds(schema: pa.Schema) -> dict[str, ColumnKind]:
    """What becomes of each column of a table."""
    kinds: dict[str, ColumnKind] = {field.name: _kind(field.type) for field in schema}
    for name, kind in kinds.items():
        # Where names could be mistaken for each other, the longer way round is taken.
        if kind == "media" and any(other.startswith(f"{name}.") for other in kinds):
            kinds[name] = "tree"
    return kinds


def _kind(found: pa.DataType) -> ColumnKind:
    import pyarrow as pa  # noqa: PLC0415 - who has a schema has it

    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_string(found) or pa.types.is_large_string(found):
        return "text"
    if _is_binary(found):
        return "bytes"
    if pa.types.is_struct(found) and {field.name for field in found} == {"bytes", "path"}:
        return "media" if _is_binary(found.field("bytes").type) else "tree"
    return "tree"


def _is_binary(found: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_fixed_size_binary(found))


class _Media(NamedTuple):
    ending: str
    data: bytes


def row_parts(
    row: Mapping[str, Any], kinds: Mapping[str, ColumnKind], read_file: Callable[[str], bytes]
) -> dict[str, bytes]:
    """The parts of a row.

    Args:
        row: values by column.
        kinds: see `column_kinds`.
        read_file: bytes of a file that a row names instead of holding them.
    """
    parts: dict[str, bytes] = {}
    for name, value in row.items():
        if value is None:
            continue
        kind = kinds[name]
        if kind == "text":
            parts[name] = value.encode()
        elif kind == "bytes":
            parts[name] = value
        elif kind == "media":
            media = _media(value, read_file)
            if media is not None:
                parts[name + media.ending] = media.data
        else:
            _add_tree(parts, name, value, read_file)
    return parts


def _media(value: Mapping[str, Any], read_file: Callable[[str], bytes]) -> _Media | None:
    data, path = value["bytes"], value["path"]
    if data is None and path is None:
        return None
    ending = _ending(path or "")
    if data is None:
        data = read_file(path)
    if not ending:
        kind = sniff_image(data)
        ending = f".{kind.extensions[0]}" if kind else ""
    return _Media(ending, data)


def _ending(path: str) -> str:
    base = path[path.rfind("/") + 1 :]
    dot = base.rfind(".")
    ending = base[dot:].lower() if dot > 0 else ""
    return ending if ending[1:].isalnum() and len(ending) <= _LONGEST_ENDING + 1 else ""


def _add_tree(parts: dict[str, bytes], name: str, value: Any, read_file: Callable[[str], bytes]) -> None:
    inner: dict[str, bytes] = {}

    def plain(one: Any) -> Any:
        if isinstance(one, bytes):
            inner[f"{name}/{len(inner)}"] = one
            return {_BYTES_MARK: f"{name}/{len(inner) - 1}"}
        if isinstance(one, dict):
            if one.keys() == {"bytes", "path"} and isinstance(one["bytes"], bytes | None):
                media = _media(one, read_file)
                if media is None:
                    return None
                part = f"{name}/{len(inner)}{media.ending}"
                inner[part] = media.data
                return {_MEDIA_MARK: part}
            return {key: plain(item) for key, item in one.items()}
        return [plain(item) for item in one] if isinstance(one, list | tuple) else one

    parts[name] = json.dumps(plain(value), default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")
    parts.update(inner)


def column_values(
    parts: Mapping[str, bytes], kinds: Mapping[str, ColumnKind], decoder: SampleDecoder | None
) -> dict[str, Any]:
    """Values by column, of the parts that `row_parts` made; columns that are null are not among them.

    Args:
        parts: parts of a row.
        kinds: kinds of the columns.
        decoder: decodes media, and binary columns that are named like media; ``None``: they stay bytes.
    """
    values: dict[str, Any] = {}
    for part, data in parts.items():
        name, kind = part, kinds.get(part)
        if kind is None:  # media with their ending, or what stands within a tree
            name = part.rpartition(".")[0]
            kind = "media" if kinds.get(name) == "media" else None
        if kind == "text":
            values[part] = data.decode()
        elif kind == "tree":
            values[part] = _tree(data, parts, decoder)
        elif kind == "json":
            values[part] = _parsed(data, None) if decoder is None else decoder.json(data)
        elif kind is not None:
            values[name] = data if decoder is None else decoder.decode(part, data)
    return values


def _tree(data: bytes, parts: Mapping[str, bytes], decoder: SampleDecoder | None) -> Any:
    if _MARK_IN_JSON not in data:
        return _parsed(data, None)

    def whole(one: dict[str, Any]) -> Any:
        if _BYTES_MARK in one:
            return parts[one[_BYTES_MARK]]
        if _MEDIA_MARK in one:
            part = one[_MEDIA_MARK]
            return parts[part] if decoder is None else decoder.decode(part, parts[part])
        return one

    return _parsed(data, whole)


def _parsed(data: bytes, hook: Callable[[dict[str, Any]], Any] | None) -> Any:
    try:
        return json.loads(data, object_hook=hook)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"no JSON: {error}", reason="syntax") from error
