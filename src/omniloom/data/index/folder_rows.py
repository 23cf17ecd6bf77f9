"""`FolderRows`: a plain folder of files; files of one name with several endings are one sample."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from omniloom.data.index.file_splits import PART_WORDS
from omniloom.data.index.layout import FOLDER_INDEX, MAIN_FOLDER, meta_path
from omniloom.data.sample import RawSample
from omniloom.data.shards.brought import BroughtRows
from omniloom.data.shards.jsonl import LineFile
from omniloom.data.shards.keys import ignored_reason, split_key
from omniloom.data.shards.line_index import find_lines, records_in_index, write_line_index
from omniloom.errors import DatasetError, SampleError, SkipSample, StorageError
from omniloom.storage.files import replace_file, storage_error
from omniloom.storage.inside_store import inside_folder
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, relative_to

MAX_UNINDEXED_FILES = 1_000_000


class FolderRows(BroughtRows):
    """The samples of a folder, sorted by key.

    Key and part of a file are those that it would have in a tar archive. The list of files is kept by
    ``omniloom prepare``; without it, the folder is listed when it is opened.

    Args:
        root: the folder.
        split_part: where all files lie in folders named for parts (``train``, ``val``, ...), the part.
        wanted: parts to read; ``None``: all.

    Raises:
        DatasetError: there are no samples, too many files to list at each start, or no such part.
    """

    def __init__(self, root: str, *, split_part: str = "train", wanted: Container[str] | None = None) -> None:
        super().__init__()
        self.root = root
        self.split_part = split_part
        self.wanted = wanted
        self._inside = inside_folder(root)
        self._index = meta_path(root, FOLDER_INDEX)
        self._lines: LineFile | None = None
        self._samples: list[tuple[str, dict[str, str]]] = []
        rows = records_in_index(self._index) if self._index.is_file() else None
        if rows is None:
            self._samples = list_folder(root)
            rows = len(self._samples)
        else:
            self._lines = LineFile(os.fspath(self._index))
        self._start, self._stop = self._range_of_part(rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.root, self.split_part, self.wanted, self._mark())

    def __repr__(self) -> str:
        return f"FolderRows({self.root!r})"

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def is_far(self) -> bool:
        """Whether the folder lies in a store."""
        return is_url(self.root)

    def read_now(self, row: int) -> RawSample:
        """The files of a row. Raises SampleError when one is gone, or leads out of the folder."""
        if not 0 <= row < len(self):
            raise IndexError(f"{self!r}: there is no row {row:,}; it has {len(self):,} rows")
        key, files = self._sample(row + self._start)
        parts = {}
        for part, name in files.items():
            if self.wanted is None or part in self.wanted:
                try:
                    parts[part] = self._inside.read(name)
                except StorageError as error:
                    raise SampleError(f"{key}: {error}", reason="missing-file") from error
        return RawSample(key, "", parts)

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """First file of a row; never raises."""
        try:
            return next(iter(self._sample(row + self._start)[1].values())), None
        except Exception:
            return self.root, None

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row; nothing where it cannot be read."""
        try:
            return frozenset(self._sample(self._start)[1])
        except (DatasetError, SkipSample, OSError):
            return frozenset()

    def _sample(self, row: int) -> tuple[str, dict[str, str]]:
        if self._lines is None:
            return self._samples[row]
        entry = json.loads(self._lines.read(row))
        return entry["key"], entry["files"]

    def _mark(self) -> str:
        """Tells whether the folder is listed alike in another process; the kept list sees to that itself."""
        if self._lines is not None:
            return ""
        text = "\0".join(name for _, files in self._samples for name in files.values())
        return hashlib.sha256(os.fsencode(text)).hexdigest()

    def _range_of_part(self, rows: int) -> tuple[int, int]:
        """First row of the part and the row after its last: samples are sorted, so a part is a range."""
        folders = part_folders(self.root)
        if not folders:
            return 0, rows
        part = PART_WORDS.get(self.split_part.lower(), self.split_part)
        if part not in folders:
            raise DatasetError(
                f"{self.root}: there is no split part {self.split_part!r}; its folders are named for "
                f"{', '.join(folders)}."
            )
        top = folders[part]
        begin = bisect_left(range(rows), f"{top}/", key=lambda row: self._sample(row)[0])
        end = bisect_left(range(rows), f"{top}0", key=lambda row: self._sample(row)[0])  # "0" comes after "/"
        if begin == end:
            raise DatasetError(f"{self.root}: the folder {top} of split part {self.split_part!r} holds no samples.")
        return begin, end


def part_folders(root: str) -> dict[str, str]:
    """Top folders by the part of a split they are named for; empty where anything else lies beside them.

    Raises:
        DatasetError: two are named for one part.
    """
    found: dict[str, str] = {}
    for entry in open_store(root).children(root):
        name = entry.rstrip("/")
        if name.startswith("."):
            continue
        part = PART_WORDS.get(name.lower())
        if part is None or name == entry:
            return {}
        if part in found:
            raise DatasetError(f"{root}: {found[part]} and {name} both stand for the split part {part!r}. Rename one.")
        found[part] = name
    return found


def _again(root: str, split_part: str, wanted: Container[str] | None, mark: str) -> FolderRows:
    rows = FolderRows(root, split_part=split_part, wanted=wanted)
    if rows._mark() != mark:
        raise DatasetError(f"{root}: files came or went since the loader was made. Make the loader again.")
    return rows


def list_folder(root: str, *, limit: int | None = MAX_UNINDEXED_FILES) -> list[tuple[str, dict[str, str]]]:
    """(key, file by part) of every sample below a folder, sorted by key.

    Args:
        root: the folder.
        limit: files at most; ``None``: no limit.

    Raises:
        DatasetError: no samples, more files than the limit, or two files of one key and part.
    """
    samples: dict[str, dict[str, str]] = {}
    for count, name in enumerate(_names_in_store(root) if is_url(root) else _names_on_disk(root), start=1):
        if limit is not None and count > limit:
            raise DatasetError(
                f"{root}: more than {limit:,} files, too many to list at each start. Keep the list: "
                f"`omniloom prepare {root}`."
            )
        halves = split_key(name)
        if halves is not None and ignored_reason(name) is None:
            samples.setdefault(halves[0], {})[halves[1]] = name
    if not samples:
        raise DatasetError(f"{root}: there are no files that could be samples. Check the path of the data set.")
    return sorted(samples.items())


def _names_on_disk(root: str) -> Iterator[str]:
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name != MAIN_FOLDER)
        prefix = os.path.relpath(folder, root).replace(os.sep, "/")
        for base in sorted(names):
            yield base if prefix == "." else f"{prefix}/{base}"


def _names_in_store(root: str) -> Iterator[str]:
    for url in open_store(root).list(root):
        name = relative_to(url, root)
        if MAIN_FOLDER not in name.split("/")[:-1]:
            yield name


def write_folder_index(root: str) -> int:
    """Keep the list of a folder's samples in ``.nv-meta``; gives their number.

    Raises:
        DatasetError: as `list_folder`.
        StorageError: the folder cannot be written to.
    """
    samples = list_folder(root, limit=None)
    lines = [json.dumps({"key": key, "files": files}) + "\n" for key, files in samples]
    if not is_url(root):
        path = Path(meta_path(root, FOLDER_INDEX))
        replace_file(path, "".join(lines))
        write_line_index(path, find_lines(path))
        return len(samples)
    from omniloom.data.index.mirror import renew  # noqa: PLC0415 - local sets need no store

    url = join_url(root, f"{MAIN_FOLDER}/{FOLDER_INDEX}")
    replace_file(url, "".join(lines))
    write_line_index(url, find_lines(url))
    renew(root)
    return len(samples)


def _refuse(error: OSError) -> None:
    raise storage_error("list", error.filename or "folder", error) from error
