"""A LLaVA with a language model that transformers runs, made on ``meta`` and cut by FSDP: the losses of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omniloom.conversion.combine import combine
from omniloom.conversion.published import open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.weights.filling import fill
from tests.slow.test_process_group import run_ranks
from tests.unit.hugging_face_pairs import random_model, transformers

pytestmark = pytest.mark.slow
SIZES = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
KINDS: dict[str, dict[str, Any]] = {
    "Olmo2": {**SIZES, "intermediate_size": 48, "pad_token_id": 0},
    "StableLm": {**SIZES, "intermediate_size": 48, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "OPT": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0},
}
BODY = """
torch.set_num_threads(1)
from pathlib import Path
from tests.contract.tiny_llava import TinyLoader
from omniloom.conversion.published import open_published
from omniloom.conversion.loading import load_weights
from omniloom.model.build import build
from omniloom.parallel.plan import ParallelConfig, gather_each_once, lay_out, parallelize
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.loop import LoopConfig, Run, train
from omniloom.train.metrics import LogConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import freeze
from omniloom.train.schedule import ScheduleConfig
published = open_published(Path(folder) / "llava")
config = ParallelConfig(recompute={"language_model": 1})
model = build(published.config, device="meta")
freeze(model, {})
model = parallelize(model, config, lay_out(config, device="cpu")).to_empty(device="cpu")
load_weights(model, published.source)
gather_each_once(model)
own = Path(folder) / f"of-{world}"
train(Run(
    model=model, optimizer=make_optimizer(model, {}, OptimizerConfig()), loader=TinyLoader(rank=rank, ranks=world),
    checkpoints=Checkpoints(own, CheckpointConfig(every_steps=0)), loop=LoopConfig(steps=4, micro_batches=2 // world),
    schedule=ScheduleConfig(peak=1e-2, decay="constant"), log=LogConfig(every_steps=100), folder=own,
    group=dist.group.WORLD if world > 1 else None,
))
lines = [json.loads(line) for line in (own / "steps.jsonl").read_text().splitlines()]
held = sum(one.to_local().numel() for one in model.parameters() if hasattr(one, "to_local"))
print(json.dumps([[(line["loss"], line["gradient_norm"]) for line in lines], held]))
"""


@pytest.mark.parametrize("name", KINDS)
def test_two_ranks_give_the_losses_of_one(tmp_path: Path, name: str) -> None:
    config = getattr(transformers, f"{name}Config")(**KINDS[name])
    model = random_model(config, getattr(transformers, f"{name}ForCausalLM"), deviation=0.05)
    model.save_pretrained(tmp_path / "language")
    vision = transformers.SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4
    )
    random_model(vision, transformers.SiglipVisionModel).save_pretrained(tmp_path / "vision")
    language, tower = open_published(Path(f"hf:{tmp_path / 'language'}")), open_published(tmp_path / "vision")
    target = plan_target(combine(language, tower, image_token_id=63), Wanted(to="omniloom"))
    fill(target.plan, target.source, tmp_path / "llava")

    ((alone, _),) = run_ranks(1, BODY, tmp_path)
    ranks = run_ranks(2, BODY, tmp_path)
    assert len(alone) == 4
    for found, of_one in zip(ranks[0][0], alone, strict=True):
        assert found == pytest.approx(of_one, rel=1e-4)
    assert len({loss for loss, _ in alone}) == 4
    assert all(norm > 0 for _, norm in alone)
    held = [one for _, one in ranks]
    numbers = sum(p.numel() for p in model.parameters())
    assert numbers < sum(held)
    assert max(held) < 0.6 * sum(held)
