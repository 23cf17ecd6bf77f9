"""``omniloom generate`` and ``ask`` by their flags: drawing, partitions, stop texts, what is printed and refused."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.story.test_train_to_score import _model_folder
from tests.unit.hugging_face_pairs import write_folder

from omniloom.evaluate.scores.captions import Rarity, agreement
from omniloom.evaluate.scores.treebank import caption_tokens
from omniloom.evaluate.tasks import find_task
from omniloom.generate.prompts import answer_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.build import build
from omniloom.model.families import read_config_file
from omniloom.model.initialize import initialize
from omniloom.tools.main import run
from omniloom.train.trained import open_trained

ITEMS = 12


def make_benchmark(folder: Path) -> list[str]:
    """A model with random weights, images and questions; the words of a command without its output."""
    torch.set_num_threads(1)
    _model_folder(folder / "model")
    config = read_config_file(folder / "model")
    model = build(config)
    generator = torch.Generator().manual_seed(5)
    initialize(model, generator=generator)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    write_folder(config, model, folder / "model")
    (folder / "images").mkdir()
    for number in range(4):
        noise = torch.randint(0, 256, (16 + number, 24, 3), generator=generator, dtype=torch.uint8)
        Image.fromarray(noise.numpy()).save(folder / f"images/{number}.png")
    words = ["what colour is it?", "is it red", "what", "it is it is blue ?"]
    rows = [
        {"question_id": n, "image": f"{n % 4}.png", "question": words[n % 3], "answer": "red"} for n in range(ITEMS)
    ]
    (folder / "test.json").write_text(json.dumps(rows))
    command = ["generate", "--model", str(folder / "model"), "--task", "ai2d", "--template", "chatml"]
    return [*command, "--input-image-path", str(folder / "images"), "--gt-path", str(folder / "test.json")]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generate")


@pytest.fixture(scope="module")
def command(work: Path) -> list[str]:
    return make_benchmark(work)


def answers_of(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["sample_id"] for row in rows}) == len(rows)
    return {row["sample_id"]: row for row in rows}


DRAWN = ["--temperature", "0.9", "--top-k", "20", "--top-p", "0.95", "--out-seq-length", "8"]


def test_draws_are_the_same_in_any_batch_and_partition(work: Path, command: list[str]) -> None:
    whole = work / "whole.jsonl"
    assert run([*command, *DRAWN, "--seed", "7", "--output-path", str(whole)]) == 0
    expected = answers_of(whole)
    assert len(expected) == ITEMS
    # Some items differ by their id alone, and so do their draws.
    assert len({row["answer"] for row in expected.values()}) > ITEMS // 2
    parts = [
        ("small", ["--batch-size", "1"]),
        ("tokens", ["--batch-tokens", "60"]),
        ("a", ["--num-partitions", "2", "--partition-id", "0"]),
        ("b", ["--num-partitions", "2", "--partition-id", "1"]),
        ("c", ["--num-samples-per-partition", "5", "--partition-id", "2"]),
    ]
    made = {}
    for name, flags in parts:
        path = work / f"{name}.jsonl"
        assert run([*command, *DRAWN, "--seed", "7", "--output-path", str(path), *flags]) == 0
        made[name] = answers_of(path)
    assert made["small"] == made["tokens"] == made["a"] | made["b"] == expected
    assert list(made["c"]) == ["10", "11"]
    assert all(row == expected[name] for name, row in made["c"].items())
    other = work / "other.jsonl"
    assert run([*command, *DRAWN, "--seed", "8", "--output-path", str(other)]) == 0
    assert answers_of(other) != expected


def test_of_several_draws_one_is_given_whatever_the_batch(work: Path, command: list[str]) -> None:
    drawn = [*command, *DRAWN, "--samples", "5"]
    for name, flags in (("five", []), ("five-small", ["--batch-size", "2"]), ("five-tokens", ["--batch-tokens", "60"])):
        assert run([*drawn, "--output-path", str(work / f"{name}.jsonl"), *flags]) == 0
    five = answers_of(work / "five.jsonl")
    assert answers_of(work / "five-small.jsonl") == answers_of(work / "five-tokens.jsonl") == five
    # What is given is one of its draws, each of which hangs on the item's id and the draw's number alone.
    trained = open_trained(work / "model", template="chatml")
    items = find_task("ai2d").read(work / "test.json")
    sampling = SamplingConfig(max_new_tokens=8, temperature=0.9, top_k=20, top_p=0.95)
    for item in items[:4]:
        prompt = trained.prompter.prompt(item.question, [Image.open(work / "images" / str(item.images[0]))])
        draws = [
            answer_prompts(trained.model, trained.prompter, [prompt], sampling=sampling, keys=[f"{item.id}/{number}"])
            for number in range(5)
        ]
        assert five[item.id]["answer"] in [answer.text for (answer,) in draws]
    assert run([*command, *DRAWN, "--output-path", str(work / "five.jsonl")]) == 1


def test_what_is_rare_in_a_file_of_texts_decides(
    work: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The draw that is most like the others in words that the file has not; other texts ask for another file."""
    drawn = [*command, *DRAWN, "--samples", "5"]
    common, output = work / "common.txt", work / "rare.jsonl"
    common.write_text("the sky is blue\nit is red\n\n")
    assert run([*drawn, "--rarity", str(common), "--output-path", str(output)]) == 0
    rarity = Rarity.in_texts([["the", "sky", "is", "blue"], ["it", "is", "red"]])
    trained = open_trained(work / "model", template="chatml")
    items = find_task("ai2d").read(work / "test.json")
    sampling = SamplingConfig(max_new_tokens=8, temperature=0.9, top_k=20, top_p=0.95)
    for item in items[:4]:
        prompt = trained.prompter.prompt(item.question, [Image.open(work / "images" / str(item.images[0]))])
        keys = [f"{item.id}/{number}" for number in range(5)]
        draws = answer_prompts(trained.model, trained.prompter, [prompt] * 5, sampling=sampling, keys=keys)
        worth = agreement(caption_tokens([answer.text for answer in draws]), rarity=rarity)
        assert answers_of(output)[item.id]["answer"] == draws[worth.index(max(worth))].text
    common.write_text("the sky is grey\n")
    assert run([*drawn, "--rarity", str(common), "--output-path", str(output)]) == 1
    assert "rarity '" in capsys.readouterr().err
    common.write_text("\n")
    assert run([*drawn, "--rarity", str(common), "--output-path", str(work / "nothing.jsonl")]) == 1
    assert "common.txt: holds no text; one a line expected." in capsys.readouterr().err
    assert not list(work.glob("nothing.jsonl*"))  # a second run with another file begins anew


def test_what_was_done_as_json(work: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    output = str(work / "json.jsonl")
    words = [*command, "--top-p", "0.9", "--stop", "blue", "--stop", "is", "--output-path", output, "--json"]
    assert run([*words, "--limit", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["expected"], told["made"], told["kept"], told["failed"]) == (3, 3, 0, {})
    assert (told["task"], told["output"]) == ("ai2d", output)
    # Drawing without a temperature is at 1, as Megatron's is.
    assert {"temperature": 1.0, "top_p": 0.9, "top_k": None, "stop": ["blue", "is"]}.items() <= told["sampling"].items()
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 3
    for row in answers_of(Path(output)).values():
        assert "blue" not in row["answer"]
        assert "is" not in row["answer"]
    # Answers that were chosen in another way do not go into the same file.
    assert run([*command, "--output-path", output]) == 1
    assert "temperature 1.0, now 0.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--temperature", "0", "--top-p", "0.5"], "top_p 0.5 at temperature 0"),
        (["--top-p", "1.5"], "top_p 1.5"),
        (["--num-partitions", "2", "--partition-id", "2"], "partition 2 of 2"),
        (["--num-samples-per-partition", "3", "--num-partitions", "2", "--partition-id", "2"], "--partition-id 2 of 2"),
        (["--num-samples-per-partition", "-3"], "--num-samples-per-partition -3"),
        (["--batch-tokens", "0"], "batch_tokens 0"),
        (["--samples", "5"], "samples 5 with temperature 0"),
        (["--samples", "0", "--temperature", "1"], "samples 0"),
        (["--rarity", __file__], "with one sample, where nothing is compared"),
    ],
)
def test_flags_that_do_not_fit(
    work: Path, command: list[str], flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--output-path", str(work / "refused.jsonl"), *flags]) != 0
    assert told in capsys.readouterr().err
    assert not (work / "refused.jsonl").exists()


def test_megatrons_flags(work: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--temperature", "1.0", "--top_k", "1", "--top_p", "0.0", "--num-partitions", "0", "--num-frames", "1"]
    greedy, theirs = work / "greedy.jsonl", work / "theirs.jsonl"
    assert run([*command, "--output-path", str(greedy)]) == 0
    assert run([*command, "--output-path", str(theirs), *flags]) == 0
    assert answers_of(theirs) == answers_of(greedy)
    rows = json.loads((work / "test.json").read_text())
    rows[0]["image"] = "clip.mp4"
    (work / "video.json").write_text(json.dumps(rows))
    # A prefix is Megatron's, and a second process does not write while one does.
    words = [*command, "--gt-path", str(work / "video.json"), "--num-frames", "8", "--output-path", str(work / "v")]
    assert run(words) == 1
    assert "clip.mp4: there is no such image" in capsys.readouterr().err
    written = work / "v-ai2d-dprank=0-partition=0.jsonl"
    assert list(answers_of(written)) == [str(number) for number in range(1, ITEMS)]
    with (work / f"{written.name}.model.json").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(words) == 1
    assert "another process is writing to it" in capsys.readouterr().err


def test_an_answer_is_printed_as_it_comes(
    work: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = work / "asked.jsonl"
    assert run([*command, "--output-path", str(output), "--limit", "1", "--max-new-tokens", "9"]) == 0
    expected = answers_of(output)["0"]["answer"]
    capsys.readouterr()
    pieces: list[str] = []
    monkeypatch.setattr("click.echo", lambda text, nl=True: pieces.append(text + "\n" * nl))
    image, question = str(work / "images/0.png"), json.loads((work / "test.json").read_text())[0]["question"]
    words = ["ask", str(work / "model"), image, question, "--template", "chatml", "--max-new-tokens", "9"]
    assert run(words) == 0
    assert "".join(pieces) == f"{expected}\n"
    assert sum(bool(piece.strip()) for piece in pieces) > 1
