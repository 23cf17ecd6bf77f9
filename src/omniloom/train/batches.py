"""Batches of the loader as what a step takes its loss of, on the model's device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from omniloom.model.documents import Documents
from omniloom.model.llava import ShownTiles
from omniloom.model.loss import IGNORED, LossSum


class PackedBatch(Protocol):
    """A batch of `omniloom.vlm`'s task encoder: documents one after another in a flat row."""

    input_ids: Tensor
    labels: Tensor
    document_lengths: Tensor
    images: Tensor
    shown_tiles: Tensor
    image_positions: Tensor


@dataclass(frozen=True)
class PackedMicroBatch:
    """A packed batch on a device.

    Attributes:
        input_ids: int64 (tokens,).
        labels: int64 (tokens,), the id after each token, -100 where nothing is learned.
        documents: where the documents lie.
        images: float32 (tiles, 3, height, width), with the place of each where some have several; or ``None``.
        image_positions: int64 (features,).
        learned_tokens: labelled tokens.
        num_images: tiles that the tower sees.
        padding_tokens: of the last document, which is there to fill the batch up.
    """

    input_ids: Tensor
    labels: Tensor
    documents: Documents
    images: Tensor | ShownTiles | None
    image_positions: Tensor
    learned_tokens: int
    num_images: int
    padding_tokens: int = 0

    @classmethod
    def of(cls, batch: PackedBatch, device: torch.device, *, multiple: int = 1) -> PackedMicroBatch:
        """The batch, copied to a device and filled up to a multiple of tokens; the host reads what it has to before."""
        own = cls(
            input_ids=batch.input_ids.to(device, non_blocking=True),
            labels=batch.labels.to(device, non_blocking=True),
            documents=Documents.of_lengths(batch.document_lengths.tolist()),
            images=_images(batch, device),
            image_positions=batch.image_positions.to(device, non_blocking=True),
            learned_tokens=int((batch.labels != IGNORED).sum()),
            num_images=len(batch.images),
        )
        return own.filled_up(-(-own.documents.tokens // multiple) * multiple)

    def filled_up(self, tokens: int) -> PackedMicroBatch:
        """The same with a last document of which nothing is learned, so that it has so many tokens in all."""
        more = tokens - self.documents.tokens
        if not more:
            return self
        return replace(
            self,
            input_ids=functional.pad(self.input_ids, (0, more)),
            labels=functional.pad(self.labels, (0, more), value=IGNORED),
            documents=Documents((*self.documents.bounds, tokens)),
            padding_tokens=self.padding_tokens + more,
        )

    @property
    def tokens(self) -> int:
        """Tokens, image features and all, without those that fill up."""
        return self.documents.tokens - self.padding_tokens

    def loss(self, model: nn.Module) -> LossSum:
        """The summed loss of its labelled tokens."""
        loss: LossSum = model.loss(  # type: ignore[operator]
            self.input_ids,
            labels=self.labels,
            documents=self.documents,
            images=self.images,
            image_positions=self.image_positions,
        )
        return loss


def _images(batch: PackedBatch, device: torch.device) -> Tensor | ShownTiles | None:
    if not len(batch.images):
        return None
    tiles = batch.images.to(device, non_blocking=True)
    if len(batch.shown_tiles) == len(tiles):  # each has one place, and they are in order
        return tiles
    return ShownTiles(tiles, batch.shown_tiles.to(device, non_blocking=True))


class Feed:
    """Takes micro-batches from a loader for ever, and counts the seconds that it waits.

    Args:
        loader: gives packed batches; where a pass ends, the next begins.
        device: where micro-batches go.
        multiple: of tokens, to which each is filled up.
    """

    def __init__(self, loader: Any, device: torch.device, *, multiple: int = 1) -> None:
        self._loader, self._device, self._multiple = loader, device, multiple
        self._pass: Iterator[Any] = iter(())
        self.seconds_waited = 0.0

    def take(self, count: int) -> list[PackedMicroBatch]:
        """So many micro-batches. Raises StopIteration where the data has nothing."""
        started = time.perf_counter()
        batches = [self._next() for _ in range(count)]
        self.seconds_waited += time.perf_counter() - started
        return [PackedMicroBatch.of(batch, self._device, multiple=self._multiple) for batch in batches]

    def _next(self) -> Any:
        try:
            return next(self._pass)
        except StopIteration:
            self._pass = iter(self._loader)
            return next(self._pass)
