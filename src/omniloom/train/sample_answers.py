"""Answers to some held-out samples while a model is trained, with their pictures, on a page in the run's folder."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.distributed.fsdp import FSDPModule

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader, get_val_datasets
from omniloom.generate.decoding import generate
from omniloom.generate.prompts import Prompter
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from omniloom.model.loss import IGNORED
from omniloom.parallel.layers import layers_of
from omniloom.storage.files import replace_file
from omniloom.train.data import DataConfig
from omniloom.train.hooks import Hook
from omniloom.train.in_training import EvaluationConfig
from omniloom.vlm.task_encoder import LlavaTaskEncoder

FOLDER = "samples"
_STYLE = (
    "body{font:15px system-ui;margin:2rem auto;max-width:60rem}img{max-width:14rem;display:block}"
    "section{display:flex;gap:1.5rem;border-top:1px solid #ccc;padding:1rem 0}table{border-collapse:collapse}"
    "td{padding:.15rem .6rem;vertical-align:top}pre{white-space:pre-wrap;margin:0}"
)


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
        model: that is trained.
        validation: the held-out data.
        data: how samples are made.
        settings: how many, and when.
        encoder: of the training.
        folder: of the run.
        writing: whether this rank writes.
        ranks: that share the model. They all answer, to the same length.
        steps: of the whole run; at its end there are answers as well.
    """

    def __init__(
        self,
        model: Llava,
        validation: str,
        *,
        data: DataConfig,
        settings: EvaluationConfig,
        encoder: LlavaTaskEncoder,
        folder: Path,
        writing: bool,
        ranks: int,
        steps: int,
    ) -> None:
        self._model, self._settings, self._steps = model, settings, steps
        self._folder, self._writing, self._ranks = folder / FOLDER, writing, ranks
        self._prompter = Prompter(
            tokenizer=encoder.tokenizer,
            template=encoder.template,
            images=encoder.images,
            image_id=encoder.settings.image_id,
        )
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
        if self._questions:
            answers = self._answers(self._questions)
            if self._writing:
                self._write(step, self._questions, answers)
        return {}

    def _answers(self, questions: list[_Question]) -> list[str]:
        tiles = [question.tiles for question in questions if question.tiles is not None]
        self._model.eval()
        # What is not of a layer, and the first one, whose shapes tell the heads; others gather as they go.
        gathered = [self._model, *islice(layers_of(self._model.language_model), 1)]
        for module in gathered:
            if isinstance(module, FSDPModule):
                module.unshard()
        made = generate(
            self._model,
            [question.ids for question in questions],
            sampling=SamplingConfig(max_new_tokens=self._settings.sample_tokens),
            # Ranks that gather layers together have to take equally many steps.
            stop_tokens=() if self._ranks > 1 else self._prompter.stop_tokens,
            images=torch.cat(tiles) if tiles else None,
        )
        for module in gathered:
            if isinstance(module, FSDPModule):
                module.reshard()
        self._model.train()
        return [self._prompter.text(one.token_ids) for one in made]

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
        picture = self._picture(name, batch.images[seen - 1]) if seen and self._writing else None
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
        rows = [
            {
                "step": step,
                "sample": question.name,
                "picture": question.picture,
                "prompt": question.prompt,
                "expected": question.expected,
                "answer": answer,
            }
            for question, answer in zip(questions, answers, strict=True)
        ]
        replace_file(self._folder / f"step-{step:08d}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        replace_file(self._folder / "index.html", page(self._folder))


def page(folder: Path) -> str:
    """The answers of all steps, sample by sample, as HTML."""
    by_sample: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("step-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            by_sample.setdefault(row["sample"], []).append(row)
    sections = []
    for rows in by_sample.values():
        newest = rows[-1]
        picture = f'<img src="{html.escape(newest["picture"])}" alt="">' if newest["picture"] else ""
        lines = "".join(f"<tr><td>step {row['step']:,}</td><td>{html.escape(row['answer'])}</td></tr>" for row in rows)
        sections.append(
            f"<section>{picture}<div><pre>{html.escape(newest['prompt'])}</pre><table>{lines}"
            f"<tr><td>expected</td><td><b>{html.escape(newest['expected'])}</b></td></tr></table></div></section>"
        )
    head = f'<!doctype html><meta charset="utf-8"><title>Answers while training</title><style>{_STYLE}</style>'
    return f"{head}<h1>Answers while training</h1>{''.join(sections)}"
