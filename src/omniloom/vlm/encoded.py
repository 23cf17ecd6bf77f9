"""Encoded samples, packs of them, and the two forms of a batch: flat with documents, and Megatron's padded rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from omniloom.data.kinds import Batch, Sample, edataclass
from omniloom.errors import DatasetError
from omniloom.vlm.tokens import IGNORE_ID

if TYPE_CHECKING:
    import torch

    from omniloom.vlm.layouts import TilePlan

Ids = npt.NDArray[np.int64]


@edataclass
class EncodedSample(Sample):
    """A conversation as ids, with its images still to be decoded, or as pixels.

    Attributes:
        ids: int64 (tokens,), one id for each image.
        labels: int64 (tokens,), -100 where nothing is learned; not shifted.
        image_ids: for each image, the ids that its place becomes: tile tags, and one placeholder a feature.
        num_tiles: tiles of each image, in order.
        total_tokens: length with the features of images.
        images: images whose pixels are not made yet.
        plans: tiles of each of them.
        video: whether the one image is a video.
        augment: whether its images are augmented.
        pixels: float32 (tiles, 3, height, width) of all images, once they are made; or (tiles, tokens, features) where
            features stand in place of them.
    """

    ids: Ids
    labels: Ids
    image_ids: list[Ids]
    num_tiles: list[int]
    total_tokens: int
    images: list[Any]
    plans: list[TilePlan]
    video: bool = False
    augment: bool = False
    pixels: npt.NDArray[np.float32] | None = None


@edataclass
class EncodedPack(Sample):
    """Samples that share a sequence.

    Attributes:
        samples: in their order in it.
    """

    samples: list[EncodedSample]


@edataclass
class EncodedQuestions(EncodedPack):
    """The questions of one sample, each with its answer a document of its own; see `omniloom.vlm.questions`.

    Documents that show the same images share the array of their pixels, and so the work of the vision tower.
    """


@edataclass
class LlavaBatch(Batch):
    """What `omniloom.model.Llava` is trained on: documents one after another in one flat row, no padding.

    Attributes:
        input_ids: int64 (tokens,), a placeholder for each image feature.
        labels: int64 (tokens,), the id after each token, -100 where nothing is learned and at each document's end.
        document_lengths: int64 (documents,), tokens of each document.
        images: float32 (tiles, 3, height, width) in the order of their placeholders; (0, 3, height, width) without any;
            (tiles, tokens, features) where samples hold `TileFeatures`.
        shown_tiles: int64 (places,), which of `images` stands at each place of a tile, in order. There are more places
            than tiles where documents share images.
        image_positions: int64 (features,), where `input_ids` has placeholders.
        num_tiles: int64 (images,), tiles of each image.
        document_keys: key of each document's sample.
        document_subflavors: subflavors of each document's sample.
        document_sets: int64 (documents,), position in the mix of the data set that each document is of.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    document_lengths: torch.Tensor
    images: torch.Tensor
    shown_tiles: torch.Tensor
    image_positions: torch.Tensor
    num_tiles: torch.Tensor
    document_keys: list[str]
    document_subflavors: list[dict[str, Any] | None]
    document_sets: torch.Tensor


def expand(sample: EncodedSample, *, image_id: int, learn_after_images: bool = True) -> tuple[Ids, Ids]:
    """Ids with every image at its full length, and the label of each: the id that follows it, where it is learned.

    Args:
        sample: the sample.
        image_id: the placeholder.
        learn_after_images: whether the text right after an image can be learned from the image's last feature. In
            Megatron's merge it cannot: there, the first word of a caption that follows its image is never trained.

    Returns:
        ids and labels, int64 (total_tokens,); the last label is -100.
    """
    places = np.flatnonzero(sample.ids == image_id)
    ids = _expanded(sample.ids, places, sample)
    targets = _expanded(sample.labels, places, sample, fill=IGNORE_ID)
    labels = np.full_like(targets, IGNORE_ID)
    labels[:-1] = targets[1:]
    if not learn_after_images:
        ends = places + np.cumsum([len(image) for image in sample.image_ids], dtype=np.int64) - np.arange(len(places))
        labels[ends - 1] = IGNORE_ID
    return ids, labels


def _expanded(row: Ids, places: Ids, sample: EncodedSample, *, fill: int | None = None) -> Ids:
    parts: list[Ids] = []
    end = 0
    for place, image in zip(places.tolist(), sample.image_ids, strict=True):
        parts += [row[end:place], image if fill is None else np.full_like(image, fill)]
        end = place + 1
    return np.concatenate([*parts, row[end:]])


def flat_batch(
    samples: Sequence[EncodedSample],
    *,
    image_id: int,
    tile_pixels: int,
    base: dict[str, Any],
    sets: Sequence[int] | None = None,
    learn_after_images: bool = True,
) -> LlavaBatch:
    """The batch of samples whose pixels are made, as one flat row.

    Args:
        samples: at least one.
        image_id: the placeholder.
        tile_pixels: side of a tile, for batches without images.
        base: base fields of the batch.
        sets: position in the mix of each sample's data set; ``None``: all are of the first.
        learn_after_images: see `expand`.

    Raises:
        DatasetError: some have pixels and others features, or features of another width.
    """
    import torch  # noqa: PLC0415 - samples are encoded without it

    expanded = [expand(one, image_id=image_id, learn_after_images=learn_after_images) for one in samples]
    ids = np.concatenate([ids for ids, _ in expanded])
    pixels, shown = _shared([sample.pixels for sample in samples if sample.pixels is not None and len(sample.pixels)])
    images = _joined(pixels) if pixels else np.zeros((0, 3, tile_pixels, tile_pixels), np.float32)
    return LlavaBatch(
        **base,
        input_ids=torch.from_numpy(ids),
        labels=torch.from_numpy(np.concatenate([labels for _, labels in expanded])),
        document_lengths=torch.tensor([len(ids) for ids, _ in expanded]),
        images=torch.from_numpy(images),
        shown_tiles=torch.from_numpy(shown),
        image_positions=torch.from_numpy(np.flatnonzero(ids == image_id)),
        num_tiles=torch.tensor([count for sample in samples for count in sample.num_tiles], dtype=torch.int64),
        document_keys=[sample.__key__ for sample in samples],
        document_subflavors=[sample.__subflavors__ for sample in samples],
        document_sets=torch.tensor([0] * len(samples) if sets is None else sets, dtype=torch.int64),
    )


def _shared(pixels: Sequence[npt.NDArray[np.float32]]) -> tuple[list[npt.NDArray[np.float32]], Ids]:
    """Each array once, and for each place of a tile the number of its tile among those of the arrays."""
    first_tile: dict[int, int] = {}
    different: list[npt.NDArray[np.float32]] = []
    tiles = 0
    for each in pixels:
        if id(each) not in first_tile:
            first_tile[id(each)] = tiles
            different.append(each)
            tiles += len(each)
    places = [first_tile[id(each)] + np.arange(len(each), dtype=np.int64) for each in pixels]
    return different, np.concatenate(places) if places else np.zeros(0, np.int64)


def _joined(pixels: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    shapes = sorted({each.shape[1:] for each in pixels}, key=str)
    if len(shapes) > 1:
        raise DatasetError(
            f"tiles of shapes {shapes[0]} and {shapes[1]} are in one batch: pixels and features, or features of two "
            "models. Use data sets of one kind in a mix."
        )
    return np.concatenate(pixels)


def megatron_batch(
    rows: Sequence[Sequence[EncodedSample]], *, pad_id: int, packed: bool, width: int | None = None
) -> dict[str, Any]:
    """The tensors that Megatron's ``get_batch`` expects, by its names.

    Labels are filled up with -100 and not, as there, with the pad token: in a vocabulary whose pad token is also the
    token that ends a turn, that end would never be learned. Both are ignored by its loss.

    Args:
        rows: samples of each row.
        pad_id: fills up ``tokens``.
        packed: whether rows are packs, whose borders are given as cumulative lengths.
        width: tokens of a row; ``None``: those of the longest.

    Returns:
        tokens int64 (rows, width), labels int64 (rows, width + 1), imgs float32 (tiles, 3, height, width) or a zero,
        num_tiles int32 (images,) or a zero, cu_lengths int32 (rows, packed + 1) and max_lengths int32 (rows,) or zeros.
    """
    import torch  # noqa: PLC0415 - samples are encoded without it

    ids = [np.concatenate([sample.ids for sample in row]) for row in rows]
    labels = [np.concatenate([sample.labels for sample in row]) for row in rows]
    width = width or max(map(len, ids))
    tokens = np.full((len(rows), width), pad_id, np.int64)
    targets = np.full((len(rows), width + 1), IGNORE_ID, np.int64)
    for row, (own_ids, own_labels) in enumerate(zip(ids, labels, strict=True)):
        kept = min(len(own_ids), width)
        tokens[row, :kept] = own_ids[:kept]
        targets[row, :kept] = own_labels[:kept]
    samples = [sample for row in rows for sample in row]
    pixels = [sample.pixels for sample in samples if sample.pixels is not None and len(sample.pixels)]
    tiles = [count for sample in samples for count in sample.num_tiles]
    ends = [np.cumsum([0, *(sample.total_tokens for sample in row)]) for row in rows] if packed else []
    longest = [max(sample.total_tokens for sample in row) for row in rows] if packed else []
    nothing = torch.zeros(1, 1, dtype=torch.int32)
    return {
        "tokens": torch.from_numpy(tokens),
        "labels": torch.from_numpy(targets),
        "imgs": torch.from_numpy(_joined(pixels)) if pixels else torch.zeros(1, 1),
        "num_tiles": torch.tensor(tiles, dtype=torch.int32) if tiles else nothing,
        "cu_lengths": torch.tensor(np.stack(ends), dtype=torch.int32)
        if packed
        else torch.zeros(1, 1, dtype=torch.int32),
        "max_lengths": torch.tensor(longest, dtype=torch.int32) if packed else nothing,
    }
