"""What a run tells of itself: one JSON line a step, and a line for people now and then."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image

from omniloom.errors import ConfigError
from omniloom.storage.files import replace_file
from omniloom.train.answer_pages import FOLDER, Answer, read_answers

logger = logging.getLogger("omniloom")

STEPS_FILE = "steps.jsonl"
# What the line for people tells, and under which name; the JSON lines tell everything.
_FOR_PEOPLE = {
    "loss": "loss",
    "validation_loss": "validation",
    "learning_rate": "lr",
    "gradient_norm": "norm",
    "tokens_per_second": "tokens/s",
    "images_per_second": "images/s",
    "mfu": "MFU",
    "fill": "fill",
    "data_wait_seconds": "data wait",
    "skipped_steps": "skipped",
    "left_out_samples": "left out",
}
_WANDB_ID = "wandb-run-id"


class Writer(Protocol):
    """Where scalars go besides the JSON lines, such as TensorBoard."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the values of a step."""

    def show(self, answers: Sequence[Answer], folder: Path) -> None:
        """Take in what was answered after a step; pictures lie in `folder`."""

    def close(self) -> None:
        """Write what is held back."""


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What is told, and how often.

    Attributes:
        every_steps: a line for people each so many steps. JSON lines hold every step.
        tensorboard: also write TensorBoard's files.
        wandb_project: also log to this project of Weights & Biases.
        peak_flops: operations a second of one device in the precision that is used, for MFU; 0: by the device's name,
            where `omniloom.train.meter` knows it.
    """

    every_steps: int = 10
    tensorboard: bool = False
    wandb_project: str | None = None
    peak_flops: float = 0.0

    def __post_init__(self) -> None:
        if self.every_steps < 1 or self.peak_flops < 0:
            raise ConfigError(
                f"every_steps {self.every_steps} and peak_flops {self.peak_flops:g} found; at least 1 and 0 expected."
            )


class StepLog:
    """Writes the steps of a run; on other ranks than the first it does nothing.

    After a resume, lines of steps that come again are cut off, so that each step has one line.

    Args:
        folder: of the run.
        config: what is told, and how often.
        steps: of the whole run, for the time that is left.
        first_step: where this process begins.
        writing: whether this rank writes.
    """

    def __init__(self, folder: Path, config: LogConfig, *, steps: int, first_step: int, writing: bool) -> None:
        self._config, self._steps, self._first_step = config, steps, first_step
        self._folder = folder
        self._started = time.perf_counter()
        self._file = None
        self._writers: list[Writer] = []
        if writing:
            path = folder / STEPS_FILE
            kept = [line for line in _lines(path) if json.loads(line)["step"] <= first_step]
            replace_file(path, "".join(f"{line}\n" for line in kept))
            self._file = path.open("a", buffering=1)
            self._writers = _writers(folder, config, first_step=first_step)

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """Tell of a step; ``step`` counts from 1."""
        if self._file is None:
            return
        plain = {name: _rounded(value) for name, value in values.items()}
        self._file.write(json.dumps({"step": step, **plain}) + "\n")
        answers = read_answers(self._folder, step) if self._writers else []
        for writer in self._writers:
            writer.write(step, {name: value for name, value in plain.items() if isinstance(value, int | float)})
            if answers:
                writer.show(answers, self._folder / FOLDER)
        if step % self._config.every_steps == 0 or step in (1, self._steps):
            done = step - self._first_step
            left = (time.perf_counter() - self._started) / max(1, done) * (self._steps - step)
            told = [
                f"{label} {_short(plain[name])}" for name, label in _FOR_PEOPLE.items() if plain.get(name) is not None
            ]
            logger.info("step %d/%d  %s  %s left", step, self._steps, "  ".join(told), _clock(left))

    def close(self) -> None:
        """Write what is held back."""
        if self._file is not None:
            self._file.close()
        for writer in self._writers:
            writer.close()


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that tensors took on an accelerator; on the CPU, of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # noqa: PLC0415 - there is none on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _writers(folder: Path, config: LogConfig, *, first_step: int) -> list[Writer]:
    writers: list[Writer] = []
    if config.tensorboard:
        writers.append(_TensorBoard(folder / "tensorboard", first_step=first_step))
    if config.wandb_project is not None:
        writers.append(_WeightsAndBiases(folder, config.wandb_project))
    return writers


class _TensorBoard:
    def __init__(self, folder: Path, *, first_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("log.tensorboard needs `pip install omniloom[log]`.") from error
        # Steps that come again after a resume take the place of those that were written.
        self._writer = SummaryWriter(str(folder), purge_step=first_step + 1 if first_step else None)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def show(self, answers: Sequence[Answer], folder: Path) -> None:
        for one in answers:
            text = f"{one.prompt}\n\n**{one.answer}**\n\nexpected: {one.expected}"
            self._writer.add_text(f"answers/{one.sample}", text, one.step)
            if one.picture is not None:
                pixels = np.asarray(Image.open(folder / one.picture).convert("RGB"))
                self._writer.add_image(f"answers/{one.sample}", pixels, one.step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """One run there for each run here: its id lies in the run's folder, so that a resumed run goes on with it."""

    def __init__(self, folder: Path, project: str) -> None:
        try:
            import wandb  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("log.wandb_project needs `pip install omniloom[log]`.") from error
        path = folder / _WANDB_ID
        if not path.is_file():
            path.write_text(uuid.uuid4().hex[:16])
        self._run = wandb.init(
            project=project, dir=str(folder), name=folder.name, id=path.read_text().strip(), resume="allow"
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def show(self, answers: Sequence[Answer], folder: Path) -> None:
        import wandb  # noqa: PLC0415 - as above

        table = wandb.Table(columns=["sample", "picture", "prompt", "answer", "expected"])
        for one in answers:
            picture = None if one.picture is None else wandb.Image(str(folder / one.picture))
            table.add_data(one.sample, picture, one.prompt, one.answer, one.expected)
        self._run.log({"answers": table}, step=answers[0].step)

    def close(self) -> None:
        self._run.finish()


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; a last one that a kill cut off is left out."""
    if not path.is_file():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
