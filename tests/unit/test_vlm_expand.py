"""Images at their full length in ids and labels: the numbers recorded from Megatron's merge."""

from __future__ import annotations

import numpy as np

from omniloom.vlm.encoded import EncodedSample, expand, flat_batch, megatron_batch

IMAGE = -200
FEATURES = 577


def _sample(image_tiles: dict[int, int], *, length: int = 1024, key: str = "a") -> EncodedSample:
    """Ids 0 to ``length - 1``, all learned but images; the reference's labels are the ids that follow."""
    ids = np.arange(length, dtype=np.int64)
    labels = ids.copy()
    for place in image_tiles:
        ids[place], labels[place] = IMAGE, -100
    images = [np.full(tiles * FEATURES, IMAGE, np.int64) for tiles in image_tiles.values()]
    total = length - len(image_tiles) + sum(map(len, images))
    return EncodedSample(
        __key__=key,
        __restore_key__=(0, 0, 0),
        ids=ids,
        labels=labels,
        image_ids=images,
        num_tiles=list(image_tiles.values()),
        total_tokens=total,
        images=[],
        plans=[],
    )


def test_an_image_at_the_start() -> None:
    ids, labels = expand(_sample({0: 1}), image_id=IMAGE, learn_after_images=False)
    assert len(ids) == 1600
    assert (ids[:577] == IMAGE).all()
    assert ids[577:].tolist() == list(range(1, 1024))
    assert (labels[:577] == -100).all(), "nothing is learned before, in and right after an image"
    assert labels[577:-1].tolist() == list(range(2, 1024))


def test_two_tiles_in_the_middle() -> None:
    ids, labels = expand(_sample({100: 2}), image_id=IMAGE, learn_after_images=False)
    assert len(ids) == 2177
    assert np.flatnonzero(ids == IMAGE).tolist() == list(range(100, 1254))
    assert (labels[99:1254] == -100).all()
    assert labels[:99].tolist() == list(range(1, 100))
    assert labels[1254:-1].tolist() == list(range(102, 1024))


def test_an_image_at_the_end_and_no_image() -> None:
    ids, labels = expand(_sample({1023: 1}), image_id=IMAGE)
    assert np.flatnonzero(ids == IMAGE).tolist() == list(range(1023, 1600))
    assert (labels[1022:] == -100).all()
    ids, labels = expand(_sample({}), image_id=IMAGE)
    assert ids.tolist() == list(range(1024))
    assert labels.tolist() == [*range(1, 1024), -100]


def test_two_images_and_the_token_after_them() -> None:
    sample = _sample({50: 2, 150: 1})
    ids, labels = expand(sample, image_id=IMAGE)
    places = [*range(50, 1204), *range(1303, 1880)]
    assert np.flatnonzero(ids == IMAGE).tolist() == places
    assert ids[1204:1303].tolist() == list(range(51, 150))
    assert ids[1880] == 151
    assert (labels[1203], labels[1879]) == (51, 151), "the text after an image is learned from its last feature"
    _, without = expand(sample, image_id=IMAGE, learn_after_images=False)
    assert (without[1203], without[1879]) == (-100, -100)
    assert (np.delete(without, [1203, 1879]) == np.delete(labels, [1203, 1879])).all()


def _with_pixels(sample: EncodedSample) -> EncodedSample:
    sample.pixels = np.zeros((sum(sample.num_tiles), 3, 2, 2), np.float32) if sample.num_tiles else None
    return sample


def test_a_flat_batch_has_no_padding_and_keeps_borders() -> None:
    samples = [_with_pixels(_sample({2: 1}, length=8, key="a")), _with_pixels(_sample({}, length=5, key="b"))]
    batch = flat_batch(samples, image_id=IMAGE, tile_pixels=2, base={"__key__": ["ab"], "__restore_key__": ()})
    assert batch.document_lengths.tolist() == [8 - 1 + 577, 5]
    assert batch.input_ids.shape == batch.labels.shape == (589,)
    assert batch.image_positions.tolist() == list(range(2, 579))
    assert batch.labels[583].item() == batch.labels[588].item() == -100, "no document learns the next one's first token"
    assert batch.images.shape == (1, 3, 2, 2)
    assert batch.document_keys == ["a", "b"]


def test_a_flat_batch_without_images() -> None:
    batch = flat_batch(
        [_sample({}, length=4)], image_id=IMAGE, tile_pixels=6, base={"__key__": ["a"], "__restore_key__": ()}
    )
    assert batch.images.shape == (0, 3, 6, 6)
    assert batch.image_positions.tolist() == batch.num_tiles.tolist() == []


def test_megatrons_tensors() -> None:
    rows = [[_with_pixels(_sample({2: 2}, length=8)), _sample({}, length=5)]]
    made = megatron_batch(rows, pad_id=7, packed=True, width=16)
    assert made["tokens"].tolist() == [[0, 1, IMAGE, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 7, 7, 7]]
    assert made["labels"].tolist() == [[0, 1, -100, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, -100, -100, -100, -100]]
    assert made["num_tiles"].tolist() == [2]
    assert made["cu_lengths"].tolist() == [[0, 7 + 1154, 12 + 1154]]
    assert made["max_lengths"].tolist() == [1161]
    assert made["imgs"].shape == (2, 3, 2, 2)
    assert {str(made[name].dtype) for name in ("num_tiles", "cu_lengths", "max_lengths")} == {"torch.int32"}
    plain = megatron_batch([[_sample({}, length=3)], [_sample({}, length=2)]], pad_id=7, packed=False)
    assert plain["tokens"].tolist() == [[0, 1, 2], [0, 1, 7]]
    assert plain["labels"].tolist() == [[0, 1, 2, -100], [0, 1, -100, -100]]
    assert plain["imgs"].tolist() == [[0.0]]
    assert plain["cu_lengths"].tolist() == plain["num_tiles"].tolist() == [[0]]
