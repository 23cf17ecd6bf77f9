"""docs/scale.md is what benchmarks/store_scale_page.py makes of benchmarks/store_scale.json, to the letter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_that_of_the_figures() -> None:
    report = [sys.executable, "benchmarks/store_scale_page.py", "--check"]
    done = subprocess.run(report, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
