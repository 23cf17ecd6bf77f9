"""Batches of the loader as what a step takes its loss of, on the model's device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from omniloom.errors import DatasetError
from omniloom.model.documents import Documents
from omniloom.model.dropout import draws
from omniloom.model.llava import ShownTiles
from omniloom.model.loss import IGNORED, LossSum, TokenGroups
from omniloom.parallel.wire import seed_of
from omniloom.train.flops import Work


class PackedBatch(Protocol):
    """A batch of `omniloom.vlm`'s task encoder: documents one after another in a flat row."""

    input_ids: Tensor
    labels: Tensor
    document_lengths: Tensor
    images: Tensor  # (tiles, 3, height, width), or features made beforehand (tiles, tokens, features)
    shown_tiles: Tensor
    image_positions: Tensor
    document_sets: Tensor


@dataclass(frozen=True)
class PackedMicroBatch:
    """A packed batch on a device.

    Attributes:
        input_ids: int64 (tokens,).
        labels: int64 (tokens,), the id after each token, -100 where nothing is learned.
        documents: where the documents lie.
        images: float32 (tiles, 3, height, width), with the place of each where some have several; or features made
            beforehand (tiles, tokens, features); or ``None``.
        image_positions: int64 (features,).
        learned_tokens: labelled tokens.
        num_images: tiles that are shown, each once.
        groups: the data set of each token, where losses are told by data set.
        learned_of_groups: labelled tokens of each data set then.
        seed: of what is drawn while the model learns, from the keys of its samples: so it hangs on no process and no
            step, and on no number of ranks.
    """

    input_ids: Tensor
    labels: Tensor
    documents: Documents
    images: Tensor | ShownTiles | None
    image_positions: Tensor
    learned_tokens: int
    num_images: int
    groups: TokenGroups | None = None
    learned_of_groups: tuple[int, ...] = ()
    seed: int = 0

    @classmethod
    def of(cls, batch: PackedBatch, device: torch.device, *, sets: int = 0) -> PackedMicroBatch:
        """The batch, copied to a device; what the host has to know of it is read before.

        Args:
            batch: of the loader.
            device: of the model.
            sets: data sets whose losses are told apart; 0: they are not.
        """
        groups, learned_of_groups = _groups(batch, sets) if sets else (None, ())
        return cls(
            input_ids=batch.input_ids.to(device, non_blocking=True),
            labels=batch.labels.to(device, non_blocking=True),
            documents=Documents.of_lengths(batch.document_lengths.tolist()),
            images=_images(batch, device),
            image_positions=batch.image_positions.to(device, non_blocking=True),
            learned_tokens=int((batch.labels != IGNORED).sum()),
            num_images=len(batch.images),
            groups=None if groups is None else TokenGroups(groups.to(device, non_blocking=True), sets),
            learned_of_groups=learned_of_groups,
            seed=seed_of(batch),
        )

    @property
    def tokens(self) -> int:
        """Tokens, image features and all."""
        return self.documents.tokens

    def loss(self, model: nn.Module) -> LossSum:
        """The summed loss of its labelled tokens."""
        if model.training and draws(model):
            torch.manual_seed(self.seed)
        loss: LossSum = model.loss(  # type: ignore[operator]
            self.input_ids,
            labels=self.labels,
            documents=self.documents,
            images=self.images,
            image_positions=self.image_positions,
            **({} if self.groups is None else {"token_groups": self.groups}),
        )
        return loss


def _groups(batch: PackedBatch, sets: int) -> tuple[Tensor, tuple[int, ...]]:
    """The data set of each token, and the labelled tokens of each data set."""
    of_tokens = batch.document_sets.repeat_interleave(batch.document_lengths)
    learned = torch.bincount(of_tokens[batch.labels != IGNORED], minlength=sets)
    return of_tokens, tuple(learned.tolist())


def _images(batch: PackedBatch, device: torch.device) -> Tensor | ShownTiles | None:
    if not len(batch.images):
        return None
    tiles = batch.images.to(device, non_blocking=True)
    if len(batch.shown_tiles) == len(tiles):  # each has one place, and they are in order
        return tiles
    return ShownTiles(tiles, batch.shown_tiles.to(device, non_blocking=True))


def work_of(batch: PackedBatch) -> Work:
    """What there is to do of a batch."""
    tiles, learned = len(batch.images), int((batch.labels != IGNORED).sum())
    seen_before = tiles if batch.images.dim() == 3 else 0
    lengths = tuple(batch.document_lengths.tolist())
    return Work(documents=lengths, learned_tokens=learned, tiles=tiles - seen_before, tiles_seen_before=seen_before)


class Feed:
    """Takes micro-batches from a loader for ever, and counts the seconds that it waits.

    Args:
        loader: gives packed batches; where a pass ends, the next begins.
        device: where micro-batches go.
        sets: data sets whose losses are told apart; 0: they are not.
    """

    def __init__(self, loader: Any, device: torch.device, *, sets: int = 0) -> None:
        self._loader, self._device, self._sets = loader, device, sets
        self._pass: Iterator[Any] = iter(())
        self.seconds_waited = 0.0

    def take(self, count: int) -> list[PackedMicroBatch]:
        """So many micro-batches. Raises DatasetError where a whole pass over the data gives none."""
        started = time.perf_counter()
        batches = [self._next() for _ in range(count)]
        self.seconds_waited += time.perf_counter() - started
        return [PackedMicroBatch.of(batch, self._device, sets=self._sets) for batch in batches]

    def _next(self) -> Any:
        try:
            return next(self._pass)
        except StopIteration:
            self._pass = iter(self._loader)
        batch = next(self._pass, None)
        if batch is None:
            raise DatasetError(
                "the loader gives no batch: the data set is empty, or nothing of it can be used. "
                "`omniloom inspect` shows its samples, and why some are left out."
            )
        return batch
