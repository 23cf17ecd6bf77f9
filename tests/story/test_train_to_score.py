"""From pictures to a score, by the command line alone: convert, train, stop, go on, generate, evaluate, ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.families import write_config
from omniloom.tools.main import run

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 60, 220)}
WORDS = ("what", "colour", "is", "it", "?", "user", "assistant", *COLOURS)
SPECIAL = ("<|im_start|>", "<|im_end|>", "<image>", "<pad>", "<unk>")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures, a data set made of them, a model without weights, and a recipe."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("work")
    (folder / "images").mkdir()
    rows = []
    for number in range(30):
        colour = list(COLOURS)[number % 3]
        Image.new("RGB", (24, 16), COLOURS[colour]).save(folder / f"images/{number}.png")
        talk = [{"from": "human", "value": "<image>\nwhat colour is it?"}, {"from": "gpt", "value": colour}]
        rows.append({"id": str(number), "image": f"{number}.png", "conversations": talk})
    (folder / "train.json").write_text(json.dumps(rows))
    truth = [
        {"question_id": n, "image": f"{n}.png", "question": "what colour is it?", "answer": list(COLOURS)[n % 3]}
        for n in range(9)
    ]
    (folder / "test.json").write_text(json.dumps(truth))
    _model_folder(folder / "base")
    recipe = f"""
folder: {folder}/run
model: {{folder: {folder}/base, fresh: [vision_tower, projector, language_model]}}
data: {{train: {folder}/shards, template: chatml, layout: squash, max_tokens: 64, pack_tokens: 128,
  packing_buffer_size: 24, num_workers: 0}}
loop: {{steps: 40}}
schedule: {{peak: 5e-3, warmup_steps: 5}}
checkpoint: {{every_steps: 0, asynchronous: false}}
log: {{every_steps: 100}}
"""
    (folder / "sft.yaml").write_text(recipe)
    arguments = ["--images", str(folder / "images"), "--out", str(folder / "shards")]
    assert run(["convert", "llava", str(folder / "train.json"), *arguments]) == 0
    return folder


def _model_folder(folder: Path) -> None:
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate((*SPECIAL, *WORDS))}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    config = LlavaConfig(
        language=DecoderConfig(
            family="llama", vocab_size=32, dim=32, num_layers=2, num_heads=4, num_kv_heads=4, head_dim=8, mlp_dim=64
        ),
        vision=VisionConfig(
            family="clip", image_size=16, patch_size=8, dim=32, num_layers=2, num_heads=4, mlp_dim=64, position_rows=2,
            class_tokens=1, class_positions=1, pre_norm=True, post_norm=True, patch_bias=False, norm_eps=1e-5,
        ),
        projector=ProjectorConfig(input_dim=32, output_dim=32, hidden_dims=(32,)),
        image_token_id=2,
        feature_layers=(-1,),
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(write_config(config)))


def test_from_pictures_to_a_score(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, images, truth = (str(work / name) for name in ("sft.yaml", "images", "test.json"))
    assert run(["train", recipe, "--dry-run"]) == 0
    assert "packs are" in capsys.readouterr().out
    assert not (work / "run").exists()

    # Stopped after its first step, and again after its second; then to the end.
    for _ in range(2):
        assert run(["train", recipe, "--set", "loop.limit_seconds=1e-6"]) == 3
    assert run(["train", recipe]) == 0
    whole = ["--set", f"folder={work}/whole"]
    assert run(["train", recipe, *whole]) == 0
    steps = [(work / name / "steps.jsonl").read_text().splitlines() for name in ("run", "whole")]
    losses = [[json.loads(line)["loss"] for line in each] for each in steps]
    assert losses[0] == losses[1]  # to the last bit
    assert losses[0][-1] < 0.2 * losses[0][0]

    answers = str(work / "answers.jsonl")
    generate = ["generate", "--model", str(work / "run"), "--task", "ai2d", "--input-image-path", images]
    generate += ["--gt-path", truth, "--output-path", answers, "--max-new-tokens", "4"]
    assert run([*generate, "--batch-size", "2", "--limit", "4"]) == 0
    with Path(answers).open("a") as file:
        file.write('{"sample_id": "4", "ans')  # a kill in the middle of a line
    assert run([*generate, "--batch-size", "5"]) == 0
    assert "5 answers made, 4 were there, 0 failed" in capsys.readouterr().err
    assert run(["evaluate", "ai2d", "--answers", answers, "--ground-truth", truth, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["scores"]["accuracy"], result["complete"]) == (100, True)

    assert (
        run(["ask", str(work / "run"), str(work / "images/2.png"), "what colour is it?", "--max-new-tokens", "4"]) == 0
    )
    assert capsys.readouterr().out == "blue\n"


def test_answers_of_another_model_and_missing_images(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, answers = str(work / "sft.yaml"), str(work / "other.jsonl")
    assert run(["train", recipe, "--set", f"folder={work}/short", "--set", "loop.steps=1"]) == 0
    rows = json.loads((work / "test.json").read_text())[:2]
    rows[1]["image"] = "../train.json"
    (work / "dirty.json").write_text(json.dumps(rows))
    generate = ["generate", "--task", "ai2d", "--input-image-path", str(work / "images"), "--output-path", answers]
    generate += ["--gt-path", str(work / "dirty.json"), "--max-new-tokens", "2", "--model"]
    assert run([*generate, str(work / "short")]) == 1
    assert "there is no such image" in capsys.readouterr().err
    (work / "short/step-00000001").rename(work / "short/step-00000002")
    # A model is another when its weights are, whatever its folder is called.
    assert run([*generate, str(work / "short")]) == 1
    assert "0 answers made, 1 were there, 1 failed" in capsys.readouterr().err
    assert run(["train", recipe, "--set", f"folder={work}/other", "--set", "loop.steps=2"]) == 0
    assert run([*generate, str(work / "other")]) == 1
    assert "holds answers of another run: model" in capsys.readouterr().err
    assert run(["ask", str(work / "shards"), str(work / "images/0.png"), "?"]) == 1
    assert "config.json" in capsys.readouterr().err


def test_benchmarks_are_scored_while_training(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Every ten steps and at the end, on the first items; at the end as `omniloom evaluate` scores the run."""
    recipe = (work / "sft.yaml").read_text().replace(f"folder: {work}/run", f"folder: {tmp_path}/run")
    truth = work / "with_a_lost_one.json"
    rows = json.loads((work / "test.json").read_text())
    truth.write_text(json.dumps([*rows[:7], rows[7] | {"image": "lost.png"}, rows[8]]))
    images = f"images: {work}/images"
    benchmarks = f"{{ai2d: {{truth: {work}/test.json, {images}, items: 6, new_tokens: 3}}, inference: {{truth: {truth}"
    evaluation = f"evaluation: {{benchmark_every_steps: 10, benchmarks: {benchmarks}, {images}, new_tokens: 3}}}}}}"
    (tmp_path / "scored.yaml").write_text(f"{recipe}{evaluation}\n")
    assert run(["train", str(tmp_path / "scored.yaml"), "--set", "loop.steps=25"]) == 0
    steps = [json.loads(line) for line in (tmp_path / "run/steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps if "score/ai2d" in row] == [10, 20, 25]

    asked = ["evaluate", "ai2d", "--model", str(tmp_path / "run"), "--max-new-tokens", "3", "--limit", "6", "--json"]
    asked += ["--input-image-path", str(work / "images"), "--answers-to", str(tmp_path / "a.jsonl")]
    capsys.readouterr()
    assert run([*asked, "--ground-truth", str(work / "test.json")]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert steps[-1]["score/ai2d"] == pytest.approx(expected["scores"]["accuracy"])
    result = json.loads((tmp_path / "run/benchmarks/ai2d/step-00000025.json").read_text())
    same = ("scores", "counts", "prompts_sha256", "limit", "metric_version")
    assert {name: result[name] for name in same} == {name: expected[name] for name in same}
    answers = [json.loads(line)["answer"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["text"] for row in result["answered_items"]] == answers

    # An image that is lost is one item without an answer, and the run goes on.
    lost = json.loads((tmp_path / "run/benchmarks/inference/step-00000025.json").read_text())
    assert (lost["counts"]["missing"], lost["complete"]) == (1, False)
    assert "item 7 is left out" in caplog.text
    # What cannot be read or scored is told before the first step.
    (work / "secret.json").write_text(json.dumps([row | {"answer": ""} for row in rows]))
    for wrong, message in (
        (f"truth: {work}/none.json", "none.json: there is no such file"),
        (f"truth: {work}/test.json, variant: megatron", "variant 'megatron' found; one of published"),
        (f"truth: {work}/secret.json", "nothing tells what is right for"),
    ):
        setting = f"evaluation.benchmarks={{ai2d: {{{wrong}, {images}}}}}"
        assert run(["train", str(tmp_path / "scored.yaml"), "--set", setting, "--set", f"folder={tmp_path}/other"]) == 1
        assert message in capsys.readouterr().err
