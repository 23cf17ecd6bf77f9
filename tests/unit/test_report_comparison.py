"""Scores side by side, and held-out losses by data set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from omniloom.report.comparison import comparisons
from omniloom.report.page import report_page
from omniloom.report.records import read_result, read_run


def result(path: Path, task: str, value: float, *, items: int = 4, **others: Any) -> Path:
    counts = dict.fromkeys(("expected", "answered", "scored"), items)
    faults = dict.fromkeys(("missing", "empty", "doubled", "conflicting", "unknown"), 0)
    plain = {
        "task": task, "title": task.upper(), "metric": "accuracy, percent", "variant": "published",
        "checked_against": "a rule", "scores": {"accuracy": value}, "groups": {}, "counts": counts | faults,
        "ids": {}, "missing_policy": "wrong", "complete": True, "ground_truth_sha256": "f00d",
    } | others  # fmt: skip
    path.write_text(json.dumps(plain))
    return path


def bars(html: str) -> list[tuple[str, str]]:
    return re.findall(r"<span>([^<]*)</span><i[^>]*></i><b>([^<]*)</b>", html)


def test_scores_by_one_rule_and_truth_stand_side_by_side_with_the_published_one(tmp_path: Path) -> None:
    whole = 9_673  # questions of easy-VQA's test: its published score is of all of them
    results = [
        read_result(result(tmp_path / "1.json", "easy-vqa", 96.5, model="runs/sft", items=whole)),
        read_result(result(tmp_path / "2.json", "easy-vqa", 60.0, model="<other>", complete=False, items=whole)),
        read_result(result(tmp_path / "3.json", "chartqa", 12.0)),
        read_result(result(tmp_path / "4.json", "easy-vqa", 50.0, ground_truth_sha256="beef", items=whole)),
        read_result(result(tmp_path / "5.json", "easy-vqa", 40.0, ground_truth_sha256="cafe", items=500)),
    ]
    html = comparisons(results)
    assert bars(html) == [
        ("runs/sft", "96.5"), ("&lt;other&gt;, INCOMPLETE", "60"), ("CNN of its author, published", "93.8"),
        ("model not said (4.json)", "50"), ("CNN of its author, published", "93.8"),
    ]  # fmt: skip
    assert "width:96.5%" in html
    assert html.count("<figure") == 2, "ChartQA and 500 of the questions have one score, and none published beside it"


def test_held_out_losses_by_data_set(tmp_path: Path) -> None:
    steps = [
        {"step": n, "loss": 1.0, "learned_tokens": 1}
        | ({"validation_loss": 2.0, "validation_loss/charts": 3.0, "validation_loss/<b>": 1.0} if n % 2 == 0 else {})
        for n in range(1, 7)
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (tmp_path / "recipe.yaml").write_text("loop: {steps: 6}\n")
    page = report_page([read_run(tmp_path)])
    assert "Held-out loss by data set" in page
    assert '<em class="mark0">charts</em><em class="mark1">&lt;b&gt;</em>' in page
