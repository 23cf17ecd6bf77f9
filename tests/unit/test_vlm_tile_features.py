"""Features in place of images: the same losses, gradients and answers as with the images that they were made of."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omniloom.data.kinds import CrudeSample
from omniloom.errors import DatasetError, InputError, SampleError
from omniloom.generate.features import embed_prompts
from omniloom.model.documents import Documents
from omniloom.model.llava import ShownTiles
from omniloom.train.batches import work_of
from omniloom.train.flops import training_flops
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.encoded import LlavaBatch
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.samples import ConversationSample, cook_conversation
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder
from omniloom.vlm.tile_features import TileFeatures
from tests.contract.tiny_llava import CONFIG, packed_batch, tiny_llava

IMAGE = CONFIG.image_token_id
TURNS = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "a cat"}]


def pixels(tiles: int) -> torch.Tensor:
    return torch.randn(tiles, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def test_loss_and_gradients_are_those_of_the_images() -> None:
    model = tiny_llava()
    model.vision_tower.requires_grad_(False)
    ids = torch.tensor([1, *[IMAGE] * 4, 2, 3, 4, *[IMAGE] * 4, 5, 6])
    labels = torch.tensor([-100] * 5 + [3, 4] + [-100] * 5 + [6, -100])
    told = []
    for images in (pixels(2), model.seen(pixels(2)).detach()):
        model.zero_grad()
        loss = model.loss(ids, labels=labels, documents=Documents.of_lengths([7, 7]), images=images).total
        loss.backward()
        told.append((loss.item(), [one.grad.clone() for one in model.parameters() if one.grad is not None]))
    assert told[0][0] == pytest.approx(told[1][0], rel=1e-6)
    assert len(told[0][1]) == len(told[1][1])
    for one, other in zip(told[0][1], told[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@torch.no_grad()
def test_several_documents_may_show_the_same_features() -> None:
    model = tiny_llava()
    ids = torch.tensor([*[IMAGE] * 4, 1, *[IMAGE] * 4, 2, *[IMAGE] * 4, 3])
    shown = torch.tensor([1, 0, 1])
    of_pixels = model.embed(ids, images=ShownTiles(pixels(2), shown))
    of_features = model.embed(ids, images=ShownTiles(model.seen(pixels(2)), shown))
    assert torch.allclose(of_pixels, of_features, atol=1e-6)
    asked = embed_prompts(model, ids.tolist(), images=model.seen(pixels(2))[shown], device=torch.device("cpu"))
    assert torch.allclose(asked.embeddings, of_pixels, atol=1e-6)
    assert asked.names.tolist() == [-1, -2, -3, -4, 1, -5, -6, -7, -8, 2, -1, -2, -3, -4, 3]


def test_the_tower_is_visited_where_other_ranks_may_wait_for_it() -> None:
    """A rank with features and one with text alone come through the same collectives, forward and backward."""
    model = tiny_llava()
    visits: list[int] = []
    model.vision_tower.register_forward_hook(lambda *_: visits.append(1))
    ids, documents = torch.tensor([*[IMAGE] * 4, 1, 2]), Documents.of_lengths([6])
    features = torch.randn(1, 4, 16)
    model.loss(ids, labels=torch.tensor([-100] * 4 + [2, -100]), documents=documents, images=features).total.backward()
    assert len(visits) == 1
    assert all(one.grad is not None and not one.grad.any() for one in model.vision_tower.layers[0].parameters())
    model.embed(ids, images=features, visit_tower=False)
    assert len(visits) == 1


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(1, 4, 12), r"images of shape \(1, 4, 12\); expected .* \[tiles, tokens, 16\]"),
        (torch.zeros(1, 5, 16), "5 image features for 4 placeholders"),
    ],
)
def test_features_of_another_model(features: torch.Tensor, message: str) -> None:
    ids, documents = torch.tensor([*[IMAGE] * 4, 1, 2]), Documents.of_lengths([6])
    with pytest.raises(InputError, match=message):
        tiny_llava()(ids, documents=documents, images=features)


def test_a_batch_of_features_is_no_work_for_the_tower() -> None:
    batch = packed_batch(1)
    unseen = work_of(batch)
    batch.images = torch.zeros(1, 4, 16)
    seen = work_of(batch)
    assert (seen.tiles, seen.tiles_seen_before, unseen.tiles, unseen.tiles_seen_before) == (0, 1, 1, 0)
    parts = ("projector", "language_model")
    cost = [training_flops(CONFIG, work, trained=parts) for work in (seen, unseen)]
    # 4 patches of 3 x 4 x 4 pixels; one layer below the features, of 5 tokens: 4 d^2 + 2 d x 24, and 2 x 5 x 5 x 16.
    assert cost[1] - cost[0] == 2 * 4 * 48 * 16 + 2 * 5 * (4 * 16**2 + 2 * 16 * 24) + 4 * 16 * 5**2


def crude(**parts: Any) -> CrudeSample:
    names = {name.replace("__", "."): value for name, value in parts.items()}
    return CrudeSample({"__key__": "k", "__restore_key__": (0,), "json": TURNS, **names})


def test_parts_of_features_are_read_in_their_order() -> None:
    values = [np.full((1, 4, 16), number, np.float16) for number in range(3)]
    parts = {f"{number}.features.npy": values[number] for number in (2, 0, 1)}
    sample = cook_conversation(CrudeSample({"__key__": "k", "__restore_key__": (0,), "json": TURNS, **parts}))
    assert isinstance(sample, ConversationSample)
    assert [int(one.values[0, 0, 0]) for one in sample.images] == [0, 1, 2]
    single = cook_conversation(crude(features__npy=np.zeros((4, 16), np.float32)))
    assert isinstance(single, ConversationSample)
    assert single.images[0].values.shape == (1, 4, 16)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"features__npy": np.zeros((1, 4, 16), np.int64)}, "bad-features"),
        ({"features__npy": np.zeros(16, np.float32)}, "bad-features"),
        ({"features__npy": np.zeros((0, 4, 16), np.float32)}, "bad-features"),
        ({"features__npy": np.full((1, 4, 16), np.nan, np.float32)}, "bad-features"),
    ],
)
def test_parts_that_are_no_features(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(SampleError) as told:
        cook_conversation(crude(**parts))
    assert told.value.reason == reason


def test_beside_images_arrays_of_others_stay_what_they_were() -> None:
    """Data sets that had such parts before features could stand for images give what they gave."""
    array = np.zeros(3, np.int64)
    for parts in ({"features__npy": array, "jpg": b"photo"}, {"clip__features__npy": array, "jpg": b"photo"}):
        sample = cook_conversation(crude(**parts))
        assert isinstance(sample, ConversationSample)
        assert sample.images == [b"photo"]
    film = cook_conversation(crude(features__npy=array, mp4=b"film"))
    assert isinstance(film, ConversationSample)
    assert (film.images, film.video) == ([], b"film")
    text = cook_conversation(crude(clip__features__npy=array))
    assert isinstance(text, ConversationSample)
    assert text.images == []


def encoder(**settings: Any) -> LlavaTaskEncoder:
    return LlavaTaskEncoder(
        tokenizer=ByteTokenizer(["<|im_start|>", "<|im_end|>"]),
        template="chatml",
        images=ImageProcessor(tile_pixels=8, tile_tokens=4),
        settings=LlavaSettings(max_tokens=400, **settings),
    )


def encoded(value: Any, number: int = 0, **settings: Any) -> Any:
    task = encoder(**settings)
    sample = ConversationSample(__key__=str(number), __restore_key__=(0,), turns=TURNS, images=[value])
    return task.postencode_sample(task.preencode_sample(sample))


def test_a_batch_holds_features_as_they_are() -> None:
    values = torch.randn(2, 1, 4, 16).half().numpy()
    batch = encoder().batch([encoded(TileFeatures(one), number) for number, one in enumerate(values)])
    assert isinstance(batch, LlavaBatch)
    assert torch.equal(batch.images, torch.from_numpy(values[:, 0]).float())
    assert int((batch.input_ids == encoder().settings.image_id).sum()) == len(batch.image_positions) == 8


def test_features_of_another_number_of_tokens_are_left_out() -> None:
    with pytest.raises(SampleError, match="features of tiles with 5 tokens each found; the model's 4 expected"):
        encoded(TileFeatures(np.zeros((1, 5, 16), np.float32)))


@pytest.mark.parametrize("form", ["flat", "megatron"])
def test_features_and_pixels_do_not_share_a_batch(form: Any) -> None:
    rows = [encoded(TileFeatures(np.zeros((1, 4, 16), np.float32))), encoded(np.zeros((8, 8, 3), np.uint8))]
    with pytest.raises(DatasetError, match=r"tiles of shapes .* are in one batch: pixels and features"):
        encoder(form=form).batch(rows)


def test_llava_json_may_name_arrays(tmp_path: Path) -> None:
    """One question about one image: were it a photo, the set would be VQASample; an array is none."""
    from omniloom.data.convert.llava import convert_llava  # noqa: PLC0415

    for number in range(3):
        content = io.BytesIO()
        np.save(content, np.full((1, 4, 16), number, np.float16))
        (tmp_path / f"{number}.npy").write_bytes(content.getvalue())
    entries = [{"id": str(n), "image": f"{n}.npy", "conversations": TURNS} for n in range(3)]
    entries.append(
        {
            "id": "two",
            "image": ["1.npy", "2.npy"],
            "conversations": [{**TURNS[0], "value": "<image><image>?"}, TURNS[1]],
        }
    )
    (tmp_path / "seen.json").write_text(json.dumps(entries))
    convert_llava(tmp_path / "seen.json", images=tmp_path, out=tmp_path / "set", split_ratio="1,0,0")
    from omniloom.data.loader.config import WorkerConfig  # noqa: PLC0415
    from omniloom.data.open import get_val_dataset  # noqa: PLC0415

    alone = WorkerConfig(rank=0, world_size=1, num_workers=0)
    for place in (tmp_path / "set", tmp_path / "seen.json"):
        dataset = get_val_dataset(place, split_part="train", task_encoder=encoder(), worker_config=alone, batch_size=4)
        (batch,) = list(dataset)
        assert batch.images[:, 0, 0].tolist() == [0, 1, 2, 1, 2]
