"""``omniloom evaluate --model``: one command that lets a model answer and scores it, here or inside lmms-eval."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.story.test_generate_command import ITEMS, answers_of, make_benchmark

from omniloom.evaluate.model_fingerprint import model_fingerprint
from omniloom.tools.main import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate-model")
    make_benchmark(folder)
    return folder


def words(folder: Path) -> list[str]:
    asked = ["--model", str(folder / "model"), "--template", "chatml", "--max-new-tokens", "6"]
    shown = ["--input-image-path", str(folder / "images"), "--gt-path", str(folder / "test.json")]
    return ["evaluate", "--task", "ai2d", *asked, *shown]


def test_one_command_gives_what_two_give(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart, together = folder / "apart.jsonl", folder / "together.jsonl"
    assert run(["generate", *words(folder)[1:], "--output-path", str(apart)]) == 0
    scored = ["evaluate", "ai2d", "--answers", str(apart), "--ground-truth", str(folder / "test.json"), "--json"]
    assert run(scored) == 0
    expected = json.loads(capsys.readouterr().out)

    assert run([*words(folder), "--answers-to", str(together), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert together.read_text() == apart.read_text()
    differing = {name for name in expected if expected[name] != told[name]}
    assert differing == {"answer_files"}
    assert told["model"] == str(folder / "model")
    assert told["model_fingerprint"] == model_fingerprint(folder / "model")
    assert told["sampling"]["max_new_tokens"] == 6
    assert told["counts"]["scored"] == ITEMS

    # What is there stays.
    assert run([*words(folder), "--answers-to", str(together), "--json"]) == 0
    assert f"0 answers made, {ITEMS} were there" in capsys.readouterr().err

    # Other weights under the same name are another model.
    weights = next((folder / "model").glob("*.safetensors"))
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    assert run([*words(folder), "--answers-to", str(together)]) == 1
    assert "holds answers of another run: model_fingerprint" in capsys.readouterr().err
    weights.write_bytes(before)


def test_the_first_items_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*words(folder), "--limit", "5"]) == 0
    out = capsys.readouterr().out
    assert "5 items, 5 answered, 5 scored" in out
    assert "Of the first 5 items alone: not a score of the benchmark." in out
    assert len(answers_of(tmp_path / "ai2d-answers.jsonl")) == 5
    # Answers to later items are none to unknown ones.
    answers = ["--answers", str(tmp_path / "ai2d-answers.jsonl"), "--ground-truth", str(folder / "test.json")]
    assert run(["evaluate", "ai2d", *answers, "--limit", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limit"] == 3


def test_an_item_that_fails(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads((folder / "test.json").read_text())
    rows[2]["image"] = "none.png"
    (tmp_path / "lacking.json").write_text(json.dumps(rows))
    asked = [*words(folder), "--gt-path", str(tmp_path / "lacking.json"), "--answers-to", str(tmp_path / "a.jsonl")]
    assert run(asked) == 1
    told = capsys.readouterr()
    assert "INCOMPLETE" in told.out
    assert "missing: 1, such as 2" in told.out
    assert "2: " in told.err
    assert "none.png" in told.err


def test_what_is_lacking_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "ai2d", "--ground-truth", str(folder / "test.json")]) != 0
    assert "--answers and --model are missing" in capsys.readouterr().err
    assert run(["evaluate", "--ground-truth", str(folder / "test.json")]) != 0
    assert "one task expected" in capsys.readouterr().err
    assert run(["evaluate", "ai2d", "--answers", "a.jsonl"]) != 0
    assert "--ground-truth is missing" in capsys.readouterr().err


def test_inside_lmms_eval(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["evaluate", "mme", "--model", str(folder / "model"), "--inside", "lmms-eval", "--template", "chatml"]
    if "lmms_eval" not in sys.modules:
        monkeypatch.setattr("omniloom.tools.lmms_eval_run.find_spec", lambda name: None)
        assert run(asked) == 1
        assert "omniloom[lmms-eval]" in capfd.readouterr().err
    monkeypatch.undo()
    # Its command as it is called; what it does then, test_lmms_eval drives.
    package = tmp_path / "lmms_eval"
    package.mkdir()
    (package / "__init__.py").touch()
    program = package / "__main__.py"
    program.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run([*asked, "--limit", "8", "--output", str(tmp_path / "told")]) == 3
    said = json.loads(capfd.readouterr().out)
    assert said[:2] == ["--model", "omniloom"]
    model = f"pretrained={folder / 'model'},template=chatml,batch_tokens=65536,max_frames_num=8"
    assert said[2:6] == ["--model_args", model, "--tasks", "mme"]
    assert said[6:] == [
        "--batch_size", "16", "--limit", "8", "--output_path", str(tmp_path / "told"), "--log_samples",
    ]  # fmt: skip
    # It ends with 0 after errors of its own: what it has written counts.
    program.write_text("")
    assert run([*asked, "--include-path", str(tmp_path)]) == 1
    assert "lmms-eval wrote no result of mme" in capfd.readouterr().err
    program.write_text(
        "import pathlib, sys\nassert '--include_path' in sys.argv\n"
        "pathlib.Path(sys.argv[sys.argv.index('--output_path') + 1], 'a_results.json').touch()\n"
    )
    assert run([*asked, "--include-path", str(tmp_path)]) == 0
