"""`make demo` in its small form: it ends well, the restart is exact, the model sees, and a report is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(find_spec("easy_vqa") is None, reason="easy-vqa comes with the extra 'demo'")


@pytest.mark.slow
def test_small_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--small", "--folder", "run"],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "are equal to the last bit to those before the kill" in done.stdout
    assert "no faults found" in done.stdout
    assert "tensors are the same to the bit" in done.stdout
    scores = [json.loads((tmp_path / f"run/results/{n}.json").read_text())["scores"]["accuracy"] for n in (1, 2, 3, 4)]
    seeing, swapped, question_only, majority = scores
    assert seeing > max(swapped, question_only) + 5
    assert majority < question_only
    page = (tmp_path / "run/report.html").read_text()
    assert "easy-VQA" in page
    assert "Benchmarks while training, sft" in page
    assert done.stdout.rstrip().endswith(f"Open {tmp_path / 'run/report.html'}")


def test_captions_are_what_answers_tell_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from demo_data import Question, caption_of  # noqa: PLC0415 - an example, not a package

    def asked(*rows: tuple[str, str]) -> list[Question]:
        return [Question(text, answer, 0) for text, answer in rows]

    assert caption_of(asked(("what color is the circle?", "red"))) == "a red circle"
    assert caption_of(asked(("what is the teal shape?", "triangle"))) == "a teal triangle"
    assert caption_of(asked(("is no gray shape present?", "no"), ("does the image contain a circle?", "yes"))) == (
        "a gray circle"
    )
    excluded = [(f"is there not a {shape} in the image?", "yes") for shape in ("circle", "triangle")]
    assert caption_of(asked(("what color is the shape?", "blue"), *excluded)) == "a blue rectangle"
    assert caption_of(asked(("what color is the shape?", "blue"))) is None


def test_the_row_of_a_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from demo_seeds import HEAD, row_of  # noqa: PLC0415 - an example, not a package

    kinds = {"colour": 100.0, "shape": 98.25, "yes or no": 98.5}
    (tmp_path / "1.json").write_text(json.dumps({"scores": {"accuracy": 98.66}, "groups": {"kind": kinds}}))
    (tmp_path / "2.json").write_text(json.dumps({"scores": {"accuracy": 59.44}, "groups": {}}))
    assert row_of(7, tmp_path) == "| 7 | **98.7** | 98.5 | 98.2 | 100.0 | 59.4 |"
    assert HEAD in (ROOT / "docs/demo.md").read_text()
