"""Several runs of a tiny model on the ranks of one job, each on a mesh of its own.

One process imports, and each rank is a fork of it: on few cores imports take longer than what is tested.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.distributed.fsdp import FSDPModule

from omniloom.conversion.loading import fill_parameter, load_weights
from omniloom.model.build import build, parameter_shapes
from omniloom.model.dropout import DropoutConfig, add_dropout
from omniloom.model.lora import LoraConfig, add_lora, fresh_factor, is_lora
from omniloom.parallel.balance import BalancedLoader
from omniloom.parallel.feed import GroupLoader
from omniloom.parallel.plan import ParallelConfig, gather_each_once, lay_out, parallelize, pipeline_of
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.loop import LoopConfig, Run, train
from omniloom.train.metrics import LogConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import PartConfig, dropout_of, freeze, lora_of
from omniloom.train.schedule import ScheduleConfig
from omniloom.train.step import mean_loss
from omniloom.weights.changes import Range
from omniloom.weights.source import InMemory
from tests.contract import tiny_llava as tiny

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
GLOBAL_BATCH, DOCUMENTS = 8, 5
SET_NAMES = tuple(f"set-{number}" for number in range(tiny.SETS))
_TOLD = (
    "loss",
    "gradient_norm",
    "learned_tokens",
    *(f"{what}/{name}" for what in ("loss", "learned_tokens") for name in SET_NAMES),
)


def run_jobs(ranks: int, runs: Sequence[Mapping[str, Any]], folder: Path, *, timeout_seconds: int = 600) -> list[Any]:
    """Each run's outcome, as its first rank tells it; see `one_run` for what a run is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runs.json").write_text(json.dumps(list(runs)))
    command = [sys.executable, "-m", "tests.slow.rank_runs", str(ranks), str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
        try:
            _, told = job.communicate(timeout=timeout_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)  # ranks that wait for one that is gone
    assert job.returncode == 0, told[-6000:]
    outcomes: list[Any] = json.loads((folder / "told-0.json").read_text())
    return outcomes


def one_run(
    folder: Path,
    *,
    parallel: Mapping[str, Any],
    language: Mapping[str, Any],
    parts: Mapping[str, Mapping[str, Any]],
    steps: int = 3,
    validate: bool = False,
    features: bool = False,
) -> Mapping[str, Any]:
    """Train the tiny model on a global batch of eight packs a step.

    Args:
        folder: of the run; a run that was begun there on another mesh goes on.
        parallel: settings of `ParallelConfig`.
        language: changes of the tiny language model.
        parts: settings of `PartConfig` by part.
        steps: of the run.
        validate: also take the loss of held-out batches, of another number on each rank, at the end.
        features: images come as what a tower has made of them.
    """
    torch.manual_seed(0)
    tiny.CONFIG = replace(tiny.CONFIG, language=replace(tiny.LANGUAGE, **language))
    settings = {name: part_config(values) for name, values in parts.items()}
    config = ParallelConfig(**parallel)
    ranks = lay_out(config, device="cpu")
    model = build(tiny.CONFIG, device="meta")
    add_lora(model, lora_of(settings))
    freeze(model, settings)
    add_dropout(model, dropout_of(settings))
    model = parallelize(model, config, ranks).to_empty(device="cpu")
    read = fill(model)
    kind: dict[str, Any] = {"documents": DOCUMENTS, "features": features}
    own: Any = tiny.TinyLoader(rank=ranks.data_rank, ranks=ranks.data_ranks, **kind) if ranks.loads else None
    if own is not None and ranks.data is not None and config.balance == "ranks":
        packs = GLOBAL_BATCH // ranks.data_ranks
        own = BalancedLoader(own, micro_batches=packs, cost=cost_of, group=ranks.data, across_ranks=True)
    run = Run(
        model=model,
        optimizer=make_optimizer(model, settings, OptimizerConfig(weight_decay=0.1)),
        loader=GroupLoader(own, group=ranks.model, device=CPU),
        checkpoints=Checkpoints(folder, CheckpointConfig(every_steps=0, asynchronous=False)),
        loop=LoopConfig(steps=steps, micro_batches=GLOBAL_BATCH // ranks.data_ranks),
        schedule=ScheduleConfig(peak=1e-3, decay="constant"),
        log=LogConfig(every_steps=100),
        folder=folder,
        group=ranks.data,
        everyone=ranks.everyone,
        pipeline=pipeline_of(model),
        data_sets=SET_NAMES,
    )  # fmt: skip
    kept = note_kept_gradients(model)
    train(run)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    told: dict[str, Any] = {"steps": [[line[name] for name in _TOLD] for line in lines]}
    if validate:
        number, first = GLOBAL_BATCH // ranks.data_ranks, 100 + ranks.data_rank
        batches = [
            PackedMicroBatch.of(tiny.packed_batch(first + index * ranks.data_ranks, **kind), CPU)
            for index in range(number)
        ]
        told["validation"] = mean_loss(model, batches, group=ranks.data)
    told["read"], told["kept"] = read, max(kept, default=0)
    told["balance"] = dict(getattr(own, "told", {}))
    told["held"] = {name: getattr(each, "_local_tensor", each).numel() for name, each in model.named_parameters()}
    told["weights"] = {name: whole(value) for name, value in model.named_parameters()}
    return told


def note_kept_gradients(model: torch.nn.Module) -> list[int]:
    """Numbers of gradients that this rank keeps when a forward pass begins: those of the micro-batches before."""
    kept: list[int] = []
    parameters = [
        parameter
        for module in model.modules()
        if isinstance(module, FSDPModule)
        for group in module._get_fsdp_state()._fsdp_param_groups  # what is whole has no public name
        for parameter in group.fsdp_params
    ]

    def note(*_: Any) -> None:
        whole = [each._unsharded_param.grad for each in parameters if hasattr(each, "_unsharded_param")]
        own = [each.sharded_param.grad for each in parameters]
        kept.append(sum(each.numel() for each in whole if each is not None))
        kept[-1] += sum(each.to_local().numel() for each in own if each is not None)

    if parameters and hasattr(model, "vision_tower"):
        model.vision_tower.register_forward_pre_hook(note)
    return kept


def cost_of(batch: Any) -> float:
    """Of a pack: packs of odd numbers have more images, and with two ranks all of these are one rank's."""
    return float((batch.document_lengths**2).sum()) + 1000 * len(batch.images)


def part_config(values: Mapping[str, Any]) -> PartConfig:
    """Settings of a part, of plain values."""
    kinds = {"lora": LoraConfig, "dropout": DropoutConfig}
    return PartConfig(**{name: kinds[name](**value) if name in kinds else value for name, value in values.items()})


class Counted(InMemory):
    """Tensors of which is counted how many numbers were read."""

    read_numbers = 0

    def read(self, name: str) -> torch.Tensor:
        self.read_numbers += self.info(name).size_bytes // 4
        return super().read(name)

    def read_range(self, name: str, wanted: Range) -> torch.Tensor:
        part = super().read(name).narrow(wanted.axis, wanted.start, wanted.stop - wanted.start)
        self.read_numbers += part.numel()
        return part


def fill(model: torch.nn.Module) -> int:
    """Give a model that is laid over ranks the tiny model's values; how many numbers this rank has read."""
    source = Counted({name: value.detach() for name, value in tiny.tiny_llava().named_parameters()})
    load_weights(model, source, whole=parameter_shapes(tiny.CONFIG))
    for name, parameter in model.named_parameters():
        if is_lora(name):
            value = fresh_factor(name, tuple(parameter.shape), seed=0) + 0.01  # so that both factors do something
            fill_parameter(parameter, InMemory({name: value}), name)
    gather_each_once(model)
    return source.read_numbers


def whole(parameter: torch.Tensor) -> list[float]:
    """All numbers of a parameter, from the ranks that hold them."""
    full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return full.detach().flatten().tolist()


def _rank(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    runs = json.loads((folder / "runs.json").read_text())
    store = FileStore(str(folder / "store"), ranks)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    told = []
    for index, run in enumerate(runs):
        place = Path(run.pop("folder", folder / f"run-{index}"))
        told.append(one_run(place, **{"parallel": {}, "language": {}, "parts": {}} | run))
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
    distributed.barrier()


def _main(ranks: int, folder: Path) -> int:
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            try:
                _rank(rank, ranks, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)  # gloo's threads can outlive the group and abort an interpreter that ends
        children.append(child)
    failed = 0
    for _ in children:
        _, status = os.wait()
        if status and not failed:
            failed = 1
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, 9)
    return failed


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), Path(sys.argv[2])))
