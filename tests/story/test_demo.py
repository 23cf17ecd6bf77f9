"""`make demo` in its small form: it ends well, the batches after a restart are the same, and a page is left."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("easy_vqa") is None or find_spec("skimage") is None,
    reason="the pictures of the demo are not installed; they come with the extra 'demo'",
)
def test_small_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "DEMO_SMALL": "1", "DEMO_RUN": "demo-run"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same 40 batches, sample for sample and pixel for pixel") == 2
    assert "samples/s" in done.stdout
    assert "no faults found" in done.stdout
    page = (tmp_path / "demo-run" / "index.html").read_text()
    assert page.count("<article>") == 30
    assert page.count("data:image/jpeg;base64,") == 30
    assert "Eileen Collins" in page
