"""Scores on benchmarks while a model is trained: the first items of each, asked and scored as elsewhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from omniloom.errors import ConfigError, OmniloomError, SampleError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.data_sets import is_data_set, read_data_set
from omniloom.evaluate.pictures import Pictures
from omniloom.evaluate.result import Result, check_truth, checked, evaluate
from omniloom.evaluate.task import Item, Task
from omniloom.evaluate.tasks import find_task
from omniloom.generate.decoding import generate
from omniloom.generate.prompts import Prompt, Prompter, answer_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from omniloom.storage.files import replace_file
from omniloom.train.answers_together import answers_together
from omniloom.train.hooks import Hook

logger = logging.getLogger("omniloom")

FOLDER = "benchmarks"
_TOGETHER = 16  # items that are answered together


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """A benchmark, of which a part is answered while training.

    Attributes:
        truth: its file or folder, as `omniloom evaluate --ground-truth` takes it.
        images: folder of its images; ``None``: that of its file.
        items: from its beginning.
        new_tokens: of an answer at most.
        variant: the rule; ``None``: the first of the benchmark's.
        num_frames: of a video.
    """

    truth: str
    images: str | None = None
    items: int = 200
    new_tokens: int = 32
    variant: str | None = None
    num_frames: int = 8

    def __post_init__(self) -> None:
        if min(self.items, self.new_tokens, self.num_frames) < 1:
            raise ConfigError(
                f"evaluation.benchmarks: items {self.items}, new_tokens {self.new_tokens}, num_frames "
                f"{self.num_frames} found; at least 1 of each expected."
            )


class BenchmarkScores(Hook):
    """Answers benchmarks each so many steps and at the end; the likeliest word each time.

    The first rank writes each result, with every answer, to ``benchmarks/<name>/step-<step>.json`` in the run's folder.

    Args:
        model: that is trained, laid over ranks.
        benchmarks: by name of the task.
        prompter: makes prompts as `omniloom generate` does for this run.
        folder: of the run.
        every_steps: 0: at the end alone.
        steps: of the whole run.
        ranks: of the job. They all answer every item, to the same length.
        shared: whether ranks share matrices, tokens or layers, rather than have batches of their own each.
        writing: whether this rank writes.

    Raises:
        ConfigError: a benchmark cannot be read, or nothing of it can be asked.
    """

    def __init__(
        self,
        model: nn.Module,
        benchmarks: Mapping[str, BenchmarkConfig],
        *,
        prompter: Prompter,
        folder: Path,
        every_steps: int,
        steps: int,
        ranks: int,
        shared: bool,
        writing: bool,
    ) -> None:
        self._model, self._prompter, self._folder = model, prompter, folder
        self._every_steps, self._steps = every_steps, steps
        self._ranks, self._shared, self._writing = ranks, shared, writing
        self._asked = {name: _Asked(name, config) for name, config in benchmarks.items()}
        for name, asked in self._asked.items():
            if next(asked.prompts(prompter), None) is None:
                raise ConfigError(f"evaluation.benchmarks.{name}: no image of its first items can be used.")

    def after_step(self, step: int) -> Mapping[str, float]:
        """``score/<name>``: the first score of each benchmark, when it is due."""
        if step != self._steps and (not self._every_steps or step % self._every_steps):
            return {}
        told: dict[str, float] = {}
        self._model.eval()
        for name, asked in self._asked.items():
            try:
                result = asked.scored(self._answers(asked), model=f"{self._folder}, step {step}")
            except OmniloomError as error:
                logger.warning("step %d: %s is not scored: %s", step, name, error)
                continue
            told[f"score/{name}"] = next(iter(result.scores.metrics.values()))
            if self._writing:
                _write(self._folder / FOLDER / name / f"step-{step:08}.json", result)
        self._model.train()
        return told

    def _answers(self, asked: _Asked) -> Iterator[Answer]:
        sampling = SamplingConfig(max_new_tokens=asked.config.new_tokens)
        prompts = asked.prompts(self._prompter)
        while several := list(islice(prompts, _TOGETHER)):
            texts = self._texts([prompt for _, prompt in several], sampling)
            yield from (Answer(item.id, text) for (item, _), text in zip(several, texts, strict=True))

    def _texts(self, prompts: Sequence[Prompt], sampling: SamplingConfig) -> list[str]:
        if self._ranks == 1:
            model = cast(Llava, self._model)
            return [answer.text for answer in answer_prompts(model, self._prompter, prompts, sampling=sampling)]
        shown = [prompt.tiles for prompt in prompts if prompt.tiles is not None]
        ids, tiles = [prompt.ids for prompt in prompts], torch.cat(shown) if shown else None
        words = self._together(ids, tiles, sampling) if self._shared else self._each(ids, tiles, sampling)
        return [self._prompter.text(one) for one in words]

    def _together(
        self, ids: list[list[int]], tiles: torch.Tensor | None, sampling: SamplingConfig
    ) -> list[Sequence[int]]:
        image_id, words = self._prompter.image_id, sampling.max_new_tokens
        return list(answers_together(self._model, ids, images=tiles, image_id=image_id, words=words))

    def _each(self, ids: list[list[int]], tiles: torch.Tensor | None, sampling: SamplingConfig) -> list[Sequence[int]]:
        """Every rank answers all: ranks that gather layers together have to take equally many steps."""
        sharded = self._model if isinstance(self._model, FSDPModule) else None
        if sharded is not None:
            sharded.unshard()
        made = generate(cast(Llava, self._model), ids, sampling=sampling, stop_tokens=(), images=tiles)
        if sharded is not None:
            sharded.reshard()
        return [one.token_ids for one in made]


class _Asked:
    """The items of a benchmark that are asked."""

    def __init__(self, name: str, config: BenchmarkConfig) -> None:
        self.task: Task = find_task(name)
        self.config = config
        truth = Path(config.truth)
        items = read_data_set(truth) if is_data_set(truth) else self.task.read(truth)
        self._whole, self._items = len(items), items[: config.items]
        checked(self.task, self._items, config.variant)  # before anything is trained
        check_truth(self.task, self._items)
        folder = truth if truth.is_dir() else truth.parent
        self._pictures = Pictures(Path(config.images or folder), num_frames=config.num_frames)

    def prompts(self, prompter: Prompter) -> Iterator[tuple[Item, Prompt]]:
        """Items whose images can be used, with their prompts; the others are without an answer."""
        for item in self._items:
            try:
                yield item, prompter.prompt(self.task.prompt(item), self._pictures.of(item))
            except SampleError as error:
                logger.warning("%s: item %s is left out: %s", self.task.name, item.id, error)

    def scored(self, answers: Iterator[Answer], *, model: str) -> Result:
        """What the answers are worth."""
        about = {"model": model, "ground_truth": self.config.truth, "limit": self.config.items, "items": self._whole}
        return evaluate(self.task, self._items, list(answers), variant=self.config.variant, about=about)


def _write(path: Path, result: Result) -> None:
    rows = [
        {"id": item.id, "question": item.question, "answers": list(item.answers), "text": text, "score": worth}
        for item, text, worth in zip(result.items, result.texts, result.scores.items, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**result.to_plain(), "answered_items": rows}, indent=1)
    replace_file(path, text.encode("utf-8", "surrogatepass") + b"\n")
