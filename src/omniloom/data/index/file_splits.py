"""Which files of a source belong to a part of its split: by its split file, or by their names, or all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from omniloom.data.index.layout import MAIN_FOLDER, SPLIT_JSON, SPLIT_YAML, is_inside, meta_path
from omniloom.data.index.source_kind import SAVED_DATASET, SAVED_DATASETS, Source
from omniloom.data.index.splits import read_splits
from omniloom.data.shards.rows import RowFile
from omniloom.errors import DatasetError
from omniloom.storage.files import file_exists
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, name_of, relative_to

PART_WORDS: dict[str, str] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "eval": "test",
}
"""Words in names of files and folders, and the part of the split they tell."""

_WORD = re.compile(rf"(?:^|[-_./ ])({'|'.join(PART_WORDS)})(?=[-_./ 0-9]|$)", re.IGNORECASE)
_ENDINGS = {"jsonl": ".jsonl", "parquet": ".parquet", "arrow": ".arrow"}


def files_of_part(source: Source, *, split_part: str, split_config: str) -> list[RowFile]:
    """The files of a part, in the order of the rows; their counts are not known yet.

    A single file is all of every part, as Energon's JSONL is.

    Args:
        source: a source of JSONL, Parquet or Arrow.
        split_part: such as ``train``.
        split_config: name of the split file in ``.nv-meta``.

    Raises:
        DatasetError: there is no such part, or a file is missing.
        ConfigError: the split file is malformed.
    """
    if not source.has_sidecar:
        return [RowFile(name_of(source.path), source.path, 0)]
    if _has_split_file(source, split_config):
        return _files_of_split_file(source, split_part, split_config)
    if source.kind == "arrow" and source.files is None:
        return _saved_files(source, split_part)
    names = part_by_name(source_files(source), split_part, where=source.path)
    return [RowFile(name, join_url(source.root, name), 0) for name in names]


def split_parts(source: Source, *, split_config: str) -> list[str]:
    """The parts of a source's split; empty where it has none, so that all rows belong to whatever is asked for.

    Raises:
        DatasetError: as `files_of_part`.
        ConfigError: the split file is malformed.
    """
    if not source.has_sidecar or source.kind in ("folder", "llava"):
        return []
    if _has_split_file(source, split_config):
        splits = read_splits(source.root, split_config=split_config)
        return [part for part, names in splits.parts.items() if names]
    listing = join_url(source.root, SAVED_DATASETS)
    if source.kind == "arrow" and file_exists(listing):
        return _texts(listing, _read_json(listing).get("splits"))
    return sorted({part for name in _names(source) if (part := told_part(name)) is not None})


def source_files(source: Source) -> list[str]:
    """Names of all files of a folder of JSONL, Parquet or Arrow files, sorted.

    Raises:
        DatasetError: there are none.
    """
    names = list(_names(source))
    if not names:
        raise DatasetError(f"{source.path}: holds no {source.files or '*' + _ENDINGS[source.kind]}. Check the path.")
    return names


def told_part(name: str) -> str | None:
    """The part of a split that the name of a file tells; ``None`` where it tells none."""
    word = _WORD.search(str(PurePosixPath(name).with_suffix("")))
    return PART_WORDS[word[1].lower()] if word else None


def part_by_name(names: Iterable[str], split_part: str, *, where: str) -> list[str]:
    """The files whose names tell that they belong to a part; all, where no name tells any.

    Raises:
        DatasetError: no file belongs to the part, or some names tell a part and others do not.
    """
    told: dict[str | None, list[str]] = {}
    for name in names:
        told.setdefault(told_part(name), []).append(name)
    if set(told) == {None}:
        return told[None]
    if None in told:
        raise DatasetError(
            f"{where}: the name of {told[None][0]} tells no part of a split, while others' do. Say which file belongs "
            f"where in {MAIN_FOLDER}/{SPLIT_YAML}: `split_parts: {{train: [...], val: [...]}}`."
        )
    part = PART_WORDS.get(split_part.lower(), split_part)
    if part not in told:
        raise DatasetError(
            f"{where}: there is no split part {split_part!r}; the names of its files tell {sorted(map(str, told))}."
        )
    return told[part]


def _has_split_file(source: Source, split_config: str) -> bool:
    if split_config != SPLIT_YAML:
        return True  # asked for by name: it has to be there
    return any(meta_path(source.root, name).is_file() for name in (SPLIT_YAML, SPLIT_JSON))


def _files_of_split_file(source: Source, split_part: str, split_config: str) -> list[RowFile]:
    splits = read_splits(source.root, split_config=split_config)
    names = splits.shards_of(split_part)
    excluded = splits.excluded_keys(set(names)) if splits.exclude else {}
    missing = [name for name in names if not file_exists(join_url(source.root, name))]
    if missing:
        raise DatasetError(f"{splits.path}: split part {split_part!r} lists {missing[0]!r}, which is not there.")
    return [RowFile(name, join_url(source.root, name), 0, excluded.get(name, frozenset())) for name in names]


def _names(source: Source) -> Iterable[str]:
    pattern = source.files or f"**/*{_ENDINGS[source.kind]}"
    if is_url(source.root):
        below = sorted(relative_to(url, source.root) for url in open_store(source.root).list(source.root))
        yield from (name for name in below if _matches(name, pattern))
        return
    for path in sorted(Path(source.root).glob(pattern)):
        name = path.relative_to(source.root).as_posix()
        if path.is_file() and not any(piece.startswith(".") for piece in name.split("/")):
            yield name


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is one that a pattern of `Path.glob` finds: ``**/`` stands for any folders, or none."""
    text = "".join(
        "(?:.*/)?" if piece == "**/" else "[^/]*" if piece == "*" else "[^/]" if piece == "?" else re.escape(piece)
        for piece in re.split(r"(\*\*/|\*|\?)", pattern)
    )
    return re.fullmatch(text, name) is not None and not any(one.startswith(".") for one in name.split("/"))


def _saved_files(source: Source, split_part: str) -> list[RowFile]:
    """Files of a data set, or of a dictionary of data sets, that Hugging Face `datasets` saved."""
    folder = source.root
    listing = join_url(folder, SAVED_DATASETS)
    if file_exists(listing):
        names = _texts(listing, _read_json(listing).get("splits"))
        part = PART_WORDS.get(split_part.lower(), split_part)
        chosen = [name for name in names if name == split_part] or [
            name for name in names if PART_WORDS.get(name.lower(), name) == part
        ]
        if not chosen:
            raise DatasetError(f"{listing}: there is no split part {split_part!r}; there are {', '.join(names)}.")
        folder = join_url(folder, chosen[0])
    state = join_url(folder, SAVED_DATASET)
    listed = _read_json(state).get("_data_files")
    files = (
        [one.get("filename") if isinstance(one, dict) else one for one in listed] if isinstance(listed, list) else []
    )
    names = _texts(state, files)
    missing = next((name for name in names if not file_exists(join_url(folder, name))), None)
    if missing is not None:
        raise DatasetError(f"{state}: lists {missing!r}, which is not there. Save the data set again.")
    prefix = "" if folder == source.root else f"{name_of(folder)}/"
    return [RowFile(f"{prefix}{name}", join_url(folder, name), 0) for name in names]


def _texts(path: str, found: object) -> list[str]:
    """A list of names that stay in their folder, out of a file of `datasets`."""
    names = [name for name in found if isinstance(name, str) and is_inside(name)] if isinstance(found, list) else []
    if not names or not isinstance(found, list) or len(names) != len(found):
        raise DatasetError(f"{path}: lists {found!r:.100}; names of files or splits expected. Save the data set again.")
    return names


def _read_json(path: str) -> dict[str, object]:
    try:
        found = json.loads(open_store(path).read(path))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}. Save the data set again.") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{path}: holds a {type(found).__name__}, a mapping expected.")
    return found
