"""Files of answers as they should not be: faults are counted, scored by the stated policy, and end with 1."""

from __future__ import annotations

import csv
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from omniloom.evaluate.task import Item, Task
from omniloom.evaluate.tasks import TASKS
from omniloom.tools.main import run

IDS = ("10", "11", "12", "13")
RIGHT = {"10": "red", "11": "two", "12": "naïve café", "13": "5"}


@pytest.fixture
def truth(tmp_path: Path) -> str:
    rows = [{"question_id": int(n), "question": "?", "answers": [RIGHT[n]] * 10} for n in IDS]
    file = tmp_path / "truth.json"
    file.write_text(json.dumps(rows))
    return str(file)


def told(
    answers: Path, truth: str, capsys: pytest.CaptureFixture[str], *, code: int, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    assert run(["evaluate", "textvqa", "--answers", str(answers), "--ground-truth", truth, "--json", *more]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def lines(path: Path, rows: list[Any], *, encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode(encoding))
    return path


def sound() -> list[dict[str, Any]]:
    return [{"question_id": int(n), "answer": RIGHT[n]} for n in IDS]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\r\n \r\n"])
def test_marks_and_line_ends(
    encoding: str, end: str, truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = lines(tmp_path / "a.jsonl", sound(), encoding=encoding, end=end)
    assert told(answers, truth, capsys, code=0)["scores"]["accuracy"] == 100.0


@pytest.mark.parametrize(
    ("said", "empty", "accuracy"),
    [
        ("", 1, 75.0),
        ("  \n\t ", 1, 75.0),
        (None, 1, 75.0),
        (math.nan, 1, 75.0),
        ([], 1, 75.0),
        ([None], 1, 75.0),
        ("Failed to obtain answer via API.", 1, 75.0),
        (5, 0, 75.0),
        (5.5, 0, 75.0),
        (True, 0, 75.0),
        ({"answer": "red"}, 0, 100.0),
        ({"role": "assistant", "content": [{"type": "text", "text": "red"}]}, 0, 100.0),
        ({"error": {"code": 429}}, 1, 75.0),
        (["red"], 0, 100.0),
        ([["red", "blue"]], 0, 100.0),
        ("RED.", 0, 100.0),
        ("\x00\ud800\U0001f600", 0, 75.0),
        ("red" * 30_000, 0, 75.0),
    ],
)
def test_what_an_answer_may_be(
    said: Any, empty: int, accuracy: float, truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = sound()
    rows[0]["answer"] = said
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = told(file, truth, capsys, code=0)
    counts = result["counts"]
    assert (counts["empty"], counts["failed"], counts["answered"]) == (empty, empty, 4 - empty)
    assert result["scores"]["accuracy"] == accuracy


def test_a_number_is_its_text(truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sound()
    rows[3]["answer"] = 5
    assert told(lines(tmp_path / "a.jsonl", rows), truth, capsys, code=0)["scores"]["accuracy"] == 100.0


def test_ids_as_texts_and_with_points(truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for make in (str, float, int):
        rows = [row | {"question_id": make(row["question_id"])} for row in sound()]
        assert told(lines(tmp_path / "a.jsonl", rows), truth, capsys, code=0)["scores"]["accuracy"] == 100.0


def test_missing_doubled_conflicting_and_unknown_ids(
    truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    red, two, *_ = sound()
    other = {"question_id": 11, "answer": "three"}
    rows = [red, red, two, other, {"question_id": 99, "answer": "?"}]
    result = told(lines(tmp_path / "a.jsonl", rows), truth, capsys, code=1)
    assert result["ids"] == {"missing": ["12", "13"], "doubled": ["10"], "conflicting": ["11"], "unknown": ["99"]}
    assert result["scores"]["accuracy"] == 50.0
    assert result["complete"] is False
    left_out = told(tmp_path / "a.jsonl", truth, capsys, code=1, more=("--missing", "leave-out"))
    assert (left_out["scores"]["accuracy"], left_out["counts"]["scored"]) == (100.0, 2)


def test_an_object_whose_keys_come_twice(truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"10": "red", "11": "two", "12": "x", "13": ["5"], "12": "naïve café", "10": "red"}')
    result = told(file, truth, capsys, code=1)
    assert result["ids"] == {"doubled": ["10"], "conflicting": ["12"]}
    assert result["scores"]["accuracy"] == 75.0
    file.write_text('{"10": "red", "11": "two", "12": null, "13": 5}')
    result = told(file, truth, capsys, code=0)
    assert (result["scores"]["accuracy"], result["counts"]["empty"]) == (75.0, 1)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx"])
def test_tables(suffix: str, truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells with line breaks, quotes and tabs in them, and one that is blank."""
    cells = [("10", "red"), ("11", ""), ("12", "naïve café"), ("13", 'a "5"\n\tor\r\n6')]
    file = tmp_path / f"a{suffix}"
    if suffix == ".xlsx":
        openpyxl = pytest.importorskip("openpyxl", reason="needs omniloom[eval]")
        book = openpyxl.Workbook()
        book.active.append(["index", "prediction"])
        for name, said in cells:
            book.active.append([float(name), said or None])
        book.save(file)
    else:
        with file.open("w", encoding="utf-8-sig", newline="") as opened:
            writer = csv.writer(opened, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\r\n")
            writer.writerows([("index", "prediction"), *cells])
    result = told(file, truth, capsys, code=0)
    assert (result["scores"]["accuracy"], result["counts"]["empty"]) == (50.0, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"question_id": 1, "answer": "x"}\n{"question_id": 2, "ans', "line 2 is not JSON"),
        ("a.jsonl", '{"question_id": 10, "answer": "é"}'.encode("latin-1"), "byte 31 is 0xe9, which is not UTF-8"),
        ("a.json", '[{"question_id": 10}]'.encode("utf-16"), "byte 0 is 0xff, which is not UTF-8"),
        ("a.jsonl", b'["red"]', "row 1 is list; an object expected"),
        ("a.jsonl", b'{"answer": "red"}', "row 1 has no id"),
        ("a.jsonl", b'{"question_id": 1}', "row 1 has no answer"),
        ("a.jsonl", b"", "no answers"),
        ("a.json", b"{}", "no answers"),
        ("a.json", b'"red"', "a list of objects expected"),
        ("a.json", b"[[", "is not JSON"),
        ("a.pkl", b"\x80\x04", "one of .jsonl"),
        ("a.jsonl", b'{"question_id": 77, "answer": "red"}', "no answer is to one of the 4 items"),
    ],
)
def test_what_cannot_be_read_is_told(
    name: str, content: bytes, message: str, truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert run(["evaluate", "textvqa", "--answers", str(file), "--ground-truth", truth]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


HOSTILE = [
    "", " ", "\n\n", "\0", "\ud800", "\U0001f600" * 9, "A" * 5_000, "(" * 400, "[" * 400, "{'a': " * 200, "nan", "inf",
    "-inf", "1e999", "9" * 4_400, "0", "-0.0", "½", "٣", "1,000", "%", "$", "a.b.c", "\\boxed{", "\\boxed{A}", "```",
    "```json\n{\n```", "<table>", "<table><tr><td colspan='9'>x", "</td></tr>" * 9, "[1,2,3,4]", "(9999,1,2,3)", "None",
    "yes", "no", "not", "Yes.", "a", "an", "the", "A", "B.", "(C)", "a an the", "is", "=", "The answer is ", "\u2028",
    "'''", '"', "![x](y)", "https://x.y/?a=b", "A B C D", "AB", "%s %d {0} {x}",
]  # fmt: skip

_CHOICE = {"options": {"A": "red", "B": "blue", "C": "green", "D": "none of these"}, "answers": ("B",)}
_ITEMS: dict[str, dict[str, Any]] = {
    "mmmu": _CHOICE | {"facts": {"question_type": "multiple-choice", "subject": "Art", "domain": "Art and Design"}},
    "mmmu-pro": _CHOICE | {"facts": {"subject": "Art"}},
    "mathvista": _CHOICE | {"answers": ("blue",), "facts": {"question_type": "multi_choice", "answer_type": "text"}},
    "mme": {"answers": ("Yes",), "facts": {"part": "OCR"}, "images": ("a.jpg",)},
    "pope": {"answers": ("yes",)},
    "rd-tablebench": {"answers": ("<table><tr><td>x</td></tr></table>",)},
    "ocrbench": {"answers": ("blue",), "facts": {"dataset_name": "HME100k", "type": "x"}},
    "ocrbench-v2": {"answers": ("3",), "facts": {"type": "text counting en", "eval": "regression", "answers": ["3"]}},
    "easy-vqa": {"answers": ("blue",)},
}
_CHOICES = ("ai2d", "realworldqa", "scienceqa", "videomme", "mvbench", "motionbench", "physgame", "perception-test")


def _item(task: Task) -> Item:
    fields = _ITEMS.get(task.name, _CHOICE if task.name in _CHOICES else {"answers": ("blue",)})
    return Item(id="1", question="which?", **{"images": ("1.jpg",), **fields})


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_no_answer_stops_a_score(task: Task) -> None:
    item = _item(task)
    for variant in task.variants:
        scores = task.score([item] * len(HOSTILE), HOSTILE, variant)
        assert len(scores.items) == len(HOSTILE)
        assert all(math.isfinite(worth) and worth >= 0 for worth in scores.items)
        assert all(math.isfinite(value) for value in scores.metrics.values())
        assert list(scores.items)[:3] == [0.0] * 3, (task.name, variant)  # nothing said is worth nothing


ENDLESS = ["a " * 20_000, "a: " * 10_000, "<td>" * 10_000, "[[1,2,3,4,'a']," * 3_000, "0" * 40_000, "'" * 40_000]


def test_answers_without_an_end_take_no_longer_than_others() -> None:
    """As of models that repeat themselves up to their limit: no rule takes the square of an answer's length."""
    started = time.process_time()
    for item in _v2_items():
        if item.id not in ("full-page OCR en", "text translation cn", "handwritten answer extraction cn"):
            TASKS["ocrbench-v2"].score([item] * len(ENDLESS), ENDLESS, "without-synonyms")
    for task in TASKS.values():
        if task.name != "ocrbench-v2":
            task.score([_item(task)] * len(ENDLESS), ENDLESS, task.variants[0])
    assert time.process_time() - started < 20


def _v2_items() -> list[Item]:
    table = "<table><tr><td>x</td><td>y</td></tr></table>"
    asked: dict[str, dict[str, Any]] = {
        "text grounding en": {"answers": [1, 2, 30, 40]},
        "VQA with position en": {"answers": ["x"], "bbox": [1, 2, 30, 40]},
        "text spotting en": {"answers": ["x"], "bbox": [[1, 2, 30, 2, 30, 40, 1, 40]], "content": ["x"]},
        "key information extraction cn": {"answers": ["{'a': ['x'], 'b': 'y'}"]},
        "chart parsing en": {"answers": [{"a": {"b": "3"}}]},
        "text counting en": {"answers": ["3"], "eval": "regression"},
        "formula recognition cn": {"answers": ["\\text{x}"]},
        "document parsing en": {"answers": ["# x\ny"]},
        "table parsing en": {"answers": [table]},
        "full-page OCR en": {"answers": ["some words here"]},
        "text translation cn": {"answers": ["你好世界"]},
        "handwritten answer extraction cn": {"answers": ["AB"]},
        "cognition VQA cn": {"answers": ["答案"]},
    }
    question = {"table parsing en": "as html"}
    return [
        Item(id=kind, question=question.get(kind, "?"), facts={"type": kind, **facts}) for kind, facts in asked.items()
    ]


@pytest.mark.parametrize("item", _v2_items(), ids=lambda item: item.id)
def test_no_answer_stops_ocrbench_v2(item: Item) -> None:
    pytest.importorskip("nltk", reason="needs omniloom[eval]")
    scores = TASKS["ocrbench-v2"].score([item] * len(HOSTILE), HOSTILE, "without-synonyms")
    assert all(math.isfinite(worth) and 0 <= worth <= 1 for worth in scores.items)
