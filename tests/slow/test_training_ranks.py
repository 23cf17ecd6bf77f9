"""Training on several ranks over gloo: the same losses as one process, on every mesh, and across a change of mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slow.test_process_group import run_ranks

pytestmark = pytest.mark.slow

BODY = """
torch.set_num_threads(1)
from pathlib import Path
from tests.contract.tiny_llava import TinyLoader, tiny_llava
from omniloom.parallel.data import DataParallelConfig, data_mesh, shard
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.loop import LoopConfig, Run, train
from omniloom.train.metrics import LogConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import PartConfig, freeze
from omniloom.train.schedule import ScheduleConfig
parts = {"vision_tower": PartConfig(train=False)}
model = tiny_llava()
freeze(model, parts)
settings = DataParallelConfig(replicas=REPLICAS)
if world > 1:
    model = shard(model, data_mesh(world, settings, device="cpu"), settings)
run = Run(
    model=model, optimizer=make_optimizer(model, parts, OptimizerConfig(weight_decay=0.1)),
    loader=TinyLoader(rank=rank, ranks=world),
    checkpoints=Checkpoints(Path(folder), CheckpointConfig(every_steps=0, asynchronous=ASYNCHRONOUS)),
    loop=LoopConfig(steps=STEPS, micro_batches=4 // world), schedule=ScheduleConfig(peak=1e-2, decay="constant"),
    log=LogConfig(every_steps=100), folder=Path(folder), group=dist.group.WORLD if world > 1 else None,
)
train(run)
lines = [json.loads(line) for line in (Path(folder) / "steps.jsonl").read_text().splitlines()]
print(json.dumps([(line["loss"], line["gradient_norm"]) for line in lines]))
"""


def trained(folder: Path, ranks: int, *, steps: int, replicas: int = 1, asynchronous: bool = False) -> Any:
    body = BODY.replace("REPLICAS", str(replicas)).replace("STEPS", str(steps))
    return run_ranks(ranks, body.replace("ASYNCHRONOUS", str(asynchronous)), folder)[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("alone"), 1, steps=5)


@pytest.mark.parametrize(("ranks", "replicas"), [(2, 1), (2, 2), (4, 2)], ids=["fsdp2", "replicas2", "hsdp2x2"])
def test_ranks_give_the_losses_of_one_process(tmp_path: Path, alone: Any, ranks: int, replicas: int) -> None:
    for ours, expected in zip(trained(tmp_path, ranks, steps=5, replicas=replicas), alone, strict=True):
        assert ours == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_goes_on_on_two_four_and_one_ranks(tmp_path: Path, alone: Any, asynchronous: bool) -> None:
    for steps, ranks in ((2, 2), (4, 4), (5, 1)):
        lines = trained(tmp_path, ranks, steps=steps, asynchronous=asynchronous)
    for ours, expected in zip(lines, alone, strict=True):
        assert ours == pytest.approx(expected, rel=1e-4)
