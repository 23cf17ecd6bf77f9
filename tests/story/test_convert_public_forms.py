"""Rows and entries as public data sets hold them: whatever they say comes through, or is left out with a reason."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import omniloom
from omniloom.tools.main import run


def _png(width: int = 8, height: int = 6, colour: tuple[int, int, int] = (200, 9, 9)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, "PNG")
    return stream.getvalue()


def _converted(root: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """What the loader gives of a conversion into ``out``, by key."""
    arguments = ["convert", *words, "--out", str(root / "out"), "--no-progress"]
    assert run(arguments) == code
    config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = omniloom.get_val_dataset(root / "out", split_part="train", batch_size=None, worker_config=config)
    return {s["__key__"] if isinstance(s, dict) else s.__key__: s for s in omniloom.get_savable_loader(dataset)}


def _reasons(root: Path) -> Counter[str]:
    lines = (root / "out/convert_report.jsonl").read_text().splitlines()
    return Counter(f"{line['outcome']} {line['reason']}" for line in map(json.loads, lines))


def _json(root: Path, content: Any) -> str:
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "images/a.png").write_bytes(_png())
    (root / "in.json").write_text(json.dumps(content))
    return str(root / "in.json")


def _parquet(root: Path, rows: list[dict[str, Any]]) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), root / "rows.parquet")
    return str(root / "rows.parquet")


PICTURE = {"bytes": _png(), "path": None}


def _said(sample: Any) -> list[tuple[str, str]]:
    """Role and texts of each turn of a crude sample."""

    def text(value: Any) -> str:
        if isinstance(value, str):
            return value
        return "".join(part.get("text", f"<{part['type']}>") for part in value)

    return [(turn["from"], text(turn["value"])) for turn in sample["json"]]


def test_infographic_questions_name_their_image_in_another_field(tmp_path: Path) -> None:
    item = {
        "questionId": 98313, "question": "Which platform?", "image_local_name": "a.png", "image_url": "https://x",
        "ocr_output_file": "a.json", "answers": ["pinterest"], "data_split": "train",
    }  # fmt: skip
    file = _json(tmp_path, {"dataset_name": "infographicVQA", "data": [item]})
    samples = _converted(tmp_path, "docvqa", file, "--images", str(tmp_path / "images"))
    assert samples["98313"].answers == ["pinterest"]


def _ai2d(root: Path, *, annotated: bool = True) -> str:
    """A diagram with the rectangles, letters and words that AI2D has for its image 1.png."""
    for folder in ("questions", "annotations", "images"):
        (root / "ai2d" / folder).mkdir(parents=True)
    (root / "ai2d/images/1.png").write_bytes(_png(420, 330))
    asked = {"abcLabel": True, "answerTexts": ["stem", "leaf"], "correctAnswer": 1, "questionId": "1.png-0"}
    plain = {**asked, "abcLabel": False, "questionId": "1.png-1"}
    questions = {"imageName": "1.png", "questions": {"What is B?": asked, "What is shown?": plain}}
    (root / "ai2d/questions/1.png.json").write_text(json.dumps(questions))
    text = {
        "T0": {"id": "T0", "rectangle": [[54, 52], [79, 77]], "replacementText": "B", "value": "D"},
        "T3": {"id": "T3", "rectangle": [[372, 238], [399, 267]], "replacementText": "A", "value": "A"},
    }
    if annotated:
        (root / "ai2d/annotations/1.png.json").write_text(json.dumps({"text": text, "arrows": {}}))
    return str(root / "ai2d")


def test_letters_that_questions_ask_of_are_put_into_the_diagram(tmp_path: Path) -> None:
    samples = _converted(tmp_path, "ai2d", _ai2d(tmp_path), "--images", str(tmp_path / "ai2d/images"))
    lettered, plain = (np.asarray(samples[f"1%2Epng-{n}"].image).astype(int) for n in (0, 1))
    assert (plain == np.array([200, 9, 9])[:, None, None]).all()
    changed = (lettered != plain).any(axis=0)
    rows, columns = np.nonzero(changed)
    assert {(52 <= y <= 77 and 54 <= x <= 79) or (238 <= y <= 267 and 372 <= x <= 399)
            for y, x in zip(rows, columns, strict=True)} == {True}  # fmt: skip
    for top, left in ((52, 54), (238, 372)):
        place = lettered[:, top : top + 26, left : left + 26]
        dark = (place.sum(axis=0) < 200).mean()
        assert 0.05 < dark < 0.6  # a letter, and white around it
        assert (place[:, 0, 0] == 255).all()


def test_questions_of_letters_that_cannot_be_put_are_left_out(tmp_path: Path) -> None:
    words = ("ai2d", _ai2d(tmp_path, annotated=False), "--images", str(tmp_path / "ai2d/images"))
    samples = _converted(tmp_path, *words, code=1)
    assert list(samples) == ["1%2Epng-1"]
    assert _reasons(tmp_path)["left-out no-letters"] == 1


def test_questions_with_ten_answers_as_mappings(tmp_path: Path) -> None:
    """The form of HuggingFaceM4/VQAv2; its own column says which answer most have given."""
    given = ["no", "yes", "yes", "no", "yes", "yes", "yes", "yes", "maybe", "yes"]
    answers = [{"answer": one, "answer_confidence": "yes", "answer_id": n} for n, one in enumerate(given, 1)]
    row = {
        "question_id": 262148000, "question": "Is it red?", "image": PICTURE, "answers": answers,
        "multiple_choice_answer": "yes", "question_type": "is it", "answer_type": "yes/no",
    }  # fmt: skip
    (sample,) = _converted(tmp_path, "parquet", _parquet(tmp_path, [row])).values()
    assert _said(sample) == [("human", "<image>Is it red?"), ("gpt", row["multiple_choice_answer"])]


@pytest.mark.parametrize(
    ("columns", "letter"),
    [
        ({"options": ["root", "leaf", "stem"], "answer": "2"}, "C"),  # lmms-lab/ai2d
        ({"choices": ["root", "leaf", "stem"], "answer": 1}, "B"),  # ScienceQA
        ({"choices": ["root", "leaf", "stem"], "correct_choice_idx": 0, "direct_answers": "['x']"}, "A"),  # A-OKVQA
        ({"options": ["root", "leaf", "stem"], "answer": "B"}, "B"),
        ({"choices": ["4", "5", "6"], "answer": "5"}, "B"),
    ],
)
def test_choices_are_asked_and_answered_by_letter(tmp_path: Path, columns: dict[str, Any], letter: str) -> None:
    row = {"id": "q", "question": "What is it?", "image": PICTURE, **columns}
    (sample,) = _converted(tmp_path, "parquet", _parquet(tmp_path, [row])).values()
    texts = columns.get("choices", columns.get("options"))
    asked = "".join(f"{name}. {text}\n" for name, text in zip("ABC", texts, strict=True))
    assert _said(sample)[0] == (
        "human",
        f"<image>What is it?\n{asked}Answer with the option's letter from the given choices directly.",
    )
    assert _said(sample)[1] == ("gpt", letter)


def test_rows_that_say_nothing_sure_are_left_out_with_a_reason(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": "either", "question": "How many?", "choices": ["1", "3", "5", "2"], "answer": "2",
            "hint": None, "system": None,
        },
        {"id": "neither", "question": "Which?", "choices": ["a", "b"], "answer": "q"},
        {"id": "unsaid", "question": "Which?", "choices": None, "answer": ""},
        {"id": "good", "question": "Which?", "choices": None, "answer": "this", "hint": "Look up.", "system": "Brief."},
    ]  # fmt: skip
    samples = _converted(tmp_path, "parquet", _parquet(tmp_path, rows), code=1)
    assert _said(samples["good"]) == [("system", "Brief."), ("human", "Look up.\nWhich?"), ("gpt", "this")]
    assert _reasons(tmp_path) == {"left-out bad-choice": 2, "left-out no-turns": 1}


def test_texts_without_pairs_and_conversations_as_json(tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    rows: list[dict[str, Any]] = [
        {"id": "json", "conversations": json.dumps(talk), "texts": None},
        {"id": "broken", "conversations": "[{", "texts": None},
        {"id": "obelics", "conversations": None, "texts": ["Once", "upon"]},
    ]
    samples = _converted(tmp_path, "parquet", _parquet(tmp_path, rows), code=1)
    assert _said(samples["json"]) == [("human", "Hi"), ("gpt", "Ho")]
    assert _reasons(tmp_path) == {"left-out bad-conversations": 2}


def test_entries_as_llama_factory_and_mixed_sets_have_them(tmp_path: Path) -> None:
    def talk(asked: str, answer: str = "A cat.") -> list[dict[str, str]]:
        return [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]

    (tmp_path / "images").mkdir()
    (tmp_path / "images/v.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + b"\0" * 40)
    entries = [
        {"id": "system", "system": "Be brief.", "images": ["a.png"], "conversations": talk("<image>What?")},
        {"id": "images", "image": None, "images": ["a.png"], "conversations": talk("<image>What?")},
        {"id": "video", "video": "v.mp4", "conversations": talk("<video>\nWhat?")},
        {"id": "film", "video": "v.mp4", "conversations": talk("<image>\nWhat?")},
        {"id": "both", "image": "a.png", "video": "v.mp4", "conversations": talk("<image>What?")},
        {"id": "empty", "image": "a.png", "conversations": talk("<image>What?", " ")},
        {"id": "messages", "conversations": None, "messages": [{"role": "user", "content": "Hi"},
                                                               {"role": "assistant", "content": "Ho"}]},
    ]  # fmt: skip
    words = ("llava", _json(tmp_path, entries), "--images", str(tmp_path / "images"))
    samples = _converted(tmp_path, *words, code=1)
    assert _said(samples["system"])[0] == ("system", "Be brief.")
    assert "png" in samples["images"]
    assert {"mp4", "json"} <= set(samples["video"])
    assert "mp4" in samples["film"]
    assert "extra.json" not in samples["video"]
    assert _said(samples["messages"]) == [("human", "Hi"), ("gpt", "Ho")]
    assert _reasons(tmp_path) == {"left-out bad-image-field": 1, "kept empty-answer": 1}
