"""Everything a sidecar says, as plain values that can be compared. Uses the standard library and PyYAML."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import yaml

IGNORED = {"omniloom.json", "index.uuid", "index.sqlite"}


def sidecar_content(root: Path) -> dict[str, Any]:
    """Index bytes, parsed JSON and YAML, and the sorted rows and the schema of the database."""
    meta = root / ".nv-meta"
    found: dict[str, Any] = {
        "index": {
            path.relative_to(root).as_posix(): path.read_bytes().hex() for path in sorted(root.rglob("*.tar.idx"))
        },
        "uuid_length": len((meta / "index.uuid").read_text()),
    }
    for path in sorted(meta.iterdir()):
        if path.is_file() and path.name not in IGNORED:
            text = path.read_text(encoding="utf-8")
            found[path.name] = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    database = sqlite3.connect(meta / "index.sqlite")
    try:
        found["samples"] = sorted(map(list, database.execute("SELECT * FROM samples")))
        found["sample_parts"] = sorted(map(list, database.execute("SELECT * FROM sample_parts")))
        found["schema"] = sorted(
            [kind, name, table, sql or ""]
            for kind, name, table, sql in database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
        )
    finally:
        database.close()
    return found
