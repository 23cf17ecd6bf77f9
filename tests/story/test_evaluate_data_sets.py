"""Data sets of omniloom as benchmarks: a prepared folder, a mix, samples of each kind; answered and scored."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from tests.story.test_generate_command import answers_of, make_benchmark

import omniloom as ol
from omniloom.data.shards.write import TarWriter
from omniloom.errors import ConfigError
from omniloom.evaluate.data_sets import fingerprint_of, is_data_set, read_data_set
from omniloom.evaluate.pictures import Pictures
from omniloom.tools.main import run


def png(level: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 16 + level), (level, 10, 200)).save(out, "PNG")
    return out.getvalue()


def prepared(folder: Path, kind: str, field_map: dict[str, str], rows: list[dict[str, Any]]) -> Path:
    """A data set whose samples hold an image and the JSON of a row."""
    folder.mkdir()
    with TarWriter(folder / "shard-000000.tar") as writer:
        for number, row in enumerate(rows):
            writer.add(f"{row.pop('key', f'{number:04d}')}.png", png(number))
            writer.add(f"{number:04d}.json", json.dumps(row).encode())
    ol.prepare_dataset(folder, split_ratio={"val": 1.0}, num_workers=1)
    described = {"__module__": "megatron.energon", "__class__": kind, "field_map": field_map}
    (folder / ".nv-meta/dataset.yaml").write_text(yaml.safe_dump(described))
    return folder


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"q": f"<image>\nwhat is {n}?", "a": [f"thing {n}", f"{n}"]} for n in range(5)]
    fields = {"image": "png", "context": "json[q]", "answers": "json[a]"}
    return prepared(tmp_path_factory.mktemp("sets") / "questions", "VQASample", fields, rows)


def test_questions_with_answers(questions: Path) -> None:
    assert is_data_set(questions)
    assert not is_data_set(questions.parent)
    items = read_data_set(questions)
    assert [item.id for item in items] == [f"{n:04d}" for n in range(5)]
    assert items[3].question == "what is 3?"
    assert items[3].answers == ("thing 3", "3")
    pictures = Pictures(questions)
    assert [pictures.of(item) for item in items] == [[png(n)] for n in range(5)]
    assert pictures.of(pickle.loads(pickle.dumps(items[4]))) == [png(4)]  # another process opens it anew
    assert fingerprint_of(items) == fingerprint_of(read_data_set(questions)) != fingerprint_of(items[:4])


def test_choices_and_captions(tmp_path: Path) -> None:
    rows = [{"q": "which?", "c": ["red", "blue"], "r": n % 2} for n in range(2)]
    fields = {"image": "png", "context": "json[q]", "choices": "json[c]", "correct_choice_idx": "json[r]"}
    items = read_data_set(prepared(tmp_path / "choices", "MultiChoiceVQASample", fields, rows))
    assert [(item.options, item.answers) for item in items] == [({"A": "red", "B": "blue"}, (right,)) for right in "AB"]

    captions = prepared(
        tmp_path / "captions", "CaptioningSample", {"image": "png", "caption": "json[c]"}, [{"c": "a red bus"}]
    )
    (item,) = read_data_set(captions)
    assert (item.question, item.answers) == ("", ("a red bus",))

    nothing = prepared(tmp_path / "texts", "TextSample", {"text": "json[c]"}, [{"c": "a red bus"}])
    with pytest.raises(ConfigError, match="TextSample, which asks nothing"):
        read_data_set(nothing)


def test_conversations_as_convert_writes_them(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "<image>\nwhat is it?"},
        {"from": "gpt", "value": "a bus"},
        {"from": "human", "value": "and its colour?"},
        {"from": "gpt", "value": "red"},
    ]
    folder = tmp_path / "talks"
    folder.mkdir()
    with TarWriter(folder / "shard-000000.tar") as writer:
        writer.add("a.json", json.dumps(turns).encode())
        writer.add("a.png", png(7))
    ol.prepare_dataset(folder, split_ratio={"test": 1.0}, num_workers=1)
    (folder / ".nv-meta/dataset.yaml").write_text(
        yaml.safe_dump({"__module__": "megatron.energon", "__class__": "CrudeWebdataset"})
    )
    (item,) = read_data_set(folder, split_part="test")
    assert (item.question, item.answers) == ("what is it?", ("a bus",))
    assert Pictures(folder).of(item) == [png(7)]


def test_keys_of_a_mix_are_told_apart(questions: Path, tmp_path: Path) -> None:
    rows = [{"q": "?", "a": ["x"]} for _ in range(2)]
    fields = {"image": "png", "context": "json[q]", "answers": "json[a]"}
    other = prepared(tmp_path / "other", "VQASample", fields, rows)
    mix = tmp_path / "mix.yaml"
    parts = [{"weight": 1, "path": str(path)} for path in (questions, other)]
    described = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"val": {"blend": parts}}}
    mix.write_text(yaml.safe_dump(described))
    items = read_data_set(mix)
    assert len({item.id for item in items}) == len(items) == 7
    assert [item.id for item in items if "/" not in item.id] == ["0002", "0003", "0004"]
    assert Pictures(tmp_path).of(items[6]) == [png(1)]


def test_answered_and_scored(questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_benchmark(tmp_path)
    model = ["--model", str(tmp_path / "model"), "--template", "chatml", "--max-new-tokens", "4"]
    asked = ["evaluate", "textvqa", *model, "--gt-path", str(questions), "--answers-to", str(tmp_path / "a.jsonl")]
    assert run([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["counts"]["answered"] + told["counts"]["empty"] == told["counts"]["expected"] == 5
    assert told["ground_truth_sha256"] == fingerprint_of(read_data_set(questions))
    rows = answers_of(tmp_path / "a.jsonl")
    assert rows["0002"]["gt_answer"] == ["thing 2", "2"]
    # The same images, questions and model by files give the same answers.
    (tmp_path / "shown").mkdir()
    asked_too = []
    for number in range(5):
        (tmp_path / f"shown/{number}.png").write_bytes(png(number))
        shown = {"question_id": f"{number:04d}", "image": f"{number}.png"}
        asked_too.append(shown | {"question": f"what is {number}?", "answers": ["x"]})
    (tmp_path / "val.json").write_text(json.dumps(asked_too))
    files = ["--gt-path", str(tmp_path / "val.json"), "--input-image-path", str(tmp_path / "shown")]
    assert run(["generate", "--task", "textvqa", *model, *files, "--output-path", str(tmp_path / "b.jsonl")]) == 0
    assert {name: row["answer"] for name, row in answers_of(tmp_path / "b.jsonl").items()} == {
        name: row["answer"] for name, row in rows.items()
    }
    # Files of answers are scored by it too, and another part of the split is refused by its name.
    scored = ["evaluate", "textvqa", "--answers", str(tmp_path / "a.jsonl"), "--ground-truth", str(questions)]
    assert run(scored) == 0
    assert run([*scored, "--split-part", "train"]) == 1
    assert "train" in capsys.readouterr().err
