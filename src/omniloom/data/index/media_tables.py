"""The tables of ``index.sqlite`` that hold sizes and lengths of media: Energon's, kept when a set is indexed again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

MEDIA_TABLES = ("media_metadata", "media_filters")


def has_media_tables(path: Path) -> bool:
    """Whether a database holds media metadata; false for what is no database."""
    return bool(path.is_file() and _statements(path))


def copy_media_tables(source: Path, database: sqlite3.Connection) -> None:
    """Copy the media tables of a database into an open one; nothing happens when it has none.

    Raises:
        sqlite3.Error: they cannot be read or written.
    """
    statements = _statements(source) if source.is_file() else {}
    if not statements:
        return
    database.execute("ATTACH ? AS former", (f"{source.resolve().as_uri()}?mode=ro&immutable=1",))
    for name, statement in statements.items():
        database.execute(statement)
        database.execute(f"INSERT INTO main.{name} SELECT * FROM former.{name}")


def _statements(path: Path) -> dict[str, str]:
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        finally:
            database.close()
    except sqlite3.Error:
        return {}  # a half-written file of another program; it is going to be replaced
    return {name: sql for name, sql in rows if name in MEDIA_TABLES}
