"""`LlavaRows`: a LLaVA JSON and its images read in place, with the samples that a conversion would give."""

from __future__ import annotations

import os
from array import array
from collections.abc import Container
from typing import Any

from omniloom.data.convert.images import ImageSource, open_images
from omniloom.data.convert.llava_entry import read_llava_entry
from omniloom.data.convert.llava_parts import EXTRA_PART, JSON_PART, entry_pictures, llava_parts, name_pictures
from omniloom.data.convert.safe_keys import safe_key
from omniloom.data.media.json_part import parse_strict_json
from omniloom.data.sample import RawSample
from omniloom.data.shards.brought import BroughtRows
from omniloom.data.shards.json_array import find_entries
from omniloom.data.shards.jsonl import LineFile
from omniloom.data.shards.line_index import find_lines, line_index_path, records_in_index
from omniloom.errors import DatasetError, SkipSample
from omniloom.storage.urls import is_url, name_of

_TEXT_PARTS = frozenset((JSON_PART, EXTRA_PART))
_AFTER_ENTRY = b",] \t\r\n\0"


class LlavaRows(BroughtRows):
    """The entries of a LLaVA JSON or JSONL file, each with the images it names.

    Key and parts are those that ``omniloom convert llava`` would write, but that an id that comes twice is not renamed.
    Where ``omniloom prepare`` made an index (``<file>.idx``), it is used; else the entries are found when the file is
    opened, and what was found goes to workers with the rows.

    Args:
        path: the file.
        images: folder or zip archive that names of images are relative to.
        wanted: parts to read; ``None``: all.
        offsets: where the entries begin, found before; ``None``: the index tells, or they are found now.

    Raises:
        DatasetError: the file holds no list of objects, or its index is of another state of it.
        ConfigError: there is no such folder or archive of images.
    """

    def __init__(
        self, path: str, *, images: str, wanted: Container[str] | None = None, offsets: array[int] | None = None
    ) -> None:
        super().__init__()
        self.path = path
        self.images = images
        self.wanted = wanted
        rows = None if offsets is not None else records_in_index(path)
        self._offsets = find_llava_entries(path) if rows is None and offsets is None else offsets
        self._rows = rows if rows is not None else len(self._offsets or ()) - 1
        self._lines = LineFile(path, offsets=self._offsets)
        self._source: ImageSource = open_images(images)
        self._wants_images = wanted is None or not isinstance(wanted, frozenset) or not wanted <= _TEXT_PARTS

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.path, self.images, self.wanted, self._offsets)

    def __repr__(self) -> str:
        return f"LlavaRows({self.path!r})"

    def __len__(self) -> int:
        return self._rows

    @property
    def is_far(self) -> bool:
        """Whether the images lie in a store."""
        return is_url(self.images)

    def read_now(self, row: int) -> RawSample:
        """The parts of an entry. Raises SampleError with the reasons of a conversion."""
        if not 0 <= row < self._rows:
            raise IndexError(f"{self!r}: there is no row {row:,}; it has {self._rows:,} rows")
        value = parse_strict_json(self._lines.read(row).rstrip(_AFTER_ENTRY))
        entry = read_llava_entry(value, position=row)
        key = safe_key(entry.identifier).key
        pictures = name_pictures(entry_pictures(entry, self._source)) if self._wants_images else {}
        parts = llava_parts(entry, pictures, key=key)
        if self.wanted is not None:
            parts = {part: data for part, data in parts.items() if part in self.wanted}
        return RawSample(key, name_of(self.path), parts)

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """File and byte range of an entry; never raises."""
        try:
            return name_of(self.path), self._lines.span(row)
        except (DatasetError, OSError, IndexError):
            return name_of(self.path), None

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row; nothing where it cannot be read."""
        try:
            return frozenset(self.read(0).parts)
        except (DatasetError, SkipSample, OSError):
            return frozenset()


def find_llava_entries(path: str | os.PathLike[str]) -> array[int]:
    """Where the entries of a JSON list or of a JSONL file lie, see `find_entries` and `find_lines`."""
    return find_lines(path) if name_of(os.fspath(path)).endswith(".jsonl") else find_entries(path)


def _again(path: str, images: str, wanted: Container[str] | None, offsets: array[int] | None) -> LlavaRows:
    if offsets is None and records_in_index(path) is None:
        raise DatasetError(f"{line_index_path(path)}: is gone since the loader was made. Make the loader again.")
    return LlavaRows(path, images=images, wanted=wanted, offsets=offsets)
