"""Questions of one conversation as documents of their own: what each shows, and that sharing images changes no loss."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from omniloom.errors import ConfigError, SampleError
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.initialize import initialize
from omniloom.model.llava import Llava
from omniloom.train.batches import PackedMicroBatch
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.conversation import ImagePart, Turn
from omniloom.vlm.encoded import EncodedQuestions, LlavaBatch
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.questions import questions_of
from omniloom.vlm.samples import ConversationSample
from omniloom.vlm.talks import Talk
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder

TOKENIZER = ByteTokenizer(("<|im_start|>", "<|im_end|>"))
IMAGE_ID = 300
CONFIG = LlavaConfig(
    language=DecoderConfig(
        family="llama", vocab_size=304, dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=24
    ),
    vision=VisionConfig(
        family="clip", image_size=8, patch_size=4, dim=16, num_layers=1, num_heads=2, mlp_dim=24, position_rows=2
    ),
    projector=ProjectorConfig(input_dim=16, output_dim=16),
    image_token_id=IMAGE_ID,
    feature_layers=(-1,),
)


def encoder(**settings: object) -> LlavaTaskEncoder:
    return LlavaTaskEncoder(
        tokenizer=TOKENIZER,
        template="chatml",
        images=ImageProcessor(tile_pixels=8, tile_tokens=4),
        settings=LlavaSettings(**{"max_tokens": 200, "image_id": IMAGE_ID, "turns": "apart", **settings}),  # type: ignore[arg-type]
    )


def sample(key: str, questions: int, colour: int) -> ConversationSample:
    turns = []
    for number in range(questions):
        place = "<image>\n" if number == 0 else ""
        turns += [{"from": "human", "value": f"{place}q{number}?"}, {"from": "gpt", "value": f"a{number}"}]
    image = Image.fromarray(np.random.default_rng(colour).integers(0, 255, (8, 8, 3), np.uint8))
    return ConversationSample(
        __key__=key, __restore_key__=(), __subflavors__=None, __sources__=None, turns=turns, images=[image]
    )


def batch_of(made: LlavaTaskEncoder, samples: list[ConversationSample]) -> LlavaBatch:
    chosen = made.pack_selected_samples([made.preencode_sample(one) for one in samples])  # type: ignore[arg-type]
    ready = [made.postencode_sample(one) for one in [made.preencode_sample(each) for each in samples]]
    assert len(chosen.samples) == sum(len(one.samples) for one in ready)  # type: ignore[union-attr]
    batch = made.batch([made.pack_selected_samples(ready)])  # type: ignore[arg-type]
    assert isinstance(batch, LlavaBatch)
    return batch


def test_each_question_shows_the_image_and_no_other_question() -> None:
    batch = batch_of(encoder(pack_tokens=1000), [sample("a", 3, 1)])
    documents = torch.split(batch.input_ids, batch.document_lengths.tolist())
    texts = [TOKENIZER.decode([i for i in row.tolist() if i != IMAGE_ID]) for row in documents]
    assert texts == [f"<|im_start|>user\n\nq{n}?<|im_end|>\n<|im_start|>assistant\na{n}<|im_end|>\n" for n in range(3)]
    assert [(row == IMAGE_ID).sum().item() for row in documents] == [4, 4, 4]
    assert batch.images.shape == (1, 3, 8, 8)
    assert batch.shown_tiles.tolist() == [0, 0, 0]
    assert (batch.labels != -100).sum().item() == 3 * len("a0") + 3  # each answer, and its end


def test_loss_and_gradients_are_those_of_documents_with_images_of_their_own() -> None:
    batch = batch_of(encoder(pack_tokens=1000), [sample("a", 3, 1), sample("b", 2, 2)])
    assert batch.shown_tiles.tolist() == [0, 0, 0, 1, 1]
    model = Llava(CONFIG)
    initialize(model, generator=torch.Generator().manual_seed(0), standard_deviation=0.2)
    shared = PackedMicroBatch.of(batch, torch.device("cpu"))
    loss = shared.loss(model).total
    loss.backward()
    gradients = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    copied = model.loss(
        batch.input_ids,
        labels=batch.labels,
        documents=Documents.of_lengths(batch.document_lengths.tolist()),
        images=batch.images[batch.shown_tiles],
    ).total
    copied.backward()
    assert shared.num_images == 2
    assert loss.item() == pytest.approx(copied.item(), rel=1e-6)
    for name, each in model.named_parameters():
        assert each.grad is None or torch.allclose(each.grad, gradients[name], atol=1e-5), name


def test_packs_count_shared_tiles_once() -> None:
    made = encoder(pack_tokens=1000, pack_tiles=4)
    (three,) = [made.preencode_sample(sample("a", 3, 1))]
    assert made.packing_cost(three) == {"tokens": sum(one.total_tokens for one in three.samples), "tiles": 1}  # type: ignore[union-attr]


def test_as_many_questions_as_are_asked_for_or_fit() -> None:
    random.seed(3)
    drawn = [
        tuple(len(one.ids) for one in encoder(most_questions=2).preencode_sample(sample("a", 12, 1)).samples)  # type: ignore[union-attr]
        for _ in range(20)
    ]
    assert {len(each) for each in drawn} == {2}
    assert len(set(drawn)) > 1, "q10? and q11? are longer, and are drawn now and then"
    one = encoder().preencode_sample(sample("a", 1, 1)).samples[0].total_tokens  # type: ignore[union-attr]
    fitting = encoder(max_tokens=one, pack_tokens=3 * one + 1).preencode_sample(sample("a", 9, 1))
    assert isinstance(fitting, EncodedQuestions)
    assert len(fitting.samples) == 3


def test_images_that_came_earlier_stand_before_later_questions() -> None:
    first, second = ImagePart(0), ImagePart(1)
    talk = Talk(
        (
            Turn("system", ("s",)),
            Turn("user", (first, "\none?")),
            Turn("assistant", ("1",)),
            Turn("user", ("not learned?",)),
            Turn("assistant", ("x",), learned=False),
            Turn("user", ("two ", second, "?")),
            Turn("assistant", ("2",)),
        ),
        images=("a", "b"),
    )
    apart = questions_of(talk)
    assert [each.turns for each in apart] == [
        (Turn("system", ("s",)), Turn("user", (first, "\none?")), Turn("assistant", ("1",))),
        (Turn("system", ("s",)), Turn("user", (first, "\n", "two ", second, "?")), Turn("assistant", ("2",))),
    ]
    with pytest.raises(SampleError, match="answer that is learned"):
        questions_of(replace(talk, turns=talk.turns[3:5]))


def test_megatrons_form_cannot_share() -> None:
    with pytest.raises(ConfigError, match="turns='apart' shares images"):
        encoder(form="megatron")
