"""What a checkpoint costs a training: the time that it cannot go on, written at once or in the background."""

import shutil
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch
from meter import arguments, report

from omniloom.model.attention import AttendPacked
from omniloom.model.build import build
from omniloom.model.documents import Documents
from omniloom.model.families import read_config
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.optimizer import OptimizerConfig, make_optimizer, set_learning_rate

SAVES, STEPS_BETWEEN = 3, 4
options = arguments("background", "layers")
warnings.filterwarnings("ignore", message="torch.distributed is disabled")
torch.set_num_threads(1)
torch.manual_seed(0)
sizes = {"vocab_size": 8192, "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}
model = build(
    read_config({"model_type": "llama", "num_hidden_layers": options.layers, "num_key_value_heads": 12, **sizes})
)
optimizer = make_optimizer(model, {}, OptimizerConfig())
set_learning_rate(optimizer, 1e-4)
ids = torch.randint(0, 8192, (64,))


def step() -> None:
    stream = model(model.embed(ids), AttendPacked(Documents.of_lengths([64]), torch.device("cpu")))
    model.logits(stream).logsumexp(-1).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=Path(__file__).resolve().parents[1] / "data"))
try:
    checkpoints = Checkpoints(folder, CheckpointConfig(keep_last=1, asynchronous=bool(options.background)))
    step()
    blocked, steps = [], []
    for number in range(1, SAVES + 1):
        started = time.perf_counter()
        checkpoints.save(number, model, optimizer, trainer={}, loader={})
        blocked.append(time.perf_counter() - started)
        for _ in range(STEPS_BETWEEN):
            started = time.perf_counter()
            step()
            steps.append(time.perf_counter() - started)
    started = time.perf_counter()
    checkpoints.finish()
    waited = time.perf_counter() - started
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
finally:
    shutil.rmtree(folder, ignore_errors=True)
report(blocked_seconds=median(blocked), step_seconds=median(steps), finish_seconds=waited, written_mb=written / 1e6)
