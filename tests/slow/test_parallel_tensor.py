"""Tensor parallelism over gloo: losses, gradient norms and parameters of one process, and checkpoints across meshes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slow.test_process_group import run_ranks

pytestmark = pytest.mark.slow

BODY = """
torch.set_num_threads(1)
from dataclasses import replace
from pathlib import Path
from tests.contract import tiny_llava as tiny
from omniloom.parallel.feed import GroupLoader
from omniloom.parallel.plan import ParallelConfig, lay_out, parallelize
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.loop import LoopConfig, Run, train
from omniloom.train.metrics import LogConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import PartConfig, freeze
from omniloom.train.schedule import ScheduleConfig
parts = {"vision_tower": PartConfig(train=TOWER)}
tiny.CONFIG = replace(tiny.CONFIG, language=replace(tiny.LANGUAGE, LANGUAGE))
model = tiny.tiny_llava()
freeze(model, parts)
config = ParallelConfig(PARALLEL)
ranks = lay_out(config, device="cpu")
model = parallelize(model, config, ranks)
own = tiny.TinyLoader(rank=ranks.data_rank, ranks=ranks.data_ranks) if ranks.loads else None
group = None if ranks.tensor_mesh is None else ranks.tensor_mesh.get_group()
run = Run(
    model=model, optimizer=make_optimizer(model, parts, OptimizerConfig(weight_decay=0.1)),
    loader=GroupLoader(own, group=group, device=torch.device("cpu")),
    checkpoints=Checkpoints(Path(folder), CheckpointConfig(every_steps=0, asynchronous=False)),
    loop=LoopConfig(steps=STEPS, micro_batches=4 // ranks.data_ranks),
    schedule=ScheduleConfig(peak=1e-3, decay="constant"),
    log=LogConfig(every_steps=100), folder=Path(folder), group=ranks.data, everyone=ranks.everyone,
)
train(run)
lines = [json.loads(line) for line in (Path(folder) / "steps.jsonl").read_text().splitlines()]
def whole(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
weights = {name: whole(parameter).detach().flatten().tolist() for name, parameter in model.named_parameters()}
(Path(folder) / f"weights-{rank}.json").write_text(json.dumps(weights))  # more than a pipe holds
print(json.dumps([(line["loss"], line["gradient_norm"], line["learned_tokens"]) for line in lines]))
"""


def trained(
    folder: Path, ranks: int, *, steps: int = 3, parallel: str = "", language: str = "", tower: bool = True
) -> Any:
    body = BODY.replace("STEPS", str(steps)).replace("PARALLEL", parallel)
    body = body.replace(", LANGUAGE)", f", {language})").replace("TOWER", str(tower))
    lines = run_ranks(ranks, body, folder)
    return [(told, json.loads((folder / f"weights-{rank}.json").read_text())) for rank, told in enumerate(lines)]


def agree(found: Any, expected: Any) -> None:
    """Lines within 1e-4, relative; parameters after steps of 1e-3 within 1e-4, absolute."""
    lines, weights = found
    for ours, theirs in zip(lines, expected[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert weights.keys() == expected[1].keys()
    for name, values in weights.items():
        assert values == pytest.approx(expected[1][name], abs=1e-4), name


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.mark.parametrize(
    ("ranks", "parallel"),
    [
        (2, "tensor=2"),
        (4, "tensor=2"),
        (4, "tensor=2, replicas=2"),
        (2, "tensor=2, recompute={'language_model': 1, 'vision_tower': 1}"),
    ],
    ids=["tp2", "tp2-fsdp2", "tp2-replicas2", "tp2-recompute"],
)
def test_tensor_parallel_ranks_train_as_one_process(tmp_path: Path, alone: Any, ranks: int, parallel: str) -> None:
    by_rank = trained(tmp_path, ranks, parallel=parallel)
    agree(by_rank[0], alone)
    # To the last bit: what each rank of a group holds whole (norms, tower, projector) does not drift apart.
    assert all(each == by_rank[0] for each in by_rank)


QWEN = "qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True, tied_head=True"


def test_biases_norms_of_heads_tied_words_and_a_frozen_tower(tmp_path: Path) -> None:
    expected = trained(tmp_path / "alone", 1, language=QWEN, tower=False)[0]
    for each in trained(tmp_path / "cut", 2, parallel="tensor=2", language=QWEN, tower=False):
        agree(each, expected)


@pytest.mark.parametrize(
    ("ranks", "parallel", "kv_heads"),
    [(2, "tensor=2, sequence=True", 1), (4, "tensor=4", 2)],
    ids=["one-head-of-two-ranks", "two-heads-of-four-ranks"],
)
def test_heads_of_keys_and_values_that_ranks_share(tmp_path: Path, ranks: int, parallel: str, kv_heads: int) -> None:
    """Qwen's biases and norms of heads with them, and the rotary positions."""
    language = f"num_kv_heads={kv_heads}, {QWEN}"
    expected = trained(tmp_path / "alone", 1, language=language)[0]
    for each in trained(tmp_path / "cut", ranks, parallel=parallel, language=language):
        agree(each, expected)


@pytest.mark.parametrize(
    ("first", "second"),
    [((2, "tensor=2"), (1, "")), ((1, ""), (2, "tensor=2")), ((4, "tensor=2"), (2, ""))],
    ids=["tp2-to-1", "1-to-tp2", "tp2-fsdp2-to-fsdp2"],
)
def test_a_run_goes_on_on_another_mesh(
    tmp_path: Path, alone: Any, first: tuple[int, str], second: tuple[int, str]
) -> None:
    trained(tmp_path, first[0], steps=2, parallel=first[1])
    agree(trained(tmp_path, second[0], parallel=second[1])[0], alone)


def test_ranks_that_share_heads_generate_what_one_does(tmp_path: Path) -> None:
    body = """
torch.set_num_threads(1)
from dataclasses import replace
from tests.contract import tiny_llava as tiny
from omniloom.generate.decoding import generate
from omniloom.generate.sampling import SamplingConfig
from omniloom.parallel.plan import ParallelConfig, lay_out, parallelize
tiny.CONFIG = replace(tiny.CONFIG, language=replace(tiny.LANGUAGE, num_kv_heads=1))
model = tiny.tiny_llava().eval()
prompts = [[1, 63, 63, 63, 63, 7], [5, 9, 2]]
images = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
def answers():
    made = generate(model, prompts, images=images, sampling=SamplingConfig(max_new_tokens=8))
    return [list(one.token_ids) for one in made]
alone = answers()
config = ParallelConfig(tensor=2)
model = parallelize(model, config, replace(lay_out(config, device="cpu"), data_mesh=None))
print(json.dumps([alone, answers()]))
"""
    for alone, shared in run_ranks(2, body, tmp_path):
        assert shared == alone
        assert len(alone[0]) == 8
