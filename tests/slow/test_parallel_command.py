"""Recipes on two ranks by the command line: matrices shared, packs balanced, LoRA, and what goes on from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import torch

from omniloom.tools.main import run
from tests.story.test_train_to_score import work  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


def train(recipe: Path, folder: Path, *settings: str, ranks: int) -> list[tuple[float, float, int]]:
    """Losses, norms and learned tokens of all steps."""
    lines = logged(recipe, folder, *settings, ranks=ranks)
    return [(line["loss"], line["gradient_norm"], line["learned_tokens"]) for line in lines]


def logged(recipe: Path, folder: Path, *settings: str, ranks: int) -> list[dict[str, float]]:
    """Lines of a run, in which later settings take the place of earlier ones."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    flags = [f"folder={folder}", "loop.micro_batches=1", "data.lanes=12", *settings]
    arguments = [part for flag in flags for part in ("--set", flag)]
    done = subprocess.run(
        [sys.executable, *command, "-m", "omniloom", "train", str(recipe), *arguments],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_two_ranks_share_matrices_and_one_goes_on(work: Path, tmp_path: Path) -> None:  # noqa: F811
    recipe = work / "sft.yaml"
    expected = train(recipe, tmp_path / "alone", "loop.steps=6", ranks=1)
    cut = ["parallel.tensor=2", "parallel.recompute={language_model: 1}", "data.num_workers=1"]
    found = train(recipe, tmp_path / "cut", "loop.steps=3", *cut, ranks=2)
    gone_on = train(recipe, tmp_path / "cut", "loop.steps=6", ranks=1)
    assert gone_on[:3] == found
    for ours, theirs in zip(gone_on, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_ranks_that_do_not_load_tell_the_losses_of_data_sets_too(work: Path, tmp_path: Path) -> None:  # noqa: F811
    sets = [{"weight": 1, "path": str(copytree(work / "shards", tmp_path / name))} for name in ("one", "other")]
    mix = {"__module__": "megatron.energon", "__class__": "Metadataset", "splits": {"train": {"datasets": sets}}}
    (tmp_path / "mix.yaml").write_text(json.dumps(mix))
    names = [f"{what}/{name}" for what in ("loss", "learned_tokens") for name in ("one", "other")]
    given = (f"data.train={tmp_path / 'mix.yaml'}", "loop.steps=3", "loop.micro_batches=2")
    expected = logged(work / "sft.yaml", tmp_path / "alone", *given, ranks=1)
    for mesh in ("tensor", "pipeline", "context"):
        found = logged(work / "sft.yaml", tmp_path / mesh, *given, f"parallel.{mesh}=2", ranks=2)
        for ours, theirs in zip(found, expected, strict=True):
            assert {name: ours[name] for name in names} == pytest.approx({n: theirs[n] for n in names}, rel=1e-4), mesh


def test_ranks_exchange_packs_and_learn_the_same(work: Path, tmp_path: Path) -> None:  # noqa: F811
    """Answers of one to forty words, one to a micro-batch: the costly ones are dealt anew."""
    rows = json.loads((work / "train.json").read_text())
    for number, row in enumerate(rows):
        words = 40 if number % 5 == 0 else 1 + number % 4
        row["conversations"][1]["value"] = " ".join([row["conversations"][1]["value"]] * words)
    (tmp_path / "long.json").write_text(json.dumps(rows))
    shards = tmp_path / "shards"
    assert (
        run(["convert", "llava", str(tmp_path / "long.json"), "--images", str(work / "images"), "--out", str(shards)])
        == 0
    )
    settings = [f"data.train={shards}", "data.pack_tokens=null", "loop.micro_batches=4", "loop.steps=4"]
    by_balance = {
        balance: logged(work / "sft.yaml", tmp_path / balance, *settings, f"parallel.balance={balance}", ranks=2)
        for balance in ("none", "steps", "ranks")
    }
    for balance, lines in by_balance.items():
        for ours, theirs in zip(lines, by_balance["none"], strict=True):
            assert ours["learned_tokens"] == theirs["learned_tokens"], balance
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
            assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-4)
    assert "imbalance_before" not in by_balance["none"][0]
    before, in_order, dealt = (
        [line[name] for line in by_balance[balance]]
        for balance, name in (("ranks", "imbalance_before"), ("steps", "imbalance_after"), ("ranks", "imbalance_after"))
    )
    assert sum(dealt) <= sum(in_order) < sum(before)
    assert all(after <= first for after, first in zip(dealt, before, strict=True))
    assert sum(line["exchanged_bytes"] for line in by_balance["ranks"]) > 0
    assert not any(line["exchanged_bytes"] for line in by_balance["steps"])


def test_lora_is_learned_on_two_ranks_and_leaves_as_an_adapter(work: Path, tmp_path: Path) -> None:  # noqa: F811
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    recipe, base, folder = work / "sft.yaml", tmp_path / "base", tmp_path / "lora"
    train(recipe, tmp_path / "first", "loop.steps=2", ranks=1)
    assert run(["weights", "convert", str(tmp_path / "first"), str(base), "--to", "hf"]) == 0
    lora = [
        f"model={{folder: {base}, tokenizer: {work / 'base'}}}",
        "parts.vision_tower={train: false}",
        "parts.language_model={lora: {rank: 4, alpha: 8, matrices: [q_proj, up_proj]}}",
    ]
    expected = train(recipe, tmp_path / "alone", *lora, "loop.steps=4", ranks=1)
    found = train(recipe, folder, *lora, "loop.steps=2", "parallel.tensor=2", ranks=2)
    found = train(recipe, folder, *lora, "loop.steps=4", "parallel.gradients=sharded", "data.lanes=12", ranks=1)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)

    # A further run starts from the products, on one process and on ranks that share matrices.
    start = ["loop.steps=1", f"model={{folder: {base}, tokenizer: {work / 'base'}, start: {folder}}}"]
    alone = train(recipe, tmp_path / "next", *start, ranks=1)
    cut = train(recipe, tmp_path / "cut", *start, "parallel.tensor=2", "parallel.sequence=true", ranks=2)
    assert cut[0] == pytest.approx(alone[0], rel=1e-4)

    assert run(["weights", "adapter", str(folder), str(tmp_path / "adapter")]) == 0
    assert run(["weights", "convert", str(folder), str(tmp_path / "merged"), "--to", "hf"]) == 0
    ids, pixels = torch.tensor([[0, 2, 2, 2, 2, 6, 7, 8]]), torch.randn(1, 3, 16, 16)
    opened = transformers.LlavaForConditionalGeneration.from_pretrained
    models = [peft.PeftModel.from_pretrained(opened(base), tmp_path / "adapter"), opened(tmp_path / "merged")]
    with torch.no_grad():
        said, merged = (model(input_ids=ids, pixel_values=pixels).logits for model in models)
    torch.testing.assert_close(said, merged, rtol=1e-4, atol=1e-4)
