"""What reading a damaged sqlite file raises."""

from __future__ import annotations

import sqlite3

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""sqlite3 quotes the damaged schema in its message, and a message that is no UTF-8 becomes a UnicodeDecodeError."""
