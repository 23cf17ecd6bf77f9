"""Names of leaves by which seeds and saved places go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import PurePath

from omniloom.data.mix.flatten import FlatLeaf
from omniloom.errors import ConfigError
from omniloom.storage.urls import is_url


def stable_names(leaves: Sequence[FlatLeaf]) -> list[str]:
    """A name for each leaf: the one it was given, or the last folder of its path.

    A name says nothing of where a data set is mounted. Of leaves that would be called alike, the first keeps the name
    and the later ones get more of their paths, so that what is added at the end of a mix renames nothing before it.

    Raises:
        ConfigError: two leaves were given the same name.
    """
    taken: set[str] = set()
    for leaf in leaves:
        if leaf.name is not None and leaf.name in taken:
            raise ConfigError(f"{leaf.place}: a second data set with the name {leaf.name!r}; names have to differ")
        if leaf.name is not None:
            taken.add(leaf.name)
    names = []
    for leaf in leaves:
        name = leaf.name or next(one for one in _candidates(leaf) if one not in taken)
        taken.add(name)
        names.append(name)
    return names


def _parts(path: str) -> tuple[str, ...]:
    """Folders of a path, or of a URL without its options, which may be secret and differ from machine to machine."""
    return PurePath(path.partition("?")[0] if is_url(path) else path).parts


def _candidates(leaf: FlatLeaf) -> Iterator[str]:
    """Names from the shortest on, without end."""
    parts = _parts(leaf.path)
    others = [] if leaf.join is None else [_parts(column.leaf.path)[-1] for column in leaf.join.columns[1:]]
    joined = "".join(f"+{other}" for other in others)
    for length in range(1, len(parts) + 1):
        yield "/".join(parts[-length:]) + joined
    last = f"{parts[-1]}{joined}"
    yield f"{last} [{leaf.split_part}]"
    if leaf.subset is not None:
        yield f"{last} [{leaf.split_part}, {leaf.subset.rows or ''}{leaf.subset.share}]"
    for number in count(2):
        yield f"{last} ({number})"
