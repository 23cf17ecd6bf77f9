"""What the encoder gives is what the model takes: packs cost what their samples cost, one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("jaxtyping", reason="the model needs omniloom[train]")

from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.encoded import LlavaBatch
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.layouts import DynamicTiles
from omniloom.vlm.samples import ConversationSample
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder

TOKENIZER = ByteTokenizer(["<|im_start|>", "<|im_end|>"])


def _encoder(**settings: Any) -> LlavaTaskEncoder:
    return LlavaTaskEncoder(
        tokenizer=TOKENIZER,
        template="chatml",
        images=ImageProcessor(tile_pixels=28, tile_tokens=4, layout=DynamicTiles(max_tiles=3)),
        settings=LlavaSettings(max_tokens=400, pack_tokens=4000, **settings),
    )


def _model() -> Llava:
    torch.manual_seed(0)
    language = DecoderConfig(
        family="llama",
        vocab_size=TOKENIZER.vocabulary_size,
        dim=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mlp_dim=64,
    )
    vision = VisionConfig(
        family="clip",
        image_size=28,
        patch_size=14,
        dim=16,
        num_layers=2,
        num_heads=2,
        mlp_dim=32,
        position_rows=2,
        class_tokens=1,
        class_positions=1,
    )
    projector = ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(32,))
    return Llava(LlavaConfig(language=language, vision=vision, projector=projector, image_token_id=-200))


def _sample(number: int, images: int) -> ConversationSample:
    draw = random.Random(number)
    turns = [
        {"from": "human", "value": "<image>" * images + "What?"},
        {"from": "gpt", "value": "word " * draw.randint(1, 9)},
        {"from": "human", "value": "And?"},
        {"from": "gpt", "value": "none"},
    ]
    noise = np.random.default_rng(number)
    pictures = [Image.fromarray(noise.integers(0, 256, (40, 20 + 30 * n, 3), dtype=np.uint8)) for n in range(images)]
    return ConversationSample(__key__=str(number), __restore_key__=(0, 0, number), turns=turns, images=pictures)


def _loss(model: Llava, batch: Any) -> tuple[float, int]:
    assert isinstance(batch, LlavaBatch)
    found = model.loss(
        batch.input_ids,
        labels=batch.labels,
        documents=Documents.of_lengths(batch.document_lengths.tolist()),
        images=batch.images,
        image_positions=batch.image_positions,
    )
    return float(found.total.detach()), found.tokens


def test_a_pack_costs_what_its_samples_cost() -> None:
    encoder, model = _encoder(), _model()
    encoded = [
        encoder.postencode_sample(encoder.preencode_sample(_sample(number, images)))
        for number, images in enumerate([1, 0, 2, 1, 0, 3])
    ]
    singles = [_loss(model, encoder.batch([one])) for one in encoded]
    pack = encoder.pack_selected_samples(encoded)  # type: ignore[arg-type]
    together, tokens = _loss(model, encoder.batch([pack]))
    assert tokens == sum(count for _, count in singles)
    assert together == pytest.approx(sum(loss for loss, _ in singles), rel=1e-5)
    batched, _ = _loss(model, encoder.batch(encoded))
    assert batched == pytest.approx(together, rel=1e-6)


def test_the_loss_falls_and_answers_alone_are_learned() -> None:
    encoder, model = _encoder(), _model()
    encoded = [encoder.postencode_sample(encoder.preencode_sample(_sample(n, 1))) for n in range(3)]
    batch: Any = encoder.batch(encoded)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(20):
        found = model.loss(
            batch.input_ids,
            labels=batch.labels,
            documents=Documents.of_lengths(batch.document_lengths.tolist()),
            images=batch.images,
        )
        optimizer.zero_grad()
        (found.total / found.tokens).backward()
        optimizer.step()
        losses.append(float(found.total.detach()))
    assert losses[-1] < 0.5 * losses[0]
