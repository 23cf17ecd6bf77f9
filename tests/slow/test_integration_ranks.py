"""Lightning and Accelerate on real process groups: checkpoints of some ranks go on exactly on others."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]

LIGHTNING = """
import json, logging, os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
from tests.contract.test_lightning import Model, SaveAt, Trainer, module
folder, steps, saved, resume, packed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
model = Model()
world = int(os.environ["WORLD_SIZE"])
callbacks = [SaveAt(folder / "checkpoint.ckpt", saved, "batch end")] if saved else []
trainer = Trainer(accelerator="cpu", devices=world, strategy="ddp", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks, max_steps=steps)
data = module(folder / "rows.jsonl", packed=packed == "packed", train={"virtual_epoch_length": 4} )
trainer.fit(model, datamodule=data, ckpt_path=resume or None, weights_only=True)
print(json.dumps([names for names, _ in model.seen]), flush=True)
os._exit(0)
"""

MESH = """
import json, logging, os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
from lightning.pytorch.strategies import ModelParallelStrategy
from tests.contract.test_lightning import Model, Trainer, module
class Sharded(Model):
    def configure_model(self):
        pass
model, strategy = Sharded(), ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2)
trainer = Trainer(accelerator="cpu", devices=4, strategy=strategy, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, max_steps=4)
data = module(Path(sys.argv[1]) / "rows.jsonl")
trainer.fit(model, datamodule=data)
states = data.state_dict().get("omniloom_states", [])
print(json.dumps([[names for names, _ in model.seen], [state["rank"] for state in states]]), flush=True)
os._exit(0)
"""

ACCELERATE = """
import json, os, sys
from itertools import islice
from pathlib import Path
from accelerate import Accelerator
from omniloom.integrations.accelerate import prepare_loader
from tests.contract.numbers_leaf import numbers
folder, steps, saved, resume, packed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
accelerator = Accelerator(cpu=True)
loader = prepare_loader(accelerator, numbers(rank=None, world_size=None, packed=packed == "packed"))
if resume:
    accelerator.load_state(resume)
seen = []
for batch in islice(loader, steps):
    seen.append(batch["names"])
    if len(seen) == saved:
        accelerator.save_state(str(folder / "saved"))
print(json.dumps(seen), flush=True)
accelerator.wait_for_everyone()
os._exit(0)
"""


def run(world: int, program: str, *arguments: object) -> list[Any]:
    """What each rank of a job prints last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **settings, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    results = []
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=600)
            assert rank.returncode == 0, err
            results.append(json.loads(out.strip().splitlines()[-1]))
    finally:
        for rank in ranks:
            rank.kill()
    return results


def job(by_rank: list[Any]) -> list[Any]:
    return [batch for step in zip(*by_rank, strict=True) for batch in step]


@pytest.mark.parametrize("packed", ["", "packed"])
def test_lightning_goes_on_with_other_ranks(packed: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"row": {row}}}\n' for row in range(40)))
    whole = job(run(2, LIGHTNING, tmp_path, 8, 2, "", packed))  # 8 steps of two ranks, saved after two
    checkpoint = tmp_path / "checkpoint.ckpt"
    assert job(run(2, LIGHTNING, tmp_path, 8, 0, checkpoint, packed)) == whole[4:]
    # Passes are of four batches a rank: four ranks go on where two stood, at another place of a pass.
    assert job(run(4, LIGHTNING, tmp_path, 4, 0, checkpoint, packed))[:8] == whole[4:12]


def test_tensor_parallel_ranks_of_lightning_get_the_same_batches(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"row": {row}}}\n' for row in range(40)))
    seen, ranks = zip(*run(4, MESH, tmp_path), strict=True)
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert ranks == ([0, 1], [0, 1], [], [])  # the first data-parallel rank of each column gathers


@pytest.mark.parametrize("packed", ["", "packed"])
def test_accelerate_goes_on_with_other_ranks(packed: str, tmp_path: Path) -> None:
    whole = job(run(2, ACCELERATE, tmp_path, 12, 4, "", packed))
    for world in (1, 2, 4):
        assert job(run(world, ACCELERATE, tmp_path, 16 // world, 0, tmp_path / "saved", packed)) == whole[8:]
