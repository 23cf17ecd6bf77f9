"""Scores side by side, and losses by data set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from omniloom.report.charts import NOTHING
from omniloom.report.comparison import comparisons
from omniloom.report.data_set_sections import data_set_charts, data_set_names, data_set_table
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


def test_a_score_of_the_first_items_is_told_as_one_and_held_against_none_of_all(tmp_path: Path) -> None:
    results = [
        read_result(result(tmp_path / "1.json", "chartqa", 61.0, model="a", items=2_500)),
        read_result(result(tmp_path / "2.json", "chartqa", 62.0, model="b", items=100, limit=100)),
        read_result(result(tmp_path / "3.json", "chartqa", 63.0, model="c", items=2_500, metric_version="2")),
        read_result(result(tmp_path / "4.json", "pope", 85.0, model="d", items=9, limit=9)),
    ]
    assert comparisons(results) == ""
    html = report_page([], results=results)
    assert html.count("the first ones alone: not a score of the benchmark") == 2
    assert ">100 of the first 100</td>" in html
    assert html.count('<span class="badge plain">a part</span>') == 4  # in the table, and on its card
    assert "<h1>Report: CHARTQA, POPE</h1>" in html
    assert ">2,500 of 2,500</td>" in html
    assert "85 (published, 9 items)" in html  # beside the published number


def test_losses_by_data_set(tmp_path: Path) -> None:
    """Drawn in the colours of data sets, held-out ones dashed beside them; ends and tokens in a table, by hand."""
    steps = [
        {"step": n, "loss": 1.0, "learned_tokens": 40}
        | ({"loss/charts": 8.0 / n, "learned_tokens/charts": 30} if n != 3 else {})
        | {"loss/<b>": 2.0, "learned_tokens/<b>": 10 if n != 3 else 40}
        | ({"validation_loss": 2.0, "validation_loss/charts": 3.0, "validation_loss/new": 1.0} if n % 2 == 0 else {})
        for n in range(1, 5)
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (tmp_path / "recipe.yaml").write_text("loop: {steps: 4}\n")
    run = read_run(tmp_path)
    assert data_set_names(run) == ["charts", "<b>", "new"]
    page = report_page([run])
    assert "Loss by data set" in page
    named = ("0", "charts"), ("0", "charts, held-out"), ("1", "&lt;b&gt;"), ("2", "new")
    assert "".join(f'<em class="mark{colour}">{name}</em>' for colour, name in named) in page
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", data_set_table(run))
    assert [cells[6 * n : 6 * n + 6] for n in range(3)] == [
        ["charts", "90", "56.2%", "8", "2", "3"],
        ["&lt;b&gt;", "70", "43.8%", "2", "2", NOTHING],
        ["new", NOTHING, NOTHING, NOTHING, NOTHING, "1"],
    ]


def test_more_data_sets_than_colours_are_told(tmp_path: Path) -> None:
    row = {"step": 1, "loss": 1.0} | {f"loss/{n}": 1.0 for n in range(11)}
    (tmp_path / "steps.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "recipe.yaml").write_text("loop: {steps: 1}\n")
    run = read_run(tmp_path)
    assert "; 3 more are in the table alone" in data_set_charts(run)
    assert data_set_table(run).count("<tr><td>") == 11


def test_scores_on_benchmarks_while_training(tmp_path: Path) -> None:
    steps = [{"step": n, "loss": 1.0} | ({"score/textvqa": 10.0 * n} if n % 2 == 0 else {}) for n in range(1, 7)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (tmp_path / "recipe.yaml").write_text("loop: {steps: 6}\n")
    page = report_page([read_run(tmp_path)])
    chart = page.partition("Benchmarks while training")[2].partition("</figure>")[0]
    assert '<em class="mark0">textvqa</em>' in chart
    assert chart.count("<circle") == 3
    assert "MFU" not in page
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step | {"mfu": 0.4}) + "\n" for step in steps))
    chart = report_page([read_run(tmp_path)]).partition("<b>MFU</b>")[2].partition("</figure>")[0]
    assert "step 3\nx: 40" in chart.replace(read_run(tmp_path).name, "x")
