"""The package imports alone and fast, and knows its version."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import omniloom

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "numpy", "PIL", "rich", "sqlite3", "multiprocessing", "omniloom.storage.remote"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("omniloom", {"torch"}),
        ("omniloom.data.shards", {"torch"}),
        ("omniloom.data.index", {"torch"}),
        ("omniloom.data.convert", {"torch"}),
        ("omniloom.tools.main", HEAVY),
    ],
)
def test_import_does_not_load(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    loaded = set(done.stdout.split()) & absent
    assert not loaded, f"importing {module} loads {loaded}"


def test_version_is_that_of_the_package() -> None:
    assert omniloom.__version__ == version("omniloom")
