"""Operations of a step, beside torch's own count of the same step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from omniloom.model.build import build
from omniloom.model.config import LlavaConfig, ProjectorConfig
from omniloom.model.documents import Documents
from omniloom.model.families import read_config
from omniloom.train.flops import Work, causal_attention, tower_forward, training_flops
from omniloom.train.parts import PartConfig, freeze

LENGTHS = (30, 18)
PARTS = ("vision_tower", "projector", "language_model")


def tiny(*, shuffle: bool = False, tied: bool = False) -> LlavaConfig:
    text = {
        "model_type": "llama", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    tower = {
        "model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14,
    }  # fmt: skip
    projector = ProjectorConfig(
        input_dim=24, output_dim=32, hidden_dims=(48,), reduction="pixel_shuffle" if shuffle else "none"
    )
    language, vision = read_config(text), read_config(tower)
    return LlavaConfig(
        language=language, vision=vision, projector=projector, image_token_id=96, feature_layers=(-1,)
    )  # fmt: skip


def counted(config: LlavaConfig, trained: tuple[str, ...]) -> tuple[int, Work]:
    """Operations of the matrices and convolutions of a step, by torch; attention is left out on both sides."""
    model = build(config)
    freeze(model, {part: PartConfig(train=part in trained) for part in PARTS})
    tokens = config.image_tokens(56, 56)
    ids = torch.randint(0, 90, (sum(LENGTHS),))
    ids[2 : 2 + tokens] = config.image_token_id
    labels = torch.full_like(ids, -100)
    labels[20:29] = 5
    with FlopCounterMode(display=False) as counter:
        images = torch.randn(1, 3, 56, 56)
        loss = model.loss(ids, labels=labels, documents=Documents.of_lengths(LENGTHS), images=images)  # type: ignore[operator]
        loss.total.backward()
    by_kind = counter.get_flop_counts()["Global"]
    attention = sum(number for kind, number in by_kind.items() if "attention" in str(kind) or "bmm" in str(kind))
    return sum(by_kind.values()) - attention, Work(documents=LENGTHS, learned_tokens=9, tiles=1)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("trained", [("projector",), ("projector", "language_model"), PARTS])
def test_matrices_are_counted_as_torch_counts_them(trained: tuple[str, ...], shuffle: bool) -> None:
    config = tiny(shuffle=shuffle)
    theirs, work = counted(config, trained)
    # Without attention: its heads are set to nothing.
    ours = training_flops(config, work, trained=trained)
    language = causal_attention(config.language, LENGTHS) * 3
    tower = 3 * 4 * 24 * 17**2 * (3 if "vision_tower" in trained else 1)
    # The tower's first convolution has no gradient by the pixels, and the first layer trains no input of its own.
    slack = 2 * 3 * 14**2 * 24 * 16 if "vision_tower" in trained else 0
    assert theirs <= ours - language - tower <= theirs + slack


def test_attention_counts_the_pairs_that_see_each_other() -> None:
    config = tiny().language
    width = 4 * 8
    pairs = sum(seen for length in LENGTHS for seen in range(1, length + 1))
    assert causal_attention(config, LENGTHS) == 3 * 4 * width * pairs
    windowed = replace(config, window=5)
    pairs = sum(min(seen, 5) for length in LENGTHS for seen in range(1, length + 1))
    assert causal_attention(windowed, LENGTHS) == 3 * 4 * width * pairs


def test_a_tower_is_run_to_the_last_layer_that_is_used() -> None:
    config = tiny()
    whole, shorter = tower_forward(config), tower_forward(replace(config, feature_layers=(-2,)))
    patches = 2 * 3 * 14**2 * 24 * 16
    assert (whole - patches) * 2 == (shorter - patches) * 3


def test_a_forward_and_a_backward_pass_of_llama_7b_take_six_operations_a_weight_and_token() -> None:
    text = {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    }  # fmt: skip
    base = tiny()
    llama = read_config(text)
    projector = replace(base.projector, output_dim=4096)
    config = LlavaConfig(language=llama, vision=base.vision, projector=projector, image_token_id=1)  # type: ignore[arg-type]
    work = Work(documents=(1,) * 1000, learned_tokens=1000, tiles=0)
    weights = 6_738_415_616 - 32000 * 4096 - 65 * 4096  # without the embedding, which multiplies nothing, and norms
    done = training_flops(config, work, trained=PARTS)
    assert done == pytest.approx(6 * weights * 1000, rel=1e-3)
