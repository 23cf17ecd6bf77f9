"""Files that a command writes are none of those that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click


def keep_apart(written: Mapping[str, Path | None], read: Iterable[Path | None]) -> None:
    """See that nothing that is read is written over, and nothing is written twice.

    Args:
        written: files that are written, by the flags that name them.
        read: files and folders that are read.

    Raises:
        click.UsageError: two of them are one file, whatever they are called.
    """
    taken = {path.resolve() for path in read if path is not None}
    for flag, path in written.items():
        if path is None:
            continue
        if path.resolve() in taken:
            raise click.UsageError(f"{flag} {path} would be written over what another argument names. Give a new file.")
        taken.add(path.resolve())
