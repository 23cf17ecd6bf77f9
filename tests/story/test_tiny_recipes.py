"""The recipes that run anywhere, from a LLaVA JSON to answers: both stages, resumed, profiled, asked."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from shutil import copytree

import pytest
import torch
from PIL import Image

from omniloom.data.convert.llava import convert_llava
from omniloom.tools.main import run as omniloom
from omniloom.train.checkpoint import complete_checkpoints

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talks")
    entries = []
    for number in range(24):
        Image.new("RGB", (40 + number, 48), ("red", "blue")[number % 2]).save(folder / f"{number}.png")
        turns = [
            {"from": "human", "value": "<image>\nWhich colour?"},
            {"from": "gpt", "value": ("Red.", "Blue.")[number % 2]},
        ]
        entries.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    (folder / "talks.json").write_text(json.dumps(entries))
    convert_llava(folder / "talks.json", images=folder, out=folder / "shards")
    return folder / "shards"


def train(recipe: str, workspace: Path, data: Path, *settings: str) -> int:
    words = ["train", f"recipes/tiny/{recipe}.yaml", "--workspace", str(workspace)]
    given = (f"data.train={data}", f"data.validation={data}", "data.validation_split_part=train", *settings)
    return omniloom([*words, *(word for each in given for word in ("--set", each))])


def test_both_stages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    first, second = tmp_path / "runs/tiny-pretrain", tmp_path / "runs/tiny-sft"
    assert train("pretrain", tmp_path, data) == 0
    assert sorted(complete_checkpoints(first)) == [10, 20]

    # LOAD_ITER: a step by its number, and one that is not there.
    assert train("sft", tmp_path, data, "model.start_step=15") != 0
    assert "15 found" in (told := capsys.readouterr().err), told
    assert "complete checkpoints of the steps 10, 20" in told
    started = ("model.start_step=10", "profile.first_step=2", "profile.steps=2", "hang.after_seconds=120")
    assert train("sft", tmp_path, data, "loop.steps=12", *started) == 0
    assert train("sft", tmp_path, data, *started) == 0  # goes on to the recipe's end
    lines = [json.loads(line) for line in (second / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert 0.5 < lines[0]["fill"] <= 1
    assert lines[0]["samples"] > 4
    assert lines[0]["flops_per_second"] > 0
    assert {"validation_loss", "validation_tokens"} <= lines[9].keys()

    (trace,) = (second / "profile").glob("*.json.gz")
    assert trace.name == "steps-00000002-00000003.rank-00000.json.gz"
    with gzip.open(trace) as file:
        assert any("aten::" in event.get("name", "") for event in json.load(file)["traceEvents"])

    answers = [json.loads(line) for line in (second / "samples/step-00000020.jsonl").read_text().splitlines()]
    assert [row["expected"] for row in answers] == ["Red.", "Blue."]
    assert all("Which colour?" in row["prompt"] for row in answers)
    for row, colour in zip(answers, ((255, 0, 0), (0, 0, 255)), strict=True):
        pixels = Image.open(second / "samples" / row["picture"]).getpixel((28, 28))
        assert isinstance(pixels, tuple)
        assert max(abs(one - other) for one, other in zip(pixels, colour, strict=True)) <= 1
    page = (second / "samples/index.html").read_text()
    assert page.count("<section>") == 2
    assert "step 12" in page, "where a run ended before, it answered as well"


@pytest.mark.parametrize("turns", ["together", "apart"])
def test_losses_of_the_data_sets_of_a_mix(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: str
) -> None:
    monkeypatch.chdir(ROOT)
    weights = {"often": 3, "seldom": 1}
    sets = [{"weight": weight, "path": str(copytree(data, tmp_path / name))} for name, weight in weights.items()]
    mix = {"__module__": "megatron.energon", "__class__": "Metadataset", "splits": {"train": {"datasets": sets}}}
    (tmp_path / "mix.yaml").write_text(json.dumps(mix))
    given = (f"data.train={tmp_path / 'mix.yaml'}", f"data.turns={turns}", "data.num_workers=1", "loop.steps=6")
    alone = ("model.start=null", "model.fresh=[vision_tower, projector, language_model]", "evaluation.every_steps=0")
    assert train("sft", tmp_path, data, "evaluation.samples=0", *alone, *given) == 0
    lines = [json.loads(line) for line in (tmp_path / "runs/tiny-sft/steps.jsonl").read_text().splitlines()]
    for line in lines:
        tokens = {name: line.get(f"learned_tokens/{name}", 0) for name in ("often", "seldom")}
        assert sum(tokens.values()) == line["learned_tokens"]
        summed = sum(line[f"loss/{name}"] * number for name, number in tokens.items() if number)
        assert summed == pytest.approx(line["loss"] * line["learned_tokens"], rel=1e-5)
    often, seldom = (sum(line.get(f"learned_tokens/{name}", 0) for line in lines) for name in ("often", "seldom"))
    assert 2 < often / seldom < 4.5


def test_a_language_model_that_transformers_runs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)  # of the weights that it begins with
    monkeypatch.chdir(ROOT)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
    language = transformers.Olmo2Config(**sizes, vocab_size=320, intermediate_size=64, pad_token_id=0)
    transformers.Olmo2ForCausalLM(language).save_pretrained(tmp_path / "language")
    vision = transformers.SiglipVisionConfig(**sizes, intermediate_size=64, image_size=56, patch_size=14)
    transformers.SiglipVisionModel(vision).save_pretrained(tmp_path / "vision")
    model = tmp_path / "model"
    parts = ("--language-model", f"hf:{tmp_path / 'language'}", "--vision-model", str(tmp_path / "vision"))
    assert omniloom(["weights", "combine", *parts, "--out", str(model), "--image-token-id", "319"]) == 0

    settings = (f"model.folder={model}", "model.config=null", "model.fresh=[]", "schedule.peak=0.01")
    trained = ("parts.language_model.train=true", "loop.steps=12", "checkpoint.every_steps=6", "evaluation.samples=1")
    assert train("pretrain", tmp_path, data, *settings, *trained) == 0
    run = tmp_path / "runs/tiny-pretrain"
    losses = [json.loads(line)["loss"] for line in (run / "steps.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.8 * losses[0]
    capsys.readouterr()
    Image.new("RGB", (40, 48), "red").save(tmp_path / "red.png")
    assert omniloom(["ask", str(run), str(tmp_path / "red.png"), "Which colour?"]) == 0
    assert capsys.readouterr().out.endswith("\n")  # what a model says after twelve steps may be nothing

    assert omniloom(["weights", "convert", str(run), str(tmp_path / "out"), "--to", "hf"]) == 0
    opened, told = transformers.LlavaForConditionalGeneration.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(told.values())
    assert opened.config.text_config.model_type == "olmo2"
