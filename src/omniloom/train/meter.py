"""What a step did: how full packs were, how much was computed, and what share of the device's peak that is."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch

from omniloom.model.config import LlavaConfig
from omniloom.train.batches import work_of
from omniloom.train.data import DataConfig
from omniloom.train.flops import Work, training_flops
from omniloom.train.hooks import Hook

# Operations a second of one device in bfloat16 without sparsity, as its maker publishes them.
PEAK_FLOPS: Mapping[str, float] = MappingProxyType(
    {
        "B200": 2250e12,
        "GH200": 989e12,
        "H200": 989e12,
        "H100 PCIe": 756e12,
        "H100": 989e12,
        "A100": 312e12,
        "L40S": 362e12,
        "A10": 125e12,
        "RTX 4090": 165e12,
    }
)


def peak_flops(device: torch.device, *, told: float) -> float:
    """The peak of a device: as told, else by its name; 0 where neither says it."""
    if told or device.type != "cuda":
        return told
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), 0.0)


class Meter(Hook):
    """Measures steps on this rank. It has to be the first hook, so that the time of others does not count.

    Args:
        config: of the model.
        data: how batches are made.
        trained: parts that are trained.
        ranks_of_a_replica: ranks that share the work on a batch.
        peak: operations a second of the device at most; 0: not known.
    """

    def __init__(
        self, config: LlavaConfig, data: DataConfig, *, trained: Collection[str], ranks_of_a_replica: int, peak: float
    ) -> None:
        self._config, self._data, self._trained = config, data, frozenset(trained)
        self._sharing, self._peak = ranks_of_a_replica, peak
        self._begun: float | None = None
        self._batches: list[Work] = []

    def waiting(self) -> None:
        """A step begins with the first batch that it waits for."""
        if self._begun is None:
            self._begun = time.perf_counter()

    def batch(self, batch: Any) -> None:
        """Look at a batch's sizes."""
        self._batches.append(work_of(batch))

    def after_step(self, step: int) -> Mapping[str, float]:
        """``samples``, ``fill`` where samples are packed, ``flops_per_second`` of a device, and ``mfu``."""
        if not self._batches or self._begun is None:
            return {}
        seconds = time.perf_counter() - self._begun
        works, self._batches, self._begun = self._batches, [], None
        told: dict[str, float] = {"samples": sum(len(work.documents) for work in works)}
        if self._data.pack_tokens is not None:
            room = self._data.pack_tokens * self._data.batch_size * len(works)
            told["fill"] = sum(sum(work.documents) for work in works) / room
        done = sum(training_flops(self._config, work, trained=self._trained) for work in works)
        told["flops_per_second"] = done / self._sharing / seconds
        if self._peak:
            told["mfu"] = told["flops_per_second"] / self._peak
        return told
