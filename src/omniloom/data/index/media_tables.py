"""The tables of ``index.sqlite`` that hold sizes and lengths of media: Energon's, and a note of what was looked at."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from omniloom.data.index.sqlite_errors import SQLITE_ERRORS

if TYPE_CHECKING:
    from omniloom.data.index.media_extract import MediaSource
    from omniloom.data.index.media_filter import MediaFilterConfig

SOURCES_TABLE = "omniloom_media_sources"
MEDIA_TABLES = ("media_metadata", "media_filters", SOURCES_TABLE)

# With Energon's line breaks the schemas are equal as text.
_BREAK = "\n" + 20 * " "
_END = "\n" + 16 * " " + ")"
_CREATE = {
    "media_metadata": (
        f"({_BREAK}entry_key TEXT PRIMARY KEY,{_BREAK}metadata_type TEXT NOT NULL,"
        f"{_BREAK}metadata_json TEXT NOT NULL{_END}"
    ),
    "media_filters": (
        f"({_BREAK}filter_id INTEGER PRIMARY KEY AUTOINCREMENT,{_BREAK}strategy TEXT NOT NULL,{_BREAK}patterns TEXT,"
        f"{_BREAK}created_at_utc TEXT DEFAULT CURRENT_TIMESTAMP,{_BREAK}UNIQUE(strategy, patterns){_END}"
    ),
    # What was looked at with which filter, so that an unchanged shard or file is not looked at again.
    SOURCES_TABLE: (
        "(source TEXT NOT NULL, strategy TEXT NOT NULL, patterns TEXT NOT NULL, size_bytes INTEGER NOT NULL, "
        "mtime_ns INTEGER NOT NULL, rows INTEGER NOT NULL, faults TEXT NOT NULL, "
        "PRIMARY KEY (source, strategy, patterns))"
    ),
}


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


def create_media_tables(database: sqlite3.Connection) -> None:
    """Make the media tables that are not there. Raises sqlite3.Error."""
    for name, columns in _CREATE.items():
        database.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")


def known_sources(database: sqlite3.Connection, media_filter: MediaFilterConfig) -> dict[str, tuple[int, int]]:
    """Size and time of change of what was looked at with a filter, by name; empty where rows have been lost since.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    wanted = (SOURCES_TABLE, "media_metadata")
    there = database.execute("SELECT count(*) FROM sqlite_master WHERE name IN (?, ?)", wanted).fetchone()[0]
    if there < len(wanted):
        return {}
    chosen = f"FROM {SOURCES_TABLE} WHERE strategy = ? AND patterns = ?"
    values = (media_filter.strategy.value, media_filter.patterns_text)
    promised = database.execute(f"SELECT sum(rows) {chosen}", values).fetchone()[0] or 0
    if database.execute("SELECT count(*) FROM media_metadata").fetchone()[0] < promised:
        return {}  # another program has made the table anew
    return {
        name: (size, time)
        for name, size, time in database.execute(f"SELECT source, size_bytes, mtime_ns {chosen}", values)
    }


def insert_sources(
    database: sqlite3.Connection, sources: Iterable[MediaSource], media_filter: MediaFilterConfig
) -> None:
    """Write what was found. Raises sqlite3.Error."""
    for source in sources:
        database.executemany("INSERT OR REPLACE INTO media_metadata VALUES (?, ?, ?)", source.rows)
        faults = json.dumps([list(fault) for fault in source.faults])
        about = (source.name, media_filter.strategy.value, media_filter.patterns_text)
        values = (*about, source.size_bytes, source.mtime_ns, len(source.rows), faults)
        database.execute(f"INSERT OR REPLACE INTO {SOURCES_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def insert_filter(database: sqlite3.Connection, media_filter: MediaFilterConfig) -> None:
    """Note that a filter was used. Raises sqlite3.Error."""
    database.execute(
        "INSERT OR IGNORE INTO media_filters (strategy, patterns) VALUES (?, ?)",
        (media_filter.strategy.value, media_filter.patterns_text),
    )


def _statements(path: Path) -> dict[str, str]:
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        finally:
            database.close()
    except SQLITE_ERRORS:
        return {}  # a half-written file of another program; it is going to be replaced
    return {name: sql for name, sql in rows if name in MEDIA_TABLES}
