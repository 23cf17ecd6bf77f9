"""The python blocks of README.md and docs/ run, each as a script of its own in an empty folder.

A block whose fence says ```` ```python no-run ```` is shown only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python[ \t]*(?P<tags>[^\n]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(#[^)]*)?\)")
BLOCK_LIMIT_SECONDS = 120


def _blocks() -> Iterator[object]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8") if document.exists() else ""
        for match in FENCE.finditer(text):
            if "no-run" not in match["tags"].split():
                line = text.count("\n", 0, match.start("code")) + 1
                yield pytest.param(match["code"], id=f"{document.name}:{line}")


@pytest.mark.parametrize("code", list(_blocks()))
def test_block_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"  # a file, not -c: worker processes import the main module again
    script.write_text(code, encoding="utf-8")
    scripts = Path(sys.executable).parent  # as in an activated environment, so that `omniloom` is found
    done = subprocess.run(
        [sys.executable, script.name],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BLOCK_LIMIT_SECONDS,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.exists()], ids=lambda d: d.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(document.read_text(encoding="utf-8"))]
    lost = [t for t in targets if "://" not in t and not (document.parent / t).exists()]
    assert not lost, f"{document.name}: no such files: {lost}"


def test_most_blocks_run() -> None:
    text = "".join(d.read_text(encoding="utf-8") for d in DOCUMENTS if d.exists())
    tags = [match["tags"].split() for match in FENCE.finditer(text)]
    shown_only = sum("no-run" in words for words in tags)
    assert shown_only <= max(2, len(tags) // 4), f"{shown_only} of {len(tags)} python blocks are not run"
