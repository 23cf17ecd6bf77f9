"""``omniloom generate`` into a file that is there: what goes on, and what is refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.story.test_generate_command import ITEMS, answers_of, make_benchmark

from omniloom.tools.main import run


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generate again")


@pytest.fixture(scope="module")
def command(work: Path) -> list[str]:
    return make_benchmark(work)


@pytest.fixture(scope="module")
def whole(work: Path, command: list[str]) -> Path:
    output = work / "whole.jsonl"
    assert run([*command, "--max-new-tokens", "4", "--output-path", str(output)]) == 0
    return output


@pytest.fixture
def again(whole: Path, command: list[str], tmp_path: Path) -> tuple[list[str], Path]:
    """The command once more, and its file, of which half is there."""
    output = tmp_path / "answers of a model.jsonl"
    output.write_text("".join(whole.read_text().splitlines(keepends=True)[: ITEMS // 2]))
    shutil.copy(f"{whole}.model.json", f"{output}.model.json")
    return [*command, "--max-new-tokens", "4", "--output-path", str(output)], output


def test_a_model_that_has_moved(again: tuple[list[str], Path], work: Path, whole: Path, tmp_path: Path) -> None:
    words, output = again
    shutil.copytree(work / "model", tmp_path / "moved")
    words[words.index("--model") + 1] = str(tmp_path / "moved")
    assert run(words) == 0
    assert output.read_text() == whole.read_text()


def test_another_template(again: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    words, output = again
    before = output.read_bytes()
    beside = output.with_name(f"{output.name}.model.json")
    beside.write_text(beside.read_text().replace('"chatml"', '"llama3"'))
    assert run(words) == 1
    assert "template 'llama3', now 'chatml'" in capsys.readouterr().err
    assert output.read_bytes() == before


def test_other_questions_under_the_same_ids(
    again: tuple[list[str], Path], work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, output = again
    rows = json.loads((work / "test.json").read_text())
    rows[0]["question"] = "is it blue ?"
    (tmp_path / "other.json").write_text(json.dumps(rows))
    assert run([*words, "--gt-path", str(tmp_path / "other.json")]) == 1
    said = capsys.readouterr().err
    assert "the answer to '0' there is to" in said
    assert "'is it blue ?' expected. Write to another file." in said
    assert len(answers_of(output)) == ITEMS // 2


def test_halves_of_characters(
    command: list[str], work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON can hold them, and no UTF-8 can: such a question fails alone, and files stay what others can read."""
    rows = json.loads((work / "test.json").read_text())
    rows[3]["question"] = "what \ud800 is"
    rows[5]["answer"], rows[6]["question_id"] = "\udfff", "a\ud800"
    truth = tmp_path / "halves.json"
    truth.write_text(json.dumps(rows))
    words = [*command, "--gt-path", str(truth), "--output-path", str(tmp_path / "a.jsonl"), "--max-new-tokens", "4"]
    assert run([*words, "--num-partitions", "2", "--partition-id", "1"]) == 1  # then the file is sorted
    assert run([*words, "--json"]) == 1
    said = capsys.readouterr()
    failed = {"3": "character 5 of its question is '\\ud800', half of a pair. Mend the text."}
    assert json.loads(said.out)["failed"] == failed
    text = (tmp_path / "a.jsonl").read_text("utf-8")
    expected = ["0", "1", "2", "4", "5", "a\ud800", *map(str, range(7, ITEMS))]
    assert [json.loads(line)["sample_id"] for line in text.splitlines()] == expected
    scored = ["evaluate", "ai2d", "--answers", str(tmp_path / "a.jsonl"), "--items", str(tmp_path / "items.jsonl")]
    for against in (truth, work / "test.json"):
        assert run([*scored, "--ground-truth", str(against)]) == 1
        assert "missing: 1" in capsys.readouterr().out.replace("missing: 2", "missing: 1")
        assert len((tmp_path / "items.jsonl").read_text("utf-8").splitlines()) == ITEMS


@pytest.mark.parametrize("line", [b'{"sample_id": "3", "answer"', b"\0" * 40, b"[]", b'{"answer": "red"}', b"\xff{}"])
def test_a_line_that_is_none_of_ours(
    line: bytes, again: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, output = again
    output.write_bytes(line + b"\n" + output.read_bytes())
    assert run(words) == 1
    said = capsys.readouterr().err
    assert "line 1 is no answer with its sample_id" in said
    assert "Traceback" not in said


def test_what_stands_beside_is_broken(
    again: tuple[list[str], Path], work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, output = again
    beside = output.with_name(f"{output.name}.model.json")
    for text in ('{"model": ', "[1]"):
        beside.write_text(text)
        assert run(words) == 1
        assert "not what `omniloom generate` writes beside its answers" in capsys.readouterr().err
        assert run(["evaluate", "ai2d", "--answers", str(output), "--ground-truth", str(work / "test.json")]) == 1
        assert "not what `omniloom generate` writes beside its answers" in capsys.readouterr().err


def test_ids_that_come_twice(
    command: list[str], work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two items with one id, one answer would be lost."""
    rows = json.loads((work / "test.json").read_text())
    rows[1]["question_id"] = 0
    (tmp_path / "twice.json").write_text(json.dumps(rows))
    output = tmp_path / "a.jsonl"
    assert run([*command, "--gt-path", str(tmp_path / "twice.json"), "--output-path", str(output)]) == 1
    assert "id '0' comes twice among the items" in capsys.readouterr().err
    assert not output.exists()
    for name in ("a_1.png", "b_1.png"):
        shutil.copy(work / "images/0.png", tmp_path / name)
    words = ["generate", "--model", str(work / "model"), "--template", "chatml", "--max-new-tokens", "4"]
    words += ["--input-image-path", str(tmp_path), "--output-path", str(output)]
    assert run([*words, "--task", "captioning"]) == 1
    assert "a_1.png and b_1.png have one number, 1, which is their id" in capsys.readouterr().err
    assert run([*words, "--task", "captions"]) == 0
    assert list(answers_of(output)) == ["a_1.png", "b_1.png"]


def test_an_image_that_cannot_be_looked_for(
    command: list[str], work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such an item fails alone: a name that no file system takes, a folder, a text."""
    rows = json.loads((work / "test.json").read_text())[:4]
    (work / "images/folder").mkdir()
    (work / "images/text.png").write_text("no image")
    for row, name in zip(rows[:3], ("x" * 300 + ".png", "folder", "text.png"), strict=True):
        row["image"] = name
    (tmp_path / "odd.json").write_text(json.dumps(rows))
    output = tmp_path / "a.jsonl"
    assert run([*command, "--gt-path", str(tmp_path / "odd.json"), "--output-path", str(output)]) == 1
    assert "1 answers made, 0 were there, 3 failed" in capsys.readouterr().err
    assert list(answers_of(output)) == ["3"]
    (tmp_path / "none").mkdir()
    nowhere = ["--input-image-path", str(tmp_path / "none"), "--output-path", str(tmp_path / "b.jsonl"), "--json"]
    assert run([*command, *nowhere]) == 1
    said = capsys.readouterr()
    assert "and 7 more, all of which `omniloom generate --json` names" in said.err
    assert len(json.loads(said.out)["failed"]) == ITEMS
