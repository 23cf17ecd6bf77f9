"""LLaVA whole beside transformers, with no, one and three images, and what happens when counts do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.errors import ConfigError, InputError
from omniloom.generate.greedy import generate_greedily
from omniloom.model.attention import AttendPacked
from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.families import read_config, write_config
from omniloom.model.initialize import initialize
from omniloom.model.llava import Llava
from omniloom.model.loss import sum_of_losses
from tests.unit.hugging_face_pairs import ours_beside, random_model, reads_back, transformers, write_folder

IMAGE = 95
TEXT = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TOWER = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def their_llava(*, deviation: float = 0.1, **fields: Any) -> Any:
    text = transformers.LlamaConfig(**TEXT)
    tower = transformers.CLIPVisionConfig(**TOWER)
    config = transformers.LlavaConfig(text_config=text, vision_config=tower, image_token_index=IMAGE, **fields)
    return random_model(config, transformers.LlavaForConditionalGeneration, deviation=deviation)


def prompt(images: int, tokens_per_image: int) -> list[int]:
    return [1, 5, *([IMAGE] * tokens_per_image + [7, 8, 9]) * images, 11, 12]


def pixels(tiles: int, seed: int = 3, side: int = 32) -> torch.Tensor:
    return torch.randn(tiles, 3, side, side, generator=torch.Generator().manual_seed(seed))


VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "llava-1.5": ({}, 16),
    "last-layer": ({"vision_feature_layer": -1}, 16),
    "with-class-token": ({"vision_feature_select_strategy": "full"}, 17),
    "several-layers": ({"vision_feature_layer": [-2, 1]}, 16),
    "projector-without-bias": ({"multimodal_projector_bias": False}, 16),
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_logits_with_no_one_and_three_images(variant: str, tmp_path: Path) -> None:
    fields, tokens = VARIANTS[variant]
    model = their_llava(**fields)
    config, ours = ours_beside(model, tmp_path / "theirs")
    for images in (0, 1, 3):
        token_ids = torch.tensor(prompt(images, tokens))
        tiles = pixels(images) if images else None
        expected = model(input_ids=token_ids[None], pixel_values=tiles).logits[0]
        documents = Documents.of_lengths([len(token_ids)])
        assert (ours(token_ids, documents=documents, images=tiles) - expected).abs().max() <= 1e-5
    write_folder(config, ours, tmp_path / "ours")
    reads_back(transformers.LlavaForConditionalGeneration, tmp_path / "ours", model)
    assert read_config(write_config(config)) == config


PARTS = {
    "siglip and qwen2": ("SiglipVision", TOWER, "Qwen2", {"tie_word_embeddings": True}),
    "siglip and qwen3": ("SiglipVision", TOWER, "Qwen3", {"head_dim": 16}),
    "clip and mistral": ("CLIPVision", TOWER, "Mistral", {"sliding_window": 20}),
    "internvit and llama": ("InternVLVision", {**TOWER, "use_qk_norm": True, "norm_type": "rms_norm"}, "Llama", {}),
}


@pytest.mark.parametrize("parts", PARTS)
@torch.no_grad()
def test_other_towers_and_language_models(parts: str, tmp_path: Path) -> None:
    tower, tower_fields, language, language_fields = PARTS[parts]
    whole = tower == "SiglipVision"  # it has no class token to drop
    config = transformers.LlavaConfig(
        text_config=getattr(transformers, f"{language}Config")(**{**TEXT, **language_fields}),
        vision_config=getattr(transformers, f"{tower}Config")(**tower_fields),
        image_token_index=IMAGE,
        vision_feature_select_strategy="full" if whole else "default",
    )
    model = random_model(config, transformers.LlavaForConditionalGeneration)
    ours_config, ours = ours_beside(model, tmp_path / "theirs")
    token_ids = torch.tensor(prompt(2, 16))
    expected = model(input_ids=token_ids[None], pixel_values=pixels(2)).logits[0]
    logits = ours(token_ids, documents=Documents.of_lengths([len(token_ids)]), images=pixels(2))
    assert (logits - expected).abs().max() <= 1e-5
    write_folder(ours_config, ours, tmp_path / "ours")
    reads_back(transformers.LlavaForConditionalGeneration, tmp_path / "ours", model)


@torch.no_grad()
def test_a_pack_of_samples_equals_each_alone(tmp_path: Path) -> None:
    model = their_llava()
    _, ours = ours_beside(model, tmp_path)
    samples = [prompt(count, 16) for count in (1, 0, 3, 2)]
    tiles = pixels(6)
    packed = ours(
        torch.tensor([word for sample in samples for word in sample]),
        documents=Documents.of_lengths(map(len, samples)),
        images=tiles,
    ).split([len(sample) for sample in samples])
    first = 0
    for sample, count, logits in zip(samples, (1, 0, 3, 2), packed, strict=True):
        images = tiles[first : first + count] if count else None
        first += count
        expected = model(input_ids=torch.tensor([sample]), pixel_values=images).logits[0]
        assert (logits - expected).abs().max() <= 1e-5


def test_generates_what_transformers_generates(tmp_path: Path) -> None:
    model = their_llava(deviation=0.5)
    model.generation_config.eos_token_id = None
    _, ours = ours_beside(model, tmp_path)
    prompts = [prompt(count, 16) for count in (1, 3, 0)]
    answers = generate_greedily(ours, prompts, max_new_tokens=12, images=pixels(4))
    first = 0
    for tokens, count, answer in zip(prompts, (1, 3, 0), answers, strict=True):
        images = {"pixel_values": pixels(4)[first : first + count]} if count else {}
        first += count
        row = torch.tensor([tokens])
        alone = model.generate(
            input_ids=row, attention_mask=torch.ones_like(row), max_new_tokens=12, do_sample=False, **images
        )
        assert list(answer.token_ids) == alone[0, len(tokens) :].tolist()
        assert len(set(answer.token_ids)) > 3


@torch.no_grad()
def test_internvl_folds_patches_as_transformers_does(tmp_path: Path) -> None:
    tower = transformers.InternVLVisionConfig(**TOWER, attention_bias=True)
    text = transformers.Qwen2Config(**TEXT, tie_word_embeddings=True)
    config = transformers.InternVLConfig(vision_config=tower, text_config=text, image_token_id=IMAGE)
    model = random_model(config, transformers.InternVLForConditionalGeneration)
    ours_config, ours = ours_beside(model, tmp_path / "theirs", form="internvl")
    token_ids = torch.tensor(prompt(2, 4))
    expected = model(input_ids=token_ids[None], pixel_values=pixels(2)).logits[0]
    logits = ours(token_ids, documents=Documents.of_lengths([len(token_ids)]), images=pixels(2))
    assert (logits - expected).abs().max() <= 1e-5
    write_folder(ours_config, ours, tmp_path / "ours", form="internvl")
    reads_back(transformers.InternVLForConditionalGeneration, tmp_path / "ours", model)


# --- without transformers --------------------------------------------------------------------------------------


def small(**fields: Any) -> LlavaConfig:
    parts: dict[str, Any] = {
        "language": DecoderConfig(
            family="llama", vocab_size=64, dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48
        ),
        "vision": VisionConfig(
            family="clip",
            image_size=16,
            patch_size=4,
            position_rows=4,
            dim=16,
            num_layers=2,
            num_heads=2,
            mlp_dim=32,
            class_tokens=1,
            class_positions=1,
        ),
        "projector": ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(32,)),
        "image_token_id": -200,
    }
    return LlavaConfig(**{**parts, **fields})


def small_model(**fields: Any) -> Llava:
    model = build(small(**fields))
    initialize(model, generator=torch.Generator().manual_seed(1), standard_deviation=0.2)
    assert isinstance(model, Llava)
    return model


def test_a_batch_of_text_gives_the_tower_zero_gradients() -> None:
    model = small_model(feature_layers=(-1,))
    token_ids = torch.tensor([3, 4, 5, 6, 7])
    loss = model.loss(token_ids, labels=torch.tensor([4, 5, -100, 7, 8]), documents=Documents.of_lengths([3, 2]))
    loss.total.backward()
    assert loss.tokens == 4
    used = [*model.vision_tower.named_parameters(), *model.projector.named_parameters()]
    assert {name for name, parameter in used if parameter.grad is None} == set()
    assert all(torch.equal(parameter.grad, torch.zeros_like(parameter)) for _, parameter in used)
    alone = small_model(feature_layers=(-1,)).language_model
    stream = alone(alone.embed(token_ids), AttendPacked(Documents.of_lengths([3, 2]), torch.device("cpu")))
    expected = sum_of_losses(stream, alone.head_weight, torch.tensor([4, 5, -100, 7, 8]))
    assert torch.equal(loss.total, expected.total)


def test_the_black_tile_fits_any_projector() -> None:
    """A tower of 3 x 3 patches has no whole 2 x 2 squares; a batch of text must not fail for that."""
    vision = VisionConfig(
        family="siglip", image_size=12, patch_size=4, position_rows=3, dim=16, num_layers=2, num_heads=2, mlp_dim=16
    )
    projector = ProjectorConfig(input_dim=16, output_dim=32, reduction="pixel_shuffle")
    model = small_model(vision=vision, projector=projector)
    model.loss(torch.tensor([3, 4]), labels=torch.tensor([4, 5]), documents=Documents.of_lengths([2])).total.backward()
    gradient = model.vision_tower.position_embed.grad
    assert gradient is not None
    assert not gradient.any()


def test_a_tower_without_class_token_is_written_in_the_word_that_is_read_for_it() -> None:
    vision = VisionConfig(
        family="siglip", image_size=16, patch_size=8, position_rows=2, dim=16, num_layers=2, num_heads=2, mlp_dim=16,
        post_norm=True,
    )  # fmt: skip
    projector = ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(32,))
    written = write_config(small_model(vision=vision, projector=projector).config)
    assert written["vision_feature_select_strategy"] == "full"  # "default" would drop a patch
    again = read_config(written)
    assert isinstance(again, LlavaConfig)
    assert again.image_tokens(16, 16) == written["image_seq_length"] == 4


def test_a_frozen_tower_is_visited_too() -> None:
    model = small_model().requires_grad_(False)
    visits = []
    model.vision_tower.register_forward_hook(lambda *_: visits.append(1))
    model.embed(torch.tensor([1, 2]))
    model.embed(torch.tensor([1, 2]), images=torch.zeros(0, 3, 16, 16))
    assert len(visits) == 2
    model.embed(torch.tensor([1, 2]), visit_tower=False)
    assert len(visits) == 2


@torch.no_grad()
def test_images_of_several_sizes_in_one_batch() -> None:
    model = small_model()
    wide, square = torch.randn(1, 3, 16, 32), torch.randn(2, 3, 16, 16)
    token_ids = torch.tensor([1] + [-200] * 32 + [2] + [-200] * 32 + [3])
    embeddings = model.embed(token_ids, images=[wide, square])
    assert torch.equal(embeddings[1:33], model.image_features([wide]))
    assert torch.allclose(embeddings[34:66], model.image_features([square]), atol=1e-6)
    assert torch.equal(embeddings[[0, 33, 66]], model.language_model.embed(torch.tensor([1, 2, 3])))
    known = model.embed(token_ids, images=[wide, square], image_positions=(token_ids == -200).nonzero()[:, 0])
    assert torch.equal(embeddings, known)


@pytest.mark.parametrize(
    ("placeholders", "images", "message"),
    [
        (15, torch.zeros(1, 3, 16, 16), "16 image features for 15 placeholders"),
        (16, torch.zeros(2, 3, 16, 16), "32 image features for 16 placeholders"),
        (16, None, "16 placeholders .id -200., but no images"),
        (16, torch.zeros(3, 16, 24), r"images of shape \(3, 16, 24\)"),
        (16, torch.zeros(1, 1, 16, 16), r"images of shape \(1, 1, 16, 16\)"),
    ],
)
def test_counts_that_do_not_fit(placeholders: int, images: torch.Tensor | None, message: str) -> None:
    token_ids = torch.tensor([1] + [-200] * placeholders)
    with pytest.raises(InputError, match=message):
        small_model()(token_ids, documents=Documents.of_lengths([placeholders + 1]), images=images)


def test_documents_of_another_length() -> None:
    with pytest.raises(InputError, match="documents of 5 tokens, but 4 input ids"):
        small_model()(torch.tensor([1, 2, 3, 4]), documents=Documents.of_lengths([5]))


def test_what_llava_has_no_word_for_is_refused_before_anything_is_written() -> None:
    wide = ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(99,), bias=False, norm="layer", reduction="pool")
    with pytest.raises(ConfigError, match=r"widths \(99,\), not \(32,\); a projector with a layer norm; the reduction"):
        write_config(small(projector=wide))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"feature_layers": (-4,)}, "a tower of 2 layers has -3 to 2"),
        ({"projector": ProjectorConfig(input_dim=17, output_dim=32)}, "takes 17 features, the tower gives 16"),
        ({"projector": ProjectorConfig(input_dim=16, output_dim=31)}, "gives 31 features, the language model takes 32"),
        ({"norm_features": True}, "clip has no last norm"),
    ],
)
def test_configs_that_do_not_fit(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**fields)


def test_class_tokens_have_no_place_among_folded_squares() -> None:
    folded = ProjectorConfig(input_dim=16, output_dim=32, reduction="pixel_shuffle")
    with pytest.raises(ConfigError, match="keep_class_token with pixel_shuffle: a class token has fewer features"):
        small(projector=folded, keep_class_token=True)
    with pytest.raises(ConfigError, match="3x4 patches"):
        small(projector=folded).image_tokens(12, 16)


def test_a_class_token_stays_before_pooled_patches() -> None:
    pooled = ProjectorConfig(input_dim=16, output_dim=32, reduction="pool", factor=2)
    config = small(projector=pooled, keep_class_token=True)
    model = build(config)
    assert isinstance(model, Llava)
    tiles = pixels(2, side=config.vision.image_size)
    features = model.vision_tower(tiles, feature_layers=config.feature_layers)
    side = config.vision.image_size // config.vision.patch_size
    squares = features[:, 1:].unflatten(1, (side // 2, 2, side // 2, 2)).mean((2, 4)).flatten(1, 2)
    seen = model.seen(tiles)
    assert seen.shape[1] == config.image_tokens(config.vision.image_size, config.vision.image_size)
    torch.testing.assert_close(seen, torch.cat([features[:, :1], squares], dim=1))
