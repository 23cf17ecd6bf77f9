"""Files that look sound and are not: nothing is lost, swapped or taken for right without a word."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.answer_files import read_answers
from omniloom.evaluate.task import Item
from omniloom.evaluate.tasks import TASKS, find_task
from omniloom.tools.main import run

QUESTIONS = ("What is on the plate?", "Which colour has the car?", "How many dogs are there?", "Who holds the bat?")
RIGHT = ("pizza", "red", "two", "batter")


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def benchmark(folder: Path, **more: Any) -> Path:
    rows = [
        {"question_id": number, "question": question, "answers": [right] * 10, **more}
        for number, (question, right) in enumerate(zip(QUESTIONS, RIGHT, strict=True))
    ]
    return write(folder / "truth.json", rows)


def told(task: str, truth: Path, capsys: pytest.CaptureFixture[str], *answers: Path, code: int = 0) -> dict[str, Any]:
    given = [word for path in answers for word in ("--answers", str(path))]
    assert run(["evaluate", task, *given, "--ground-truth", str(truth), "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refused(task: str, truth: Path, capsys: pytest.CaptureFixture[str], *answers: Path) -> str:
    given = [word for path in answers for word in ("--answers", str(path))]
    assert run(["evaluate", task, *given, "--ground-truth", str(truth)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err


# Ids that are those of items by chance


def test_running_numbers_of_another_order_are_placed_by_their_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = benchmark(tmp_path)
    rows = [
        {"index": place, "question": QUESTIONS[number], "prediction": RIGHT[number]}
        for place, number in enumerate((2, 3, 1, 0))
    ]
    result = told("textvqa", truth, capsys, write(tmp_path / "a.json", rows))
    assert (result["scores"]["accuracy"], result["complete"]) == (100.0, True)


def test_answers_to_other_questions_with_the_same_ids_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = benchmark(tmp_path)
    rows = [{"question_id": n, "prompt": f"Is there a {n} in the photo?", "answer": "red"} for n in range(4)]
    said = refused("textvqa", truth, capsys, write(tmp_path / "a.json", rows))
    assert "item '0' asks 'What is on the plate?', and its answer is to 'Is there a 0 in the photo?'" in said
    # So they are where the file says what was right, and it is what is right for others.
    rows = [{"question_id": n, "answer": "red", "gt_answer": RIGHT[n - 1]} for n in range(4)]
    said = refused("textvqa", truth, capsys, write(tmp_path / "a.json", rows))
    assert "of item '0', 'pizza' is right, and its answer's file says 'batter'" in said


def test_answers_to_another_part_that_has_half_of_its_questions_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As POPE's three files do: their questions about what is there are the same, and so are their ids."""
    there = [f"Is there a {thing} in the image?" for thing in ("car", "dog", "bus", "cat")]
    parts = [
        [question for n in range(4) for question in (there[n], f"Is there a {absent} {n} in the image?")]
        for absent in ("cup", "tie")
    ]
    rows = [
        {"question_id": n, "image": f"{n // 2}.jpg", "text": question, "label": "no" if n % 2 else "yes"}
        for n, question in enumerate(parts[0])
    ]
    truth = tmp_path / "coco_pope_random.json"
    truth.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for part, code in ((0, 0), (1, 1)):
        said = [{"question_id": n, "prompt": f"{each} Yes or no?", "text": "Yes"} for n, each in enumerate(parts[part])]
        answers = write(tmp_path / "a.json", said)
        assert run(["evaluate", "pope", "--answers", str(answers), "--ground-truth", str(truth)]) == code
    assert "asks 'Is there a cup 0 in the image?', and its answer is to 'Is there a tie 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "prompt",
    [
        "USER: <image>\nWhat is on the plate?\nAnswer with a word. ASSISTANT:",
        "what is on the plate",
        "Give a short answer.",
    ],
)
def test_prompts_that_say_more_or_less_than_the_question(
    prompt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first prompt is the item's; the others say nothing that is against it."""
    truth = benchmark(tmp_path)
    prompts = [prompt.replace("What is on the plate?", each) for each in QUESTIONS]
    prompts = prompts if "plate" in prompt else [prompt] * 4
    prompts = [each.lower().rstrip("?") for each in QUESTIONS] if prompt.islower() else prompts
    rows = [{"question_id": n, "prompt": prompts[n], "answer": RIGHT[n], "label": "1"} for n in range(4)]
    assert told("textvqa", truth, capsys, write(tmp_path / "a.json", rows))["scores"]["accuracy"] == 100.0


def test_answers_to_no_item_are_all_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": question, "answer": right} for question, right in zip(QUESTIONS, RIGHT, strict=True)]
    rows += [{"question": f"What else, {n}?", "answer": "x"} for n in range(3)]
    result = told("textvqa", benchmark(tmp_path), capsys, write(tmp_path / "a.json", rows), code=1)
    assert (result["counts"]["unknown"], result["counts"]["missing"]) == (3, 0)
    assert result["ids"]["unknown"] == [f"(no id) What else, {n}?" for n in range(3)]


def test_a_file_of_questions_is_none_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """POPE's own, for one: there the question is called text, as the answer is in other files."""
    rows = [{"question_id": n, "image": "1.jpg", "text": f"Is there a {n}?", "label": "yes"} for n in range(4)]
    file = write(tmp_path / "coco_pope_random.json", rows)
    assert "each answer is its question, word by word" in refused("pope", file, capsys, file)


def test_several_answers_in_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are several answers to one item, as those in several rows are."""
    rows = [{"question_id": n, "answer": [RIGHT[n]]} for n in range(3)]
    rows += [{"question_id": 3, "answer": ["batter", "pitcher", "batter"]}]
    result = told("textvqa", benchmark(tmp_path), capsys, write(tmp_path / "a.json", rows), code=1)
    assert (result["scores"]["accuracy"], result["ids"]) == (100.0, {"conflicting": ["3"]})


# Nothing that is right


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("vqav2", {"question_id": 0, "question": "?"}),
        ("chartqa", {"id": 0, "query": "?", "label": None}),
        ("docvqa", {"questionId": 0, "question": "?", "answers": None}),
        ("textvqa", {"question_id": 0, "question": "?", "answers": [""] * 10}),
        ("ai2d", {"id": 0, "question": "?", "options": ["a", "b"]}),
        ("mmmu", {"id": "test_Art_1", "question": "?", "options": ["a", "b"], "answer": "?"}),
        ("mathvista", {"pid": 0, "query": "?", "answer": "", "question_type": "free_form", "answer_type": "text"}),
        ("inference", {"id": 0, "question": "?"}),
        ("ocrbench-v2", {"id": 0, "question": "?", "type": "math QA en", "answers": None}),
    ],
)
def test_a_part_whose_answers_are_secret_is_no_score(
    task: str, row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(str(row[key]) for key in ("question_id", "id", "questionId", "pid") if key in row)
    answers = write(tmp_path / "a.json", {name: "a"})
    said = refused(task, write(tmp_path / "truth.json", [row]), capsys, answers)
    assert f"nothing tells what is right for 1 of 1 items, such as '{name}'" in said


def test_an_option_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "json").mkdir()
    rows = [
        {"video": "1.mp4", "question": "?", "candidates": ["up", "down"], "answer": answer} for answer in ("up", "u")
    ]
    write(tmp_path / "json/moving_direction.json", rows)
    answers = write(tmp_path / "a.json", {"moving_direction-0": "(A) up", "moving_direction-1": "(A) up"})
    said = refused("mvbench", tmp_path / "json", capsys, answers)
    assert "nothing tells what is right for 1 of 2 items, such as 'moving_direction-1'" in said


# Nothing that is said


@pytest.mark.parametrize("task", ["vqav2", "ok-vqa", "textvqa"])
def test_nothing_is_not_the_letter_a(task: str) -> None:
    """By the rules of these programs "A" is an article, and nothing is left of it, as of an answer that is missing."""
    items = [Item(id="1", answers=("A",) * 9 + ("B",)), Item(id="2", answers=("A",) * 9 + ("B",))]
    for variant in TASKS[task].variants:
        assert list(TASKS[task].score(items, ["A", ""], variant).items) == [1.0, 0.0]


def test_nothing_is_not_most_like_the_shortest_choice() -> None:
    facts = {"question_type": "multi_choice", "answer_type": "text"}
    item = Item(id="1", answers=("7",), options={"A": "145", "B": "7"}, facts=facts)
    for variant in ("published", "cut-integers", "rules"):
        assert list(TASKS["mathvista"].score([item, item], ["", "(B)"], variant).items) == [0.0, 1.0]


@pytest.mark.parametrize("task", ["mmmu", "mmmu-pro"])
def test_one_who_says_nothing_uses_up_a_draw(task: str) -> None:
    """The official program draws for each answer without a letter, a blank one too, from Python's own generator."""
    options = dict.fromkeys("ABCD", "zzz")
    random.seed(42)
    drawn = [random.choice("ABCD") for _ in range(12)]
    facts = {"question_type": "multiple-choice", "subject": "Art", "domain": "Art and Design"}
    items = [Item(id=str(n), answers=(letter,), options=options, facts=facts) for n, letter in enumerate(drawn)]
    said = ["", "no idea"] * 6
    assert list(TASKS[task].score(items, said, "published").items) == [0.0, 1.0] * 6


# Tables and files


def test_a_table_in_gzip_and_ids_with_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = benchmark(tmp_path)
    text = "index\tprediction\r\n" + "".join(f"{n}.0\t{right}\r\n" for n, right in enumerate(RIGHT))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert told("textvqa", truth, capsys, tmp_path / "a.tsv.gz")["scores"]["accuracy"] == 100.0
    # Those of a benchmark, too.
    rows = json.loads(truth.read_text())
    write(truth, [row | {"question_id": float(row["question_id"])} for row in rows])
    answers = write(tmp_path / "a.json", dict(enumerate(RIGHT)))
    assert told("textvqa", truth, capsys, answers)["scores"]["accuracy"] == 100.0


def test_a_comma_that_is_not_in_quotes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("question_id,answer\n0,pizza, and salad\n")
    assert "line 2 has 3 columns; 2 as in the first line expected" in refused(
        "textvqa", benchmark(tmp_path), capsys, tmp_path / "a.csv"
    )


def test_a_sheet_with_rows_of_other_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs omniloom[eval]")
    book = openpyxl.Workbook()
    book.active.append(["index", "prediction"])
    for number, right in enumerate(RIGHT):
        book.active.append([number, right])
    book.active.append([])
    book.save(tmp_path / "a.xlsx")
    assert told("textvqa", benchmark(tmp_path), capsys, tmp_path / "a.xlsx")["scores"]["accuracy"] == 100.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"PK\x03\x04 cut off", "no sheet of Excel"),
        ("a.xlsx.gz", gzip.compress(b"x", mtime=0), "no sheet of Excel"),
        ("a.parquet", b"PAR1 cut off", "no Parquet"),
        ("a.json", b"[" * 100_000, "is not JSON"),
        ("a.jsonl", b'{"a":' * 100_000, "line 1 is not JSON"),
        ("a.jsonl.gz", gzip.compress(b'{"question_id": 0}', mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_files_that_are_broken(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert message in refused("textvqa", benchmark(tmp_path), capsys, tmp_path / name)


_ODD: tuple[Any, ...] = (
    [], {}, [{}], [[]], [None], {"annotations": [{}]}, {"annotations": {}}, {"annotations": [1]}, {"images": [1]},
    {"images": [{}], "annotations": [{"image_id": 1}]}, {"questions": [{}]}, {"questions": 1}, {"data": [{"id": []}]},
    [{"question": "?", "answer": 7, "choices": ["a"], "options": [], "id": 1, "candidates": "[", "answer_id": 9}],
    [{"question": "?", "answer": "a", "options": "x[", "question_id": 1, "qa": [1], "image": 3, "mc_question": [{}]}],
    [{"question": "?", "choices": ["", ""], "correct_choice_index": 5, "answer": None, "id": None, "questions": [{}]}],
    {"v": {"mc_question": [{"id": 1, "question": "?", "options": ["a"], "answer_id": "x"}]}},
    [{"name": "a", "language": "en", "annotations": [{}], "question_id": 1, "answer": "a"}], "text", 5, None, True,
)  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_no_benchmarks_file_ends_with_a_traceback(task: str, tmp_path: Path) -> None:
    for number, odd in enumerate(_ODD):
        for path in (write(tmp_path / f"{number}.json", odd), tmp_path):
            for read in (find_task(task).read, lambda answers: read_answers(answers, find_task(task))):
                try:
                    read(path)
                except ConfigError as error:
                    assert str(tmp_path) in str(error)  # noqa: PT017 - some are read


@pytest.mark.parametrize(
    "columns",
    [
        {"answer": "what is right", "model_answer": "what is said"},
        {"answer": "what is right", "output": "what is said"},
        {"prediction": "what is said", "output": "at length", "answer": "what is right"},
        {"answer": "what is said", "output": "at length", "gt_answer": "what is right"},
        {"pred_answer": "what is said", "response": "at length", "answer": "what is right"},
    ],
)
def test_which_column_is_what_was_said(
    columns: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("pizza", "blue", "two", "pitcher")
    texts = {"what is right": RIGHT, "what is said": said, "at length": ["It may be all of them."] * 4}
    rows = [{"question_id": n} | {name: texts[kind][n] for name, kind in columns.items()} for n in range(4)]
    result = told("textvqa", benchmark(tmp_path), capsys, write(tmp_path / "a.json", rows))
    assert (result["scores"]["accuracy"], "note" in result) == (50.0, False)


def test_the_truth_as_answers_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = benchmark(tmp_path)
    answers = write(tmp_path / "a.json", dict(enumerate(RIGHT)))
    assert run(["evaluate", "textvqa", "--answers", str(answers), "--ground-truth", str(truth)]) == 0
    assert "Note: each answer is, word by word, one that is right" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        {"model": "x", "predictions": dict(zip("0123", RIGHT, strict=True))},
        {"model": "x", "predictions": {str(n): {"answer": right} for n, right in enumerate(RIGHT)}},
        {"results": [{"question_id": n, "answer": right} for n, right in enumerate(RIGHT)], "seed": 1},
        {"acc": 1.0, "results": {"0": 2}, "outputs": dict(zip("0123", RIGHT, strict=True))},
        {str(n): {"answer": right, "score": 1} for n, right in enumerate(RIGHT)},
    ],
)
def test_answers_below_a_name(content: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = write(tmp_path / "a.json", content)
    assert told("textvqa", benchmark(tmp_path), capsys, answers)["scores"]["accuracy"] == 100.0


# The command


def test_what_is_wrong_is_told_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = benchmark(tmp_path)
    assert run(["evaluate", "texvqa"]) == 1
    assert "there is no task 'texvqa'. Nearest: textvqa" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert "Give a file in it, or the folder of one model's answers" in refused(
        "textvqa", truth, capsys, tmp_path / "empty"
    )
    assert "no such file or folder, and no *.jsonl whose name begins so" in refused(
        "textvqa", truth, capsys, tmp_path / "none"
    )
    rows = [{"question_id": n, "answer": RIGHT[n]} for n in range(4)] + [{"question_id": 3, "answer": "?"}]
    answers = ["--answers", str(write(tmp_path / "a.json", rows)), "--ground-truth", str(truth)]
    assert run(["evaluate", "textvqa", *answers]) == 1
    assert "INCOMPLETE: of different answers to an item, the first counts." in capsys.readouterr().out


def test_answers_in_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = benchmark(tmp_path)
    first = write(tmp_path / "first part.json", [{"question_id": n, "answer": RIGHT[n]} for n in (0, 1)])
    second = write(tmp_path / "second [2].json", [{"question_id": n, "answer": RIGHT[n]} for n in (2, 3)])
    result = told("textvqa", truth, capsys, first, second)
    assert (result["scores"]["accuracy"], list(result["answer_files"])) == (100.0, [str(first), str(second)])
    result = told("textvqa", truth, capsys, first, second, second)
    assert result["counts"]["doubled"] == 2
    (tmp_path / "run[1]-0.jsonl").write_text(json.dumps({"question_id": 0, "answer": "pizza"}) + "\n")
    assert told("textvqa", truth, capsys, tmp_path / "run[1]", code=1)["counts"]["answered"] == 1


def test_parts_of_which_some_are_in_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = benchmark(tmp_path)
    (tmp_path / "said").mkdir()
    lines = [json.dumps({"question_id": n, "answer": right}).encode() + b"\n" for n, right in enumerate(RIGHT)]
    (tmp_path / "said/part-0.jsonl").write_bytes(b"".join(lines[:2]))
    (tmp_path / "said/part-1.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[2:])))
    for answers in (tmp_path / "said", tmp_path / "said/part"):
        assert told("textvqa", truth, capsys, answers)["scores"]["accuracy"] == 100.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--limit", "0"], "--limit"),
        (["--limit", "-1"], "--limit"),
        (["--output", "{truth}"], "--output"),
        (["--output", "{answers}"], "--output"),
        (["--items", "{answers}"], "--items"),
        (["--output", "{folder}/r.json", "--items", "{folder}/./r.json"], "would be written over"),
    ],
)
def test_flags_that_would_lose_something(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = benchmark(tmp_path)
    answers = write(tmp_path / "a.json", dict(enumerate(RIGHT)))
    before = [truth.read_bytes(), answers.read_bytes()]
    words = [word.format(truth=truth, answers=answers, folder=tmp_path) for word in flags]
    assert run(["evaluate", "textvqa", "--answers", str(answers), "--ground-truth", str(truth), *words]) == 2
    assert message in capsys.readouterr().err
    assert [truth.read_bytes(), answers.read_bytes()] == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--answers", "{answers}", "--temperature", "0.5"], "--temperature has no effect on answers that are there"),
        (["--answers", "{answers}", "--batch-size", "2"], "--batch-size has no effect on answers that are there"),
        (["--answers", "{answers}", "--answers-to", "x"], "--answers-to has no effect on answers that are there"),
        (["--answers", "{answers}", "--include-path", "{folder}"], "--include-path has no effect without --inside"),
        (["--inside", "lmms-eval", "--model", "m", "--variant", "megatron"], "--variant has no effect with --inside"),
        (["--inside", "lmms-eval", "--model", "m", "--max-new-tokens", "9"], "--max-new-tokens has no effect with"),
    ],
)
def test_flags_without_an_effect(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = benchmark(tmp_path)
    answers = write(tmp_path / "a.json", dict(enumerate(RIGHT)))
    words = [word.format(answers=answers, folder=tmp_path) for word in flags]
    given = [] if "--inside" in flags else ["--ground-truth", str(truth)]
    assert run(["evaluate", "textvqa", *words, *given]) == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_scored_is_told_before_a_model_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = benchmark(tmp_path)
    model = ["--model", str(tmp_path / "none"), "--answers-to", str(tmp_path / "a.jsonl")]
    assert run(["evaluate", "textvqa", *model, "--ground-truth", str(truth), "--variant", "offical"]) == 1
    assert "variant 'offical' found; one of published, megatron" in capsys.readouterr().err
    rows = [row | {"answers": []} for row in json.loads(truth.read_text())]
    assert run(["evaluate", "textvqa", *model, "--ground-truth", str(write(truth, rows))]) == 1
    assert "nothing tells what is right for 4 of 4 items" in capsys.readouterr().err
