"""Answers in the forms in which other programs leave them, scored as those programs score them.

`tests/golden/scores/public_programs.json` has made answers, and what the programs of LLaVA, MME, OCRBench, MotionBench,
PhysGame and InternVL make of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omniloom.evaluate.scores.matching import relaxed_accuracy
from omniloom.evaluate.tasks import find_task
from omniloom.tools.main import run

ROOT = Path(__file__).resolve().parents[2]
MADE: dict[str, Any] = json.loads((ROOT / "tests/golden/scores/public_programs.json").read_text())
OCRBENCH = ROOT / "../shared/data/metric_refs/ocrbench/OCRBench.json"
WORDS = "\nAnswer the question using a single word or phrase."


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def whole(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def scored(capsys: pytest.CaptureFixture[str], task: str, answers: Path, truth: Path, *more: str) -> dict[str, Any]:
    code = run(["evaluate", task, "--answers", str(answers), "--ground-truth", str(truth), "--json", *more])
    told = capsys.readouterr()
    assert code == 0, told.err + told.out[-2000:]
    result: dict[str, Any] = json.loads(told.out)
    return result


# LLaVA's scripts


def test_textvqa_answered_by_llava_has_ids_of_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two questions an image there; which of them was answered stands in the prompt alone."""
    made = MADE["textvqa"]
    truth = whole(tmp_path / "TextVQA_0.5.1_val.json", {"dataset_type": "val", "data": made["data"]})
    for rows in (made["said"], made["said"][::-1]):
        result = scored(capsys, "textvqa", lines(tmp_path / "llava.jsonl", rows), truth)
        assert result["scores"]["accuracy"] == pytest.approx(made["official"], abs=0.005)  # it prints two digits


def pope_labels(folder: Path) -> Path:
    """Its three files: JSON lines, each with ids from 1, named ``.json``."""
    for part, made in MADE["pope"].items():
        rows = [
            {"question_id": n, "image": row["image"], "text": row["question"], "label": row["label"]}
            for n, row in enumerate(made["rows"], 1)
        ]
        lines(folder / f"coco_pope_{part}.json", rows)
    return folder


def check_pope(scores: dict[str, float], official: dict[str, float]) -> None:
    names = ("F1 score", "Accuracy", "Precision", "Recall", "Yes ratio")
    assert [scores[name] / 100 for name in ("F1", "accuracy", "precision", "recall", "yes share")] == pytest.approx(
        [official[name] for name in names], abs=1e-12
    )


@pytest.mark.parametrize("part", MADE["pope"])
def test_pope_by_its_own_program(part: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its answers are rows of question and answer without an id, in the order of the labels."""
    made = MADE["pope"][part]
    truth = pope_labels(tmp_path / "coco") / f"coco_pope_{part}.json"
    answers = lines(tmp_path / "said.json", [{"question": r["question"], "answer": r["said"]} for r in made["rows"]])
    check_pope(scored(capsys, "pope", answers, truth)["scores"], made["official"])


def test_pope_answered_by_llava(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One file of running numbers for the three parts, in any order of these; their labels are a folder."""
    truth = pope_labels(tmp_path / "coco")
    said: list[dict[str, Any]] = []
    for parts in (("adversarial", "popular", "random"), ("random", "popular", "adversarial")):
        rows = [row for part in parts for row in MADE["pope"][part]["rows"]]
        said = [
            {"question_id": n, "prompt": row["question"] + WORDS, "text": row["said"], "model_id": "m"}
            for n, row in enumerate(rows)
        ]
        result = scored(capsys, "pope", lines(tmp_path / "llava.jsonl", said), truth)
        for part, made in MADE["pope"].items():
            assert result["groups"]["category"][part] == pytest.approx(100 * made["official"]["F1 score"], abs=1e-9)
        each = [made["official"]["F1 score"] for made in MADE["pope"].values()]
        assert result["scores"]["mean F1 of parts"] == pytest.approx(100 * sum(each) / 3)
    # In another order nothing tells to which image an answer is, and none is taken for one.
    answers = lines(tmp_path / "mixed.jsonl", said[::2] + said[1::2])
    assert run(["evaluate", "pope", "--answers", str(answers), "--ground-truth", str(truth)]) == 1
    assert "no answer is to one of the 450 items" in capsys.readouterr().err


def test_scienceqa_answered_by_llava(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = MADE["scienceqa"]
    truth = whole(tmp_path / "problems.json", made["problems"])
    result = scored(capsys, "scienceqa", lines(tmp_path / "llava.jsonl", made["said"]), truth)
    assert result["counts"]["expected"] == made["official"]["count"]
    assert result["scores"]["accuracy"] == pytest.approx(made["official"]["acc"], abs=1e-9)
    assert round(result["groups"]["image"]["with an image"], 2) == made["official"]["image"]


def mme_folder(folder: Path, *, columns: int) -> Path:
    folder.mkdir()
    for part, rows in MADE["mme"]["parts"].items():
        text = "".join("\t".join(row.split("\t")[:columns]) + "\n" for row in rows)
        (folder / f"{part}.txt").write_text(text)
    return folder


def check_mme(result: dict[str, Any]) -> None:
    official = MADE["mme"]["official"]
    assert result["scores"]["perception"] == pytest.approx(official["perception"])
    assert result["scores"]["cognition"] == pytest.approx(official["cognition"])
    parts = {name: value for name, value in official.items() if name not in ("perception", "cognition")}
    assert result["groups"]["part"] == pytest.approx(parts)


def test_mme_by_its_own_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answers, truth = mme_folder(tmp_path / "model", columns=4), mme_folder(tmp_path / "Your_Results", columns=3)
    check_mme(scored(capsys, "mme", answers, truth))
    check_mme(scored(capsys, "mme", answers, answers))  # it brings what is right


def test_mme_answered_by_llava_has_ids_of_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = []
    for part, rows in MADE["mme"]["parts"].items():
        for row in rows:
            image, question, _, text = row.split("\t")
            said.append({"question_id": f"{part}/{image}", "prompt": question + WORDS, "text": text})
    truth = mme_folder(tmp_path / "truth", columns=3)
    check_mme(scored(capsys, "mme", lines(tmp_path / "llava.jsonl", said), truth))


# Videos


def test_physgame_by_its_own_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = MADE["physgame"]
    asked = [
        {"question_id": r["id"], "question": "?", "options": r["options"], "answer": r["answer"], "class_anno": "c",
         "subclass_anno": "s"}
        for r in rows
    ]  # fmt: skip
    truth = whole(tmp_path / "PhysGame_880_annotation.json", asked)
    said = [{"video_id": r["id"], "pred": r["said"], "gt": f"({r['answer']}) ...", "question": "?"} for r in rows]
    items = tmp_path / "items.jsonl"
    answers = whole(tmp_path / "GamePhysics_Test.json", {"acc": 0, "output": said})
    result = scored(capsys, "PhysGameBench", answers, truth, "--items", str(items))
    worth = [json.loads(line)["score"] for line in items.read_text().splitlines()]
    assert worth == [float(r["right"]) for r in rows]
    assert result["scores"]["accuracy"] == pytest.approx(100 * sum(worth) / len(worth))
    # Its newer program adds what was said to the benchmark's rows.
    newer = whole(tmp_path / "new.json", [row | {"output": r["said"]} for row, r in zip(asked, rows, strict=True)])
    assert scored(capsys, "physgame", newer, truth)["scores"] == result["scores"]


def test_motionbench_by_its_own_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows, official = MADE["motionbench"]["rows"], MADE["motionbench"]["official"]
    truth = lines(
        tmp_path / "video_info.meta.jsonl",
        [
            {"key": r["id"], "video_path": f"{r['id']}.mp4", "question_type": r["kind"],
             "qa": [{"uid": r["id"], "question": "?\nA. x", "answer": r["answer"]}]}
            for r in rows
        ],
    )  # fmt: skip
    public = [r for r in rows if r["answer"] != "NA"]
    for said in ("letter", "said"):  # what it makes of answers, and the answers themselves
        answers = whole(tmp_path / "answers.json", {r["id"]: r[said] for r in public})
        result = scored(capsys, "MotionBench", answers, truth)
        assert result["counts"]["expected"] == official["total_qa_num"]
        assert result["scores"]["accuracy"] == pytest.approx(100 * official["acc"])
        for kind in ("Camera Motion", "Action Order"):
            assert result["groups"]["question_type"][kind] == pytest.approx(100 * official[kind])


def test_videomme_and_perception_test_and_mvbench(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = [
        {"video_id": "001", "duration": "short", "url": "https://youtu.be/a", "questions": [
            {"question_id": f"001-{n}", "question": "?", "options": ["A. x", "B. y"], "answer": "AB"[n]}
            | {"response": "A"} for n in range(2)]}
    ]  # fmt: skip
    path = whole(tmp_path / "videomme.json", asked)
    assert scored(capsys, "videomme", path, path)["scores"]["accuracy"] == 50

    rows = [{"id": n, "question": "?", "options": ["x", "y", "z"], "answer_id": n, "area": "a"} for n in range(3)]
    truth = whole(tmp_path / "mc.json", {"video_7": {"metadata": {"video_id": "video_7"}, "mc_question": rows}})
    said = whole(tmp_path / "sub.json", {"video_7": [{"id": n, "answer_id": 2, "answer": "z"} for n in range(3)]})
    assert scored(capsys, "PerceptionTest", said, truth)["scores"]["accuracy"] == pytest.approx(100 / 3)

    folder = tmp_path / "json"
    folder.mkdir()
    for kind in ("scene_transition", "action_count"):
        several = [{"video": "v.mp4", "question": f"{kind}?", "candidates": ["3", "4"], "answer": "4"}] * 2
        whole(folder / f"{kind}.json", several)
    # Its programs go through kinds of questions in an order of their own, and keep no ids.
    kept = [
        {"question": f"Question: {kind}?\nOptions:\n(A) 3\n(B) 4", "pred": pred, "gt": "(B) 4",
         "task_type": kind.replace("_", " ").title()}
        for kind, pred in (("scene_transition", "(B"), ("scene_transition", "(A"), ("action_count", "(B) 4"),
                           ("action_count", "b"))
    ]  # fmt: skip
    result = scored(capsys, "mvbench", whole(tmp_path / "kept.json", kept), folder)
    assert result["groups"]["task_type"] == {"action_count": 100.0, "scene_transition": 50.0}


# Rows without ids, and others


def test_rows_without_ids_have_their_questions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As InternVL leaves ChartQA and AI2D."""
    chart = tmp_path / "ChartQA"
    chart.mkdir()
    for kind in ("augmented", "human"):
        rows = [{"imgname": f"{n}.png", "query": f"{kind} or {n}?", "label": str(10 * n)} for n in range(1, 5)]
        whole(chart / f"test_{kind}.json", rows)
    said = [
        {"question": f"human or {n}?{WORDS}", "answer": str(10.4 * n if n < 4 else 0), "annotation": str(10 * n)}
        for n in range(1, 5)
    ]
    result = scored(capsys, "chartqa", whole(tmp_path / "human.json", said), chart / "test_human.json")
    assert result["scores"]["relaxed accuracy"] == 75
    nothing = whole(tmp_path / "nothing.json", [{"answer": "3"}])
    assert (
        run(["evaluate", "chartqa", "--answers", str(nothing), "--ground-truth", str(chart / "test_human.json")]) == 1
    )
    assert "row 1 has no id" in capsys.readouterr().err

    asked = [
        {"image": f"images/{n // 2}.png", "question": f"which {n % 2}?", "question_id": n, "answer": "AB"[n % 2]}
        for n in range(4)
    ]
    said = [
        {
            "image": row["image"],
            "question": f"{row['question']}\nA. x\nB. y",
            "answer": "A",
            "annotation": row["answer"],
        }
        for row in reversed(asked)
    ]
    result = scored(capsys, "ai2d", whole(tmp_path / "a.json", said), lines(tmp_path / "ai2d.jsonl", asked))
    assert result["scores"]["accuracy"] == 50


@pytest.mark.skipif(not OCRBENCH.exists(), reason="needs the questions of ../shared/data")
def test_ocrbench_by_its_own_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its answers are its questions with ``predict``, whose ids come twice."""
    rows = json.loads(OCRBENCH.read_text())
    for number, row in enumerate(rows):
        first = row["answers"][0] if isinstance(row["answers"], list) else row["answers"]
        row["predict"] = f"It says {first}." if number % 4 else "nothing"
    for order in (rows, rows[::-1]):
        result = scored(capsys, "ocrbench", whole(tmp_path / "LLaVA1_5.json", order), OCRBENCH)
        assert (result["scores"]["points"], result["counts"]["answered"]) == (750, 1000)


def test_captions_named_for_their_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    images = [{"id": n, "file_name": f"COCO_val2014_{n:012d}.jpg"} for n in (7, 42)]
    captions = [{"image_id": n, "id": n, "caption": text} for n, text in ((7, "a dog runs"), (42, "a red bus"))]
    truth = whole(tmp_path / "captions.json", {"images": images, "annotations": captions})
    said = [("42", "a red bus"), ("7", "a dog runs")]
    forms: list[Any] = [
        [{"image_id": int(name), "caption": text} for name, text in said],
        [{"image_id": f"COCO_val2014_{int(name):012d}", "caption": text} for name, text in said],
        [{"image": f"val2014/COCO_val2014_{int(name):012d}.jpg", "caption": text} for name, text in said],
        {name: [text] for name, text in said},
    ]
    for number, form in enumerate(forms):
        result = scored(capsys, "coco-captions", whole(tmp_path / f"{number}.json", form), truth)
        assert result["scores"]["BLEU-1"] == pytest.approx(100)


def test_a_folder_of_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("truth", "said"):
        (tmp_path / name).mkdir()
        for n in range(2):
            (tmp_path / name / f"{n}.html").write_text(f"<table><tr><td>{n}</td></tr></table>")
    assert scored(capsys, "RD_TableBench", tmp_path / "said", tmp_path / "truth")["scores"]["similarity"] == 100


def test_gzip_marks_and_ids_of_other_kinds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    questions = [{"question_id": n, "question": "?", "answers": ["x"] * 10} for n in range(3)]
    truth = tmp_path / "val.json.gz"
    truth.write_bytes(gzip.compress(json.dumps(questions).encode("utf-8-sig")))
    rows = [{"question_id": str(n), "answer": ["x"]} for n in range(3)]
    packed = tmp_path / "said.jsonl.gz"
    packed.write_bytes(gzip.compress("\r\n".join(map(json.dumps, rows)).encode("utf-8-sig")))
    assert scored(capsys, "textvqa", packed, truth)["scores"]["accuracy"] == 100
    named_wrong = tmp_path / "said.json"
    named_wrong.write_bytes("\n".join(map(json.dumps, rows)).encode())
    assert scored(capsys, "textvqa", named_wrong, truth)["scores"]["accuracy"] == 100
    packed.write_bytes(packed.read_bytes()[:-9])
    assert run(["evaluate", "textvqa", "--answers", str(packed), "--ground-truth", str(truth)]) == 1
    assert "cannot be unpacked" in capsys.readouterr().err


def test_vqa_annotations_without_questions_and_questions_without_annotations(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers = [{"answer": "red", "answer_confidence": "yes", "answer_id": n} for n in range(1, 11)]
    rows = [{"question_id": 10 * n, "image_id": n, "answers": answers, "answer_type": "other"} for n in (1, 2)]
    truth = tmp_path / "v2_mscoco_val2014_annotations.json"
    whole(truth, {"data_subtype": "val2014", "annotations": rows})
    said = whole(tmp_path / "results.json", [{"question_id": 10, "answer": "red"}, {"question_id": 20, "answer": "x"}])
    assert scored(capsys, "vqav2", said, truth)["scores"]["accuracy"] == 50
    assert scored(capsys, "textvqa", said, truth)["scores"]["accuracy"] == 50
    asked = ["generate", "--task", "vqav2", "--model", str(tmp_path), "--gt-path", str(truth)]
    assert run([*asked, "--output-path", str(tmp_path / "a.jsonl")]) == 1
    assert "v2_OpenEnded_mscoco_val2014_questions.json: there is no such file" in capsys.readouterr().err

    asked = [{"question_id": 5, "image_id": 262144, "question": "what?"}]
    path = whole(tmp_path / "test_dev.json", {"data_subtype": "test-dev2015", "questions": asked})
    (item,) = find_task("vqav2").read(path)
    assert (item.id, item.question, item.images) == ("5", "what?", ("COCO_test2015_000000262144.jpg",))


def test_karpathys_own_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """``dataset_coco.json`` and ``dataset_flickr30k.json``: all splits under ``images``."""

    def image(name: str, split: str, text: str, **more: Any) -> dict[str, Any]:
        return {"filename": name, "split": split, "sentences": [{"raw": text, "tokens": text.split()}], **more}

    flickr = [
        image("1000092795.jpg", "test", "Two men."),
        image("5.jpg", "train", "x"),
        image("7.jpg", "test", "A dog"),
    ]
    truth = whole(tmp_path / "dataset_flickr30k.json", {"dataset": "flickr30k", "images": flickr})
    for number, form in enumerate(
        (
            [{"image_id": 1000092795, "caption": "two men"}, {"image_id": 7, "caption": "a dog"}],
            {"1000092795.jpg": "two men", "7.jpg": "a dog"},
        )
    ):
        result = scored(capsys, "flickr30k", whole(tmp_path / f"{number}.json", form), truth)
        assert (result["counts"]["expected"], result["scores"]["BLEU-1"]) == (2, pytest.approx(100))

    name = "COCO_val2014_000000391895.jpg"
    coco = [image(name, "test", "A man", cocoid=391895, filepath="val2014"), image("x.jpg", "restval", "y", cocoid=1)]
    truth = whole(tmp_path / "dataset_coco.json", {"dataset": "coco", "images": coco})
    (item,) = find_task("coco-captions").read(truth)
    assert (item.id, item.images, item.answers) == ("391895", (f"val2014/{name}",), ("A man",))


def test_chartqa_and_ocrbench_as_their_programs_score_them(tmp_path: Path) -> None:
    """ChartQA's rule in InternVL's copy of it; OCRBench's own program, where one or several texts are right."""
    wrong = [
        (target, said)
        for target, said, right in MADE["chartqa"]
        if bool(relaxed_accuracy(said, target)) != right  # its copy would tell blanks around a text apart
    ]
    assert wrong == []
    rows = MADE["ocrbench"]
    asked = [{**row, "question": f"{n}?", "image_path": f"{n}.png", "id": n % 9} for n, row in enumerate(rows)]
    path, items = whole(tmp_path / "LLaVA.json", asked), tmp_path / "items.jsonl"
    said = ["--answers", str(path), "--ground-truth", str(path), "--items", str(items)]
    assert run(["evaluate", "ocrbench", *said]) == 0
    assert [json.loads(line)["score"] for line in items.read_text().splitlines()] == [row["right"] for row in rows]
