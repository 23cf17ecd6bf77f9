"""Each well-known data set, in small files of its published layout: converted, linted, inspected, trained on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.tools.main import run

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = range(4)


def _png(number: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40 + 9 * number, 30), (60 * number, 90, 200)).save(stream, kind)
    return stream.getvalue()


def _image(root: Path, name: str, number: int) -> None:
    path = root / "images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_png(number, "PNG" if name.endswith("png") else "JPEG"))


def _json(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)


def llava_pretrain(root: Path) -> list[str]:
    rows = []
    for number in NUMBERS:
        name = f"0045{number}/GCC_train_00{number}.jpg"
        _image(root, name, number)
        asked = "Provide a brief description of the given image.\n<image>" if number % 2 else "<image>\nWhat is it?"
        talk = [{"from": "human", "value": asked}, {"from": "gpt", "value": f"box {number} of blue"}]
        rows.append({"id": f"00{number}", "image": name, "conversations": talk, "blip_caption": "a box"})
    return ["llava", _json(root / "blip_laion_cc_sbu_558k.json", rows)]


def sharegpt(root: Path) -> list[str]:
    rows = []
    for number in NUMBERS:
        name = f"coco/train2017/{number:012}.jpg"
        _image(root, name, number)
        talk = []
        for turn in range(3):
            asked = f"<image>\nQuestion {turn}?" if not turn else f"Question {turn}?"
            talk += [{"from": "human", "value": asked}, {"from": "gpt", "value": f"box {number} turn {turn}"}]
        rows.append({"id": f"{number:012}", "image": name, "conversations": talk})
    rows.append({"id": "text", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "box?"}]})
    return ["llava", _json(root / "sharegpt4v.json", rows)]


def openai_messages(root: Path) -> list[str]:
    lines = []
    for number in NUMBERS:
        _image(root, f"{number}.png", number)
        content = [
            {"type": "image_url", "image_url": {"url": f"{number}.png"}},
            {"type": "text", "text": "What is shown?"},
        ]
        messages = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": [{"type": "text", "text": f"box {number}"}]},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (root / "chats.jsonl").write_text("".join(lines))
    return ["llava", str(root / "chats.jsonl")]


def coco_captions(root: Path) -> list[str]:
    images = [{"id": number, "file_name": f"{number:012}.jpg", "height": 30, "width": 40} for number in NUMBERS]
    for image in images:
        _image(root, str(image["file_name"]), int(str(image["id"])))
    said = [
        {"image_id": number, "id": 10 * number + n, "caption": f"box {number}, said {n}."}
        for number in NUMBERS
        for n in range(5)
    ]
    whole = {"info": {}, "licenses": [], "images": images, "annotations": said}
    return ["coco-captions", _json(root / "captions_train2017.json", whole)]


def vqav2(root: Path) -> list[str]:
    asked, answered = [], []
    for number in NUMBERS:
        _image(root, f"COCO_train2014_{number:012}.jpg", number)
        asked.append({"image_id": number, "question": "What?", "question_id": 1000 * number})
        said = [{"answer": f"box {number if n < 7 else 9}", "answer_id": n + 1} for n in range(10)]
        answered.append({"question_id": 1000 * number, "image_id": number, "answers": said})
    kind = {"data_subtype": "train2014"}
    return [
        "vqav2",
        _json(root / "questions.json", {**kind, "questions": asked}),
        _json(root / "annotations.json", {**kind, "annotations": answered}),
    ]


def textvqa(root: Path) -> list[str]:
    rows = []
    for number in NUMBERS:
        _image(root, f"f{number:015}.jpg", number)
        row = {"question_id": 34602 + number, "image_id": f"f{number:015}", "question": "what is the brand?"}
        rows.append({**row, "answers": [f"box {number}"] * 9 + ["nous"], "set_name": "train"})
    return ["textvqa", _json(root / "TextVQA_0.5.1_train.json", {"dataset_type": "train", "data": rows})]


def docvqa(root: Path) -> list[str]:
    rows = []
    for number in NUMBERS:
        name = f"documents/xnbl0037_{number}.png"
        _image(root, name, number)
        row = {"questionId": 337 + number, "question": "what is the date?", "image": name, "docId": 279}
        rows.append({**row, "answers": [f"box {number}"], "data_split": "train"})
    return ["docvqa", _json(root / "train_v1.0.json", {"dataset_name": "docvqa", "data": rows})]


def chartqa(root: Path) -> list[str]:
    rows = []
    for number in NUMBERS:
        _image(root, f"{number}.png", number)
        rows.append({"imgname": f"{number}.png", "query": "How many?", "label": f"box {number}"})
    return ["chartqa", _json(root / "train_human.json", rows)]


def ai2d(root: Path) -> list[str]:
    for number in NUMBERS:
        _image(root, f"{number}.png", number)
        asked = {"answerTexts": ["box", "leaf", "root"], "correctAnswer": number % 3, "questionId": f"{number}.png-0"}
        content = {"imageName": f"{number}.png", "questions": {"What is A?": asked}}
        _json(root / f"ai2d/questions/{number}.png.json", content)
    return ["ai2d", str(root / "ai2d")]


def cauldron(root: Path) -> list[str]:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (root / "images").mkdir()
    images = [[{"bytes": _png(number), "path": None}] for number in NUMBERS]
    texts = [[{"user": "What?", "assistant": f"box {number}", "source": "ai2d"}] for number in NUMBERS]
    (root / "cauldron").mkdir()
    table = pyarrow.table({"images": images, "texts": texts})
    parquet.write_table(table, root / "cauldron/train-00000-of-00001-2ce340398c113b79.parquet")
    return ["parquet", str(root / "cauldron")]


def video_qa(root: Path) -> list[str]:
    av = pytest.importorskip("av")
    rows = []
    for number in NUMBERS:
        path = root / f"images/academic/{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as file:
            stream = file.add_stream("mpeg4", rate=4)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for shade in range(8):
                frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 30 * shade, np.uint8), format="rgb24")
                file.mux(stream.encode(frame))
            file.mux(stream.encode())
        talk = [{"from": "human", "value": "<image>\nWhat happens?"}, {"from": "gpt", "value": f"box {number}"}]
        rows.append({"id": str(number), "video": f"academic/{number}.mp4", "conversations": talk})
    return ["video", _json(root / "llava_video.json", rows)]


MAKERS: tuple[Callable[[Path], list[str]], ...] = (
    llava_pretrain, sharegpt, openai_messages, coco_captions, vqav2, textvqa, docvqa, chartqa, ai2d, cauldron, video_qa
)  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_from_a_published_file_to_two_steps(
    make: Callable[[Path], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "out"
    words = make(tmp_path)
    assert run(["convert", *words, "--images", str(tmp_path / "images"), "--out", str(out), "--no-progress"]) == 0
    assert run(["lint", str(out)]) == 0
    capsys.readouterr()
    seen = ["--tokenizer", "bytes", "--template", "vicuna_v1", "--tile-pixels", "56", "--max-tokens", "512", "--json"]
    assert run(["inspect", str(out), *seen]) == 0
    told = capsys.readouterr().out
    samples = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert len(samples) >= len(NUMBERS)

    settings = (
        f"data.train={out}", "data.validation=null", "data.template=vicuna_v1", "data.max_tokens=512",
        "data.batch_size=2", "data.global_batch_size=4", "data.video_frames=4", "evaluation.every_steps=0",
        "parts.language_model.train=true", "loop.steps=2",
    )  # fmt: skip
    given = [word for one in settings for word in ("--set", one)]
    assert run(["train", "recipes/tiny/pretrain.yaml", "--workspace", str(tmp_path), *given]) == 0
    lines = [json.loads(line) for line in (tmp_path / "runs/tiny-pretrain/steps.jsonl").read_text().splitlines()]
    assert [line["samples"] for line in lines] == [4, 4]
    assert all(line["learned_tokens"] > 4 and line["images_per_second"] > 0 for line in lines)
    assert 4 < lines[0]["loss"] < 8  # about the logarithm of the 320 words
