"""`EPath`: a local path with the methods that Energon's has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PosixPath
from typing import Any

from omniloom.errors import ConfigError


class EPath(PosixPath):
    """A path on a local disk, absolute. URLs are refused: they are opened by `omniloom.storage`, not as paths.

    ``walk`` and ``glob`` give files only.
    """

    def __new__(cls, path: str | os.PathLike[str] = ".", *more: str | os.PathLike[str]) -> EPath:
        """The absolute path, with ``.`` and ``..`` resolved as text."""
        text = os.fspath(path)
        if "://" in text:
            raise ConfigError(f"{text}: a path on a disk expected, not a URL")
        made: EPath = super().__new__(cls, os.path.abspath(os.path.join(text, *more)))  # noqa: PTH100, PTH118 - lexical
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return EPath, (str(self),)

    @property
    def url(self) -> str:
        """The path as text."""
        return str(self)

    @property
    def display_name(self) -> str:
        """The path as text."""
        return str(self)

    def is_local(self) -> bool:
        """Whether it lies on a local disk; always."""
        return True

    def local_path(self) -> Path:
        """The plain path."""
        return Path(str(self))

    def size(self) -> int:
        """Size of the file in bytes."""
        return self.stat().st_size

    def copy(self, target: str | os.PathLike[str]) -> None:
        """Copy the file; folders are made."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self, target)

    def move(self, target: str | os.PathLike[str]) -> None:
        """Move the file; folders are made."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self, target)

    def walk(self) -> Iterator[EPath]:
        """All files below the folder; links to folders are followed."""
        for folder, _, names in os.walk(self, followlinks=True):
            for name in sorted(names):
                yield EPath(folder, name)

    def glob(self, pattern: str) -> Iterator[EPath]:  # type: ignore[override]
        """The files below the folder that a pattern matches."""
        return (EPath(path) for path in self.local_path().glob(pattern) if path.is_file())

    def relative_to(self, other: str | os.PathLike[str]) -> str:  # type: ignore[override]
        """The path from a folder, as text."""
        return str(self.local_path().relative_to(Path(os.fspath(other)).absolute()))
