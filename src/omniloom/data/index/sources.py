"""Which files below a folder are shards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from omniloom.data.index.braces import expand_all
from omniloom.data.index.layout import is_inside
from omniloom.data.shards.compression import plain_name
from omniloom.errors import ConfigError, DatasetError
from omniloom.storage.files import storage_error
from omniloom.storage.open import open_store
from omniloom.storage.store import Entry
from omniloom.storage.urls import is_url, redacted, relative_to

SHARD_SUFFIX = ".tar"
COMPRESSED_SUFFIXES = (".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz")
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a folder holds.

    Attributes:
        shards: names of the shards relative to the folder, sorted folder by folder as Energon does.
        compressed: names of compressed archives, which cannot be read at random.
    """

    shards: list[str]
    compressed: list[str]


def find_sources(root: str | os.PathLike[str], *, exclude: str | None = None) -> Sources:
    """Find all ``*.tar`` files below a folder.

    Args:
        root: the folder; hidden files and folders are left out, ``.nv-meta`` among them.
        exclude: a regular expression; names in which it is found anywhere are left out.

    Raises:
        StorageError: a folder cannot be listed.
        DatasetError: ``root`` is no folder.
        ConfigError: ``exclude`` is no regular expression.
    """
    root = os.fspath(root)
    excluded = parse_exclude(exclude)
    if is_url(root):
        return _chosen(root, (entry.url for entry in list_shards(root)), excluded)
    if not os.path.isdir(root):  # noqa: PTH112
        found = "a file" if os.path.exists(root) else "nothing"  # noqa: PTH110
        raise DatasetError(f"{root}: expected a folder of shards, found {found}. Check the path.")
    return _chosen(root, _walk(root), excluded)


def list_shards(root: str) -> Iterator[Entry]:
    """Archives below a folder of a store, hidden ones left out; their URLs are names seen from the folder.

    Raises:
        StorageError: the store lists nothing.
        DatasetError: there is nothing at all below the folder.
    """
    found = False
    for entry in open_store(root).scan(root):
        found = True
        name = relative_to(entry.url, root)
        hidden = name.startswith(".") or "/." in name
        if not hidden and name.endswith((SHARD_SUFFIX, *COMPRESSED_SUFFIXES)):
            yield Entry(name, entry.size_bytes, entry.etag)
    if not found:
        raise DatasetError(f"{redacted(root)}: expected a folder of shards, found nothing. Check the URL.")


def _chosen(root: str, found: Iterable[str], excluded: re.Pattern[str] | None) -> Sources:
    names = [name for name in found if not (excluded and excluded.search(name))]
    names.sort(key=lambda name: name.split("/"))
    try:
        "".join(names).encode("utf-8")
    except UnicodeEncodeError as error:
        name = next(name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name))
        raise DatasetError(f"{root}: the name {name!r} is not UTF-8, so no list can hold it. Rename it.") from error
    return Sources(
        shards=[name for name in names if name.endswith(SHARD_SUFFIX)],
        compressed=[name for name in names if name.endswith(COMPRESSED_SUFFIXES)],
    )


def parse_exclude(text: str | None) -> re.Pattern[str] | None:
    """The expression of shards to leave out.

    Raises:
        ConfigError: it is no regular expression.
    """
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise ConfigError(f"exclude={text!r} is no regular expression: {error}.") from error


def named_shards(root: str | os.PathLike[str], patterns: Sequence[str]) -> list[str]:
    """Names of shards from brace patterns, in their order.

    Raises:
        DatasetError: a name comes twice, leaves the folder, or there is no such file.
        ConfigError: a pattern is unusable.
    """
    names = expand_all(patterns)
    seen: set[str] = set()
    for name in names:
        if not is_inside(name):
            raise DatasetError(f"shard {name!r} lies outside the data set; expected a path below {os.fspath(root)}.")
        if name in seen:
            raise DatasetError(f"shard {name!r} is named twice; name each once.")
        seen.add(name)
    return names


def refuse_compressed(root: str | os.PathLike[str], names: Sequence[str]) -> DatasetError:
    """The refusal of compressed archives, with the command that converts them."""
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN:,} more" * (len(names) > _NAMES_SHOWN))
    first = f"{os.fspath(root)}/{names[0]}"
    return DatasetError(
        f"{os.fspath(root)}: {len(names):,} compressed archive{'s' * (len(names) > 1)} ({shown}): no sample of such a "
        f"file can be read without all before it. Make plain shards: `omniloom convert tar {first} --out "
        f"{plain_name(first)}`, or leave them out with --exclude."
    )


def _walk(root: str) -> Iterator[str]:
    """Names of all archives below a folder, hidden ones left out. Links to folders are followed, but not in circles."""
    folders: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while folders:
        folder, above = folders.pop()
        path = f"{root}/{folder}" if folder else root
        try:
            status = os.stat(path)  # noqa: PTH116
            entries = list(os.scandir(path))
        except OSError as error:
            raise storage_error("list", path, error) from error
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir():
                folders.append((name, above | {identity}))
            elif entry.name.endswith((SHARD_SUFFIX, *COMPRESSED_SUFFIXES)):
                yield name
