"""A person converts well-known data sets: small files of their published forms, and what the loader gives of them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import omniloom
from omniloom.tools.main import run


def _png(colour: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (colour, 9, 9)).save(stream, "PNG")
    return stream.getvalue()


def _images(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_png(number))


def _json(root: Path, name: str, content: Any) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def _samples(root: Path, *words: str, code: int = 0) -> list[Any]:
    """What the loader gives of a conversion into ``out``."""
    out = root / "out"
    arguments = ["convert", *words, "--images", str(root / "images"), "--out", str(out), "--no-progress"]
    assert run(arguments) == code
    config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = omniloom.get_val_dataset(out, split_part="train", batch_size=None, worker_config=config)
    return list(omniloom.get_savable_loader(dataset))


def test_vqav2(tmp_path: Path) -> None:
    _images(tmp_path, "COCO_train2014_000000000042.jpg")
    asked = {
        "data_subtype": "train2014",
        "questions": [{"image_id": 42, "question": "What colour?", "question_id": 420}],
    }
    said = ["red"] * 7 + ["dark red"] * 3
    answered = {
        "data_subtype": "train2014",
        "annotations": [
            {
                "question_id": 420,
                "image_id": 42,
                "answer_type": "other",
                "question_type": "what",
                "multiple_choice_answer": "red",
                "answers": [{"answer": one, "answer_id": n, "answer_confidence": "yes"} for n, one in enumerate(said)],
            }
        ],
    }
    files = _json(tmp_path, "q.json", asked), _json(tmp_path, "a.json", answered)
    (sample,) = _samples(tmp_path, "vqav2", *files)
    assert isinstance(sample, omniloom.VQASample)
    assert (sample.__key__, sample.context, sample.answers) == ("420", "What colour?", ["red", "dark red"])
    assert list(sample.answer_weights) == pytest.approx([0.7, 0.3])  # type: ignore[arg-type]
    assert sample.image.shape == (3, 6, 8)


def test_coco_captions_in_both_forms(tmp_path: Path) -> None:
    _images(tmp_path, "7.jpg", "val2014/8.jpg")
    plain = {
        "images": [{"id": 7, "file_name": "7.jpg"}, {"id": 9, "file_name": "7.jpg"}],
        "annotations": [
            {"image_id": 7, "id": 1, "caption": "A cat. "},
            {"image_id": 7, "id": 2, "caption": "One cat."},
        ],
    }
    (sample,) = _samples(tmp_path, "coco-captions", _json(tmp_path, "c.json", plain), code=1)
    assert isinstance(sample, omniloom.CaptioningSample)
    assert (sample.__key__, sample.caption) == ("7", ["A cat.", "One cat."])
    report = (tmp_path / "out/convert_report.jsonl").read_text()
    assert '"no-turns"' in report
    (tmp_path / "k").mkdir()
    (tmp_path / "k/images").symlink_to(tmp_path / "images")
    image = {"cocoid": 8, "filename": "8.jpg", "filepath": "val2014", "split": "val", "sentences": [{"raw": "A dog."}]}
    (sample,) = _samples(tmp_path / "k", "coco-captions", _json(tmp_path / "k", "d.json", {"images": [image]}))
    assert sample.caption == ["A dog."]


def test_textvqa_docvqa_chartqa(tmp_path: Path) -> None:
    rows: list[tuple[str, Any, str, str, list[str]]] = [
        (
            "textvqa",
            {"data": [{"question_id": 3, "image_id": "f00", "question": "Brand?", "answers": ["x", "x", "y"]}]},
            "f00.jpg",
            "3",
            ["x", "y"],
        ),
        (
            "docvqa",
            {"data": [{"questionId": 5, "image": "documents/p_1.png", "question": "Brand?", "answers": ["z"]}]},
            "documents/p_1.png",
            "5",
            ["z"],
        ),
        ("chartqa", [{"imgname": "c.png", "query": "Brand?", "label": 14}], "c.png", "c_0", ["14"]),
    ]
    for name, content, image, key, answers in rows:
        root = tmp_path / name
        _images(root, image)
        (sample,) = _samples(root, name, _json(root, "data.json", content))
        assert (sample.__key__, sample.context, sample.answers) == (key, "Brand?", answers), name


def test_ai2d(tmp_path: Path) -> None:
    _images(tmp_path, "0.png")
    question = {"answerTexts": ["root", "leaf"], "correctAnswer": 1, "questionId": "0.png-0"}
    broken = {"answerTexts": ["root"], "correctAnswer": 4, "questionId": "0.png-1"}
    content = {"imageName": "0.png", "questions": {"What is A?": question, "What is B?": broken}}
    _json(tmp_path, "ai2d/questions/0.png.json", content)
    (sample,) = _samples(tmp_path, "ai2d", str(tmp_path / "ai2d"), code=1)
    assert isinstance(sample, omniloom.MultiChoiceVQASample)
    assert (sample.context, sample.choices, sample.correct_choice_idx) == ("What is A?", ["root", "leaf"], 1)


def test_parquet_of_three_forms(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "images").mkdir()
    cauldron = {
        "images": [[{"bytes": _png(1), "path": None}, {"bytes": _png(2), "path": None}]],
        "texts": [
            [{"user": "Which <image>?", "assistant": "The 2nd.", "source": "s"}, {"user": "?", "assistant": "!"}]
        ],
    }
    onevision = {
        "id": ["b"],
        "image": [{"bytes": _png(3), "path": "x.png"}],
        "conversations": [[{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A box."}]],
        "data_source": ["web"],
    }
    plain = {"question_id": ["c"], "image": [{"bytes": _png(4)}], "question": ["What?"], "answers": [["one", "two"]]}
    for number, table in enumerate((cauldron, onevision, plain)):
        parquet.write_table(pyarrow.table(table), tmp_path / f"{number}.parquet")
    samples = {sample["__key__"]: sample for sample in _samples(tmp_path, "parquet", str(tmp_path))}
    assert sorted(samples) == ["0-000000", "b", "c"]
    turns = samples["0-000000"]["json"]
    places = [{"type": "image"}, {"type": "image"}]
    assert turns[0] == {"from": "human", "value": [*places, {"type": "text", "text": "Which <image>?"}]}
    assert [turn["from"] for turn in turns] == ["human", "gpt", "human", "gpt"]
    assert {"0.png", "1.png"} <= set(samples["0-000000"])
    assert samples["b"]["json"][1] == {"from": "gpt", "value": "A box."}
    assert samples["b"]["extra.json"] == {"data_source": "web"}
    assert samples["c"]["json"][1]["value"] == "one"


def test_parquet_goes_on_in_a_later_row_group(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from omniloom.data.convert.parquet_entries import ParquetEntries  # noqa: PLC0415

    table = pyarrow.table({"id": [str(n) for n in range(25)], "caption": ["x"] * 25})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    parquet.write_table(table, tmp_path / "b.parquet", row_group_size=10)
    source = ParquetEntries(tmp_path)
    whole = list(source.entries(0))
    assert [raw.position for raw in whole] == list(range(50))
    for start in (0, 9, 10, 24, 25, 37, 50):
        assert list(source.entries(start)) == whole[start:]
    assert whole[-1].bytes_read == source.size_bytes


def test_videos(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    clip = b"\0\0\0\x18ftypmp42" + b"\0" * 40
    (tmp_path / "images/v1.mp4").write_bytes(clip)
    entries = [
        {
            "id": 1,
            "video": "v1.mp4",
            "conversations": [{"from": "human", "value": "<video>\nWhat?"}, {"from": "gpt", "value": "A cat."}],
        },
        {"video_name": "v1", "q": "And then?", "a": "It sleeps."},
        {"id": 3, "video": "none.mp4", "q": "?", "a": "!"},
    ]
    samples = _samples(tmp_path, "video", _json(tmp_path, "v.json", entries), code=1)
    assert [sample["__key__"] for sample in samples] == ["1", "v1"]
    assert samples[1]["json"][0]["value"] == [{"type": "video"}, {"type": "text", "text": "And then?"}]


def test_openai_messages_keep_their_parts(tmp_path: Path) -> None:
    _images(tmp_path, "a.png")
    url = f"data:image/png;base64,{base64.b64encode(_png(5)).decode()}"
    content = [
        {"type": "text", "text": "What does <image> say?"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "image": "a.png"},
    ]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Nothing."}]
    (tmp_path / "m.jsonl").write_text(json.dumps({"id": "m", "messages": messages}) + "\n")
    (sample,) = _samples(tmp_path, "llava", str(tmp_path / "m.jsonl"))
    assert [part["type"] for part in sample["json"][0]["value"]] == ["text", "image", "image"]
    assert {"0.png", "1.png"} <= set(sample)


def test_a_file_of_another_form_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "images").mkdir()
    file = _json(tmp_path, "d.json", {"rows": []})
    arguments = ["convert", "docvqa", file, "--images", str(tmp_path / "images"), "--out", str(tmp_path / "o")]
    assert run([*arguments, "--no-progress"]) == 1
    assert "not of the form of docvqa" in capsys.readouterr().err
