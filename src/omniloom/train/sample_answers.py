"""Answers to some held-out samples while a model is trained, with their pictures, on a page in the run's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from torch import nn
from torch.distributed.fsdp import FSDPModule

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader, get_val_datasets
from omniloom.generate.decoding import generate
from omniloom.generate.prompts import Prompter
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from omniloom.model.loss import IGNORED
from omniloom.train.answer_pages import FOLDER, Answer, write_answers
from omniloom.train.answers_together import answers_together
from omniloom.train.data import DataConfig
from omniloom.train.hooks import Hook
from omniloom.train.in_training import EvaluationConfig
from omniloom.vlm.task_encoder import LlavaTaskEncoder

logger = logging.getLogger("omniloom")


@dataclass(frozen=True)
class _Question:
    """A held-out sample, cut where its first answer begins."""

    name: str
    ids: list[int]
    tiles: torch.Tensor | None
    prompt: str
    expected: str
    picture: str | None


class SampleAnswers(Hook):
    """Answers the first samples of each held-out data set; the first rank writes them down.

    Each answer goes on from exactly the tokens that stood before it in training.

    Args:
        model: that is trained, laid over ranks.
        validation: the held-out data.
        data: how samples are made.
        settings: how many, and when.
        encoder: of the training.
        folder: of the run.
        writing: whether this rank writes.
        ranks: of the job. They all answer, to the same length.
        shared: whether ranks share matrices, tokens or layers, rather than have batches of their own each.
        steps: of the whole run; at its end there are answers as well.
    """

    def __init__(
        self,
        model: nn.Module,
        validation: str,
        *,
        data: DataConfig,
        settings: EvaluationConfig,
        encoder: LlavaTaskEncoder,
        folder: Path,
        writing: bool,
        ranks: int,
        shared: bool,
        steps: int,
    ) -> None:
        self._model, self._settings, self._steps = model, settings, steps
        self._run, self._folder = folder, folder / FOLDER
        self._writing, self._ranks, self._shared = writing, ranks, shared
        self._prompter = Prompter.of(encoder)
        one_of_one = WorkerConfig(rank=0, world_size=1, num_workers=0)
        self._sets = get_val_datasets(
            validation,
            split_part=data.validation_split_part,
            worker_config=one_of_one,
            batch_size=1,
            limit=settings.samples,
            task_encoder=encoder,
        )
        self._questions: list[_Question] | None = None

    def after_step(self, step: int) -> Mapping[str, float]:
        """Answer when it is due."""
        every = self._settings.sample_every_steps or self._settings.every_steps
        if step != self._steps and (not every or step % every):
            return {}
        if self._questions is None:
            self._questions = list(self._ask())
            if not self._questions and self._writing:
                logger.warning(
                    "no answers: nothing of the first %d held-out samples can be used. `omniloom inspect` shows why; "
                    "evaluation.samples looks at more.",
                    self._settings.samples,
                )
        if self._questions:
            answers = self._answers(self._questions)
            if self._writing:
                self._write(step, self._questions, answers)
        return {}

    def _answers(self, questions: list[_Question]) -> list[str]:
        shown = [question.tiles for question in questions if question.tiles is not None]
        prompts, tiles = [question.ids for question in questions], torch.cat(shown) if shown else None
        self._model.eval()
        words = self._together(prompts, tiles) if self._shared else self._alone(prompts, tiles)
        self._model.train()
        return [self._prompter.text(one) for one in words]

    def _alone(self, prompts: list[list[int]], tiles: torch.Tensor | None) -> list[Sequence[int]]:
        # What is not of a layer; layers gather as they go.
        sharded = self._model if isinstance(self._model, FSDPModule) else None
        if sharded is not None:
            sharded.unshard()
        made = generate(
            cast(Llava, self._model),
            prompts,
            sampling=SamplingConfig(max_new_tokens=self._settings.sample_tokens),
            # Ranks that gather layers together have to take equally many steps.
            stop_tokens=() if self._ranks > 1 else self._prompter.stop_tokens,
            images=tiles,
        )
        if sharded is not None:
            sharded.reshard()
        return [one.token_ids for one in made]

    def _together(self, prompts: list[list[int]], tiles: torch.Tensor | None) -> list[Sequence[int]]:
        made = answers_together(
            self._model, prompts, images=tiles, image_id=self._prompter.image_id, words=self._settings.sample_tokens
        )
        return list(made)

    def _ask(self) -> Iterator[_Question]:
        for dataset, leaf in self._sets:
            with get_savable_loader(dataset, num_workers=0) as loader:
                for number, batch in zip(range(self._settings.samples), loader, strict=False):
                    question = self._question(f"{Path(leaf.name).name}-{number}", batch)
                    if question is not None:
                        yield question

    def _question(self, name: str, batch: Any) -> _Question | None:
        learned = (batch.labels != IGNORED).nonzero()[:, 0].tolist()
        if not learned:
            return None
        first = learned[0]
        last = next((at for at, after in zip(learned, [*learned[1:], -1], strict=True) if after != at + 1), first)
        ids = batch.input_ids[: first + 1].tolist()
        image_id, size = self._prompter.image_id, self._prompter.images.tile_tokens
        seen = sum(number == image_id for number in ids) // size
        words = [number for number in ids if number != image_id]
        shown = batch.images[seen - 1] if seen and batch.images.dim() == 4 else None  # features are no picture
        picture = self._picture(name, shown) if shown is not None and self._writing else None
        return _Question(
            name=name,
            ids=ids,
            tiles=batch.images[:seen] if seen else None,
            prompt=self._prompter.tokenizer.decode(words),
            expected=self._prompter.text(batch.labels[first : last + 1].tolist()),
            picture=picture,
        )

    def _picture(self, name: str, tile: torch.Tensor) -> str:
        """Write a tile's pixels; of several tiles the last one shows the whole."""
        tower = self._prompter.images.statistics
        mean, std = (torch.tensor(values)[:, None, None] for values in (tower.mean, tower.deviation))
        pixels = ((tile * std + mean).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
        self._folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(self._folder / f"{name}.png")
        return f"{name}.png"

    def _write(self, step: int, questions: list[_Question], answers: list[str]) -> None:
        written = [
            Answer(
                step=step,
                sample=question.name,
                picture=question.picture,
                prompt=question.prompt,
                expected=question.expected,
                answer=answer,
            )
            for question, answer in zip(questions, answers, strict=True)
        ]
        write_answers(self._run, written)
