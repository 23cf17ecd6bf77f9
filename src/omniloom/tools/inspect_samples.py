"""Samples as the model sees them: tokens with what is learned, tiles, and packs; or why there is none."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline.make import Make
from omniloom.data.sample import SampleKey
from omniloom.errors import DatasetError, SampleError, SkipSample, StorageError
from omniloom.vlm.encoded import EncodedPack, EncodedSample, expand
from omniloom.vlm.task_encoder import LlavaTaskEncoder
from omniloom.vlm.tokens import IGNORE_ID

SpanKind = Literal["learned", "ignored", "special", "learned-special", "image"]


@dataclass(frozen=True)
class TokenSpan:
    """One token, or the features of one image.

    Attributes:
        kind: how it is drawn.
        text: what it reads.
        tokens: how many ids it is.
        image: number of the image in the sample; -1 for text.
    """

    kind: SpanKind
    text: str
    tokens: int = 1
    image: int = -1


@dataclass(frozen=True)
class SeenSample:
    """A sample as the model sees it.

    Attributes:
        key: its key.
        leaf: name of its data set.
        row: its row there.
        spans: its tokens, in order.
        tiles: tiles of each image, in order.
        grids: what each image became, in words.
        tokens: length with the features of images.
        learned: how many of them are learned.
        fault: why it is not used; empty where it is.
        encoded: for packing; ``None`` where it is not used.
    """

    key: str
    leaf: str
    row: int
    spans: tuple[TokenSpan, ...] = ()
    tiles: tuple[tuple[Image.Image, ...], ...] = ()
    grids: tuple[str, ...] = ()
    tokens: int = 0
    learned: int = 0
    fault: str = ""
    encoded: EncodedSample | None = None


def samples_of(dataset: Dataset, rows: Sequence[tuple[int, int]], encoder: LlavaTaskEncoder) -> Iterator[SeenSample]:
    """The samples of some rows.

    Args:
        dataset: made with the encoder.
        rows: (number of the leaf, row) of each.
        encoder: gives tokens and tiles.
    """
    make = make_stage(dataset)
    for number, row in rows:
        leaf = make.leaves[number].name
        try:
            made = make.make(SampleKey(number, 0, row))
            for one in made.samples if isinstance(made, EncodedPack) else [made]:
                random.seed(row)
                whole = encoder.postencode_sample(one)
                if isinstance(whole, EncodedSample):
                    yield seen(whole, encoder, leaf=leaf, row=row, grids=[plan.grid for plan in one.plans])
        except (SampleError, SkipSample, DatasetError, StorageError) as error:
            reason = error.reason if isinstance(error, SampleError) else type(error).__name__
            yield SeenSample(f"row {row}", leaf, row, fault=f"{reason}: {error}")


def make_stage(dataset: Dataset) -> Make:
    """The stage of a data set's pipeline that makes samples."""
    stage = dataset.pipeline
    while not isinstance(stage, Make):
        stage = stage.source
    return stage


def seen(
    sample: EncodedSample, encoder: LlavaTaskEncoder, *, leaf: str, row: int, grids: Sequence[tuple[int, int]]
) -> SeenSample:
    """A sample with its pixels as the model sees it.

    Args:
        sample: with pixels.
        encoder: made it.
        leaf: name of its data set.
        row: its row there.
        grids: (columns, rows) of tiles of each image.
    """
    pictures = _pictures(sample, encoder)
    groups, start = [], 0
    for count in sample.num_tiles:
        groups.append(tuple(pictures[start : start + count]))
        start += count
    words = [
        f"{count} frames" if sample.video else _grid_in_words(grid, count)
        for grid, count in zip(grids, sample.num_tiles, strict=True)
    ]
    _, labels = expand(
        sample, image_id=encoder.settings.image_id, learn_after_images=encoder.settings.learn_after_images
    )
    return SeenSample(
        key=sample.__key__,
        leaf=leaf,
        row=row,
        spans=tuple(_spans(sample, encoder)),
        tiles=tuple(groups),
        grids=tuple(words),
        tokens=sample.total_tokens,
        learned=int((labels != IGNORE_ID).sum()),
        encoded=sample,
    )


def _grid_in_words(grid: tuple[int, int], tiles: int) -> str:
    columns, rows = grid
    more = " and a thumbnail" if tiles > columns * rows else ""
    return f"{columns} x {rows} tiles{more}" if tiles > 1 else "1 tile"


def _spans(sample: EncodedSample, encoder: LlavaTaskEncoder) -> Iterator[TokenSpan]:
    tokenizer = encoder.tokenizer
    special = {tokenizer.token_id(name) for name in tokenizer.special_tokens}
    image, before = 0, ""
    previous: list[int] = []
    for number, label in zip(sample.ids.tolist(), sample.labels.tolist(), strict=True):
        if number == encoder.settings.image_id:
            yield TokenSpan("image", f"image {image + 1}", len(sample.image_ids[image]), image)
            image, previous, before = image + 1, [], ""
            continue
        # Decoders drop the space before a first word, so each token is read behind the one before it.
        text = tokenizer.decode([*previous, number])
        text = text[len(before) :] if text.startswith(before) else text
        learned = label != IGNORE_ID
        kind: SpanKind = "learned" if learned else "ignored"
        if number in special:
            kind = "learned-special" if learned else "special"
        yield TokenSpan(kind, text)
        previous, before = [number], tokenizer.decode([number])


def _pictures(sample: EncodedSample, encoder: LlavaTaskEncoder) -> list[Image.Image]:
    """The tiles as images: the normalisation undone."""
    if sample.pixels is None or sample.pixels.ndim != 4:  # features of a tower are no picture
        return []
    mean, deviation = (np.asarray(three, np.float32)[:, None, None] for three in encoder.images.statistics)
    levels = ((sample.pixels * deviation + mean) * 255).round().clip(0, 255).astype(np.uint8)
    return [Image.fromarray(np.ascontiguousarray(tile.transpose(1, 2, 0))) for tile in levels]


def packs_of(samples: Sequence[SeenSample], encoder: LlavaTaskEncoder) -> list[list[SeenSample]]:
    """The packs that the encoder would make of these samples alone."""
    by_id = {id(sample.encoded): sample for sample in samples if sample.encoded is not None}
    encoded = [sample.encoded for sample in samples if sample.encoded is not None]
    chosen = encoder.select_samples_to_pack(encoded, last=True)
    packs = chosen if isinstance(chosen, list) else chosen.packs
    return [[by_id[id(one)] for one in pack] for pack in packs]
