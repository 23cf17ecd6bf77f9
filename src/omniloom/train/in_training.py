"""What is measured of a model while it is trained: the loss on held-out data, by data set."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import nn

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader, get_val_datasets
from omniloom.errors import ConfigError
from omniloom.model.loss import IGNORED
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.benchmarks import BenchmarkConfig
from omniloom.train.data import DataConfig
from omniloom.train.hooks import Hook
from omniloom.train.step import mean_loss
from omniloom.vlm.task_encoder import LlavaTaskEncoder

logger = logging.getLogger("omniloom")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What is measured while training.

    Attributes:
        every_steps: the loss on held-out data each so many steps, and at the end; 0: never.
        batches: micro-batches of each rank for it, of each data set.
        samples: of each data set that are answered each ``sample_every_steps``, with their pictures; 0: none.
        sample_every_steps: answers each so many steps, and at the end; 0: with the loss.
        sample_tokens: of an answer at most.
        benchmarks: whose first items are answered and scored each ``benchmark_every_steps``, by names of
            `omniloom evaluate --list`.
        benchmark_every_steps: scores each so many steps, and at the end; 0: with the loss.
    """

    every_steps: int = 0
    batches: int = 20
    samples: int = 0
    sample_every_steps: int = 0
    sample_tokens: int = 64
    benchmarks: Mapping[str, BenchmarkConfig] = field(default_factory=dict)
    benchmark_every_steps: int = 0

    def __post_init__(self) -> None:
        if (
            min(self.every_steps, self.samples, self.sample_every_steps, self.benchmark_every_steps) < 0
            or min(self.batches, self.sample_tokens) < 1
        ):
            raise ConfigError(
                f"evaluation: every_steps {self.every_steps}, batches {self.batches}, samples {self.samples}, "
                f"sample_every_steps {self.sample_every_steps}, sample_tokens {self.sample_tokens}, "
                f"benchmark_every_steps {self.benchmark_every_steps} found; batches and sample_tokens of at least 1, "
                "and no number below 0, expected."
            )


class HeldOutLoss(Hook):
    """The mean loss of each held-out data set, and of all of them, each so many steps.

    Args:
        model: that is trained.
        validation: the held-out data: a data set, or a metadataset of several.
        data: how it becomes batches.
        settings: how often and how much.
        encoder: of the training.
        workers: of this rank.
        device: of the model.
        steps: of the whole run; the loss is also taken at its end.
    """

    def __init__(
        self,
        model: nn.Module,
        validation: str,
        *,
        data: DataConfig,
        settings: EvaluationConfig,
        encoder: LlavaTaskEncoder,
        workers: WorkerConfig,
        device: torch.device,
        steps: int,
    ) -> None:
        self._model, self._settings, self._workers, self._device = model, settings, workers, device
        self._steps = steps
        found = get_val_datasets(
            validation,
            split_part=data.validation_split_part,
            worker_config=workers,
            batch_size=data.batch_size,
            limit=settings.batches,
            task_encoder=encoder,
            equal_steps=workers.ranks > 1,  # or a rank would wait for the others' layers for ever
        )
        self._sets: list[tuple[str, Any]] = [(leaf.name, dataset) for dataset, leaf in found]

    def after_step(self, step: int) -> Mapping[str, float]:
        """``validation_loss`` and ``validation_tokens``, with several data sets also ``validation_loss/<name>``.

        There is no loss where nothing of the data could be used, which is warned of.
        """
        if step % self._settings.every_steps and step != self._steps:
            return {}
        told: dict[str, float] = {}
        total, tokens = 0.0, 0
        self._model.eval()
        for name, dataset in self._sets:
            with get_savable_loader(dataset, num_workers=0) as loader:
                batches = self._micro_batches(loader)
                loss, learned = mean_loss(self._model, batches, group=self._workers.data_parallel_group)
            total, tokens = total + loss * learned, tokens + learned
            if not learned:
                logger.warning(
                    "step %d: nothing of the first %d held-out batches of %s can be used, so there is no loss. "
                    "`omniloom inspect` shows why; evaluation.batches looks at more.",
                    step, self._settings.batches, name,
                )  # fmt: skip
            elif len(self._sets) > 1:
                told[f"validation_loss/{name}"] = loss
        self._model.train()
        of_all = {"validation_loss": total / tokens} if tokens else {}
        return {**of_all, "validation_tokens": tokens, **told}

    def _micro_batches(self, loader: Any) -> Iterator[PackedMicroBatch]:
        for batch in islice(loader, self._settings.batches):
            made = PackedMicroBatch.of(batch, self._device)
            if loader.is_pad:
                made = replace(made, labels=torch.full_like(made.labels, IGNORED), learned_tokens=0)
            yield made
