"""A person looks at a data set, typed or crude, on a terminal, as JSON, as a page."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from omniloom.tools.main import run


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    entries = []
    for number in range(9):
        Image.new("RGB", (20, 10), (number * 20, 0, 0)).save(images / f"{number}.png")
        turns = [{"from": "human", "value": f"Question {number}?"}, {"from": "gpt", "value": "<b>Answer</b>"}]
        entries.append({"id": f"k{number}", "image": f"{number}.png", "conversations": turns})
    (tmp_path / "x.json").write_text(json.dumps(entries))
    words = ["convert", "llava", str(tmp_path / "x.json"), "--images", str(images), "--out", str(tmp_path / "shards")]
    assert run([*words, "--max-count", "3", "--crude", "--split-ratio", "2,1,0"]) == 0
    return tmp_path / "shards"


def test_in_the_terminal(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["preview", str(dataset), "--count", "2", "--start", "2"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[1] for line in text.splitlines() if line.endswith("──")] == ["k2", "k3"]
    assert "20 x 10 png" in text
    assert "Question 3?" in text


def test_as_json_with_byte_ranges_that_hold_the_sample(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["preview", str(dataset), "--count", "99", "--split-part", "val", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sample["key"] for sample in found] == ["k6", "k7", "k8"]
    assert found[0]["shard"] == "shard-000002.tar"
    assert found[1]["parts"]["png"]["shape"] == "20 x 10 png"
    assert found[1]["parts"]["json"]["value"][0] == {"from": "human", "value": "Question 7?"}
    start, stop = found[1]["bytes"]
    span = (dataset / "shard-000002.tar").read_bytes()[start:stop]
    with tarfile.open(fileobj=io.BytesIO(span)) as archive:
        assert archive.getnames() == ["k7.json", "k7.png"]


def test_as_a_page(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert run(["preview", str(dataset), "--count", "6", "--html", str(path)]) == 0
    assert f"Wrote {path} with 6 of 6 samples." in capsys.readouterr().out
    text = path.read_text()
    assert text.count("<article>") == 6
    assert "&lt;b&gt;Answer&lt;/b&gt;" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--split-part", "nope"], 1, "there is no split part 'nope'"),
        (["--start", "6"], 2, "beyond the 6 samples"),
        (["--split-part", "test"], 1, "'test' is empty"),
    ],
)
def test_errors_say_what_is_there(
    words: list[str], code: int, message: str, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["preview", str(dataset), *words]) == code
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["preview", str(tmp_path)]) == 1
    assert "omniloom prepare" in capsys.readouterr().err


def test_fields_of_a_typed_data_set_are_shown(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "sample_type": {"__module__": "megatron.energon", "__class__": "VQASample"},
        "field_map": {"image": "jpg,png", "context": "json[0][value]", "answers": "json[7][value]"},
    }
    (dataset / ".nv-meta" / "typed.yaml").write_text(json.dumps(config))
    words = ["preview", str(dataset), "--dataset-config", "typed.yaml", "--count", "1"]
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert fields["image"] == "20 x 10 png"
    assert fields["context"] == "Question 0?"
    assert fields["answers"].startswith("cannot be filled: json[7][value]: no element 7")
    assert run(words) == 0
    assert "context = Question 0?" in capsys.readouterr().out
    assert run([*words, "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "<dt>context</dt><dd>Question 0?</dd>" in page
    assert "VQASample" in page


def test_a_data_set_without_a_description_is_shown_all_the_same(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dataset / ".nv-meta" / "dataset.yaml").unlink()
    capsys.readouterr()
    assert run(["preview", str(dataset), "--count", "1", "--json"]) == 0
    assert "fields" not in json.loads(capsys.readouterr().out)
    assert run(["preview", str(dataset), "--dataset-config", "nope.yaml"]) == 1
    assert "nope.yaml" in capsys.readouterr().err
