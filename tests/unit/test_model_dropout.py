"""Dropout: nothing in evaluation, the right share in training, and draws that hang on a batch's samples alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from omniloom.errors import ConfigError
from omniloom.model.documents import Documents
from omniloom.model.dropout import DropoutConfig, add_dropout, draws
from omniloom.model.llava import Llava
from omniloom.parallel.checkpointing import recompute_layers
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.parts import PartConfig, dropout_of
from tests.unit.test_train_kept_features import CONFIG, IMAGE, model, tiles

PLACES = 3
BOTH = DropoutConfig(stream=0.3, words=0.3)
BATCH = PackedMicroBatch(
    input_ids=torch.tensor([*[IMAGE] * 4, 3, 4, 5] * PLACES),
    labels=torch.tensor([*[-100] * 4, 4, 5, 6] * PLACES),
    documents=Documents.of_lengths([7] * PLACES),
    images=tiles(PLACES),
    image_positions=torch.tensor([7 * place + n for place in range(PLACES) for n in range(4)]),
    learned_tokens=3 * PLACES,
    num_images=PLACES,
    seed=11,
)


def leaving_out(config: DropoutConfig) -> Llava:
    made = model()
    add_dropout(made, {"language_model": config})
    return made


def test_nothing_is_left_out_in_evaluation() -> None:
    plain, other = model().eval(), leaving_out(BOTH).eval()
    assert torch.equal(BATCH.loss(plain).total, BATCH.loss(other).total)
    assert draws(other)
    assert not draws(plain)
    assert not draws(leaving_out(DropoutConfig()))


def test_draws_hang_on_the_seed_of_the_batch_alone() -> None:
    made = leaving_out(BOTH).train()
    once = BATCH.loss(made).total
    torch.manual_seed(77)
    torch.rand(5)
    assert torch.equal(BATCH.loss(made).total, once)
    assert not torch.equal(replace(BATCH, seed=12).loss(made).total, once)
    assert not torch.equal(once, BATCH.loss(model().train()).total)


def test_a_share_of_words_and_none_of_the_image_is_left_out() -> None:
    made = leaving_out(DropoutConfig(words=0.25)).train()
    ids = torch.arange(3, 83).repeat(500)
    torch.manual_seed(0)
    gone = (made.language_model.embed(ids) == 0).all(dim=1)
    assert gone.float().mean().item() == pytest.approx(0.25, abs=0.01)  # 40,000 draws: a deviation is 0.002
    whole = made.language_model.embed(ids)
    assert torch.equal(whole[~(whole == 0).all(dim=1)], model().language_model.embed(ids)[~(whole == 0).all(dim=1)])
    features = made.image_features([tiles(2)])
    assert torch.equal(features, model().image_features([tiles(2)]))


def test_a_stream_is_the_same_on_average() -> None:
    """Of a layer's inputs a share is zero, and the others are larger by as much (Srivastava et al., section 10)."""
    made = leaving_out(DropoutConfig(stream=0.2)).train()
    seen: list[torch.Tensor] = []
    layer = made.language_model.get_submodule("layers.0")
    layer.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    for seed in range(400):
        replace(BATCH, seed=seed).loss(made)
    inputs = torch.stack(seen)
    assert (inputs == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    plain = model()
    expected = plain.embed(BATCH.input_ids, images=BATCH.images)
    assert torch.allclose(inputs.mean(0), expected, atol=0.25 * float(expected.detach().std()))


def test_layers_that_are_computed_again_draw_the_same() -> None:
    once, again = leaving_out(BOTH).train(), leaving_out(BOTH).train()
    recompute_layers(again, {"language_model": 1})
    for each in (once, again):
        BATCH.loss(each).total.backward()  # type: ignore[no-untyped-call]
    for (name, one), other in zip(once.named_parameters(), again.parameters(), strict=True):
        if one.grad is not None and other.grad is not None:
            assert torch.equal(one.grad, other.grad), name


def test_what_cannot_leave_anything_out_is_refused() -> None:
    for part, config, told in (
        ("projector", BOTH, "parts.projector.dropout: found, but this part has no layers"),
        ("vision_tower", BOTH, "parts.vision_tower.dropout.words: 0.3 found, but this part has no words"),
    ):
        with pytest.raises(ConfigError, match=told):
            add_dropout(model(), {part: config})
    with pytest.raises(ConfigError, match="stream 1 and words 0 found"):
        DropoutConfig(stream=1.0)
    with pytest.raises(ConfigError, match=r"parts\.language_model.dropout: found with parallel.pipeline 2"):
        dropout_of({"language_model": PartConfig(dropout=BOTH)}, stages=2)
    assert dropout_of({"language_model": PartConfig()}, stages=2) == {}
    add_dropout(model(), {"vision_tower": DropoutConfig(stream=0.1)})
    assert CONFIG.language.num_layers == 2
