"""Parts of the models against numbers that were published or worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.errors import ConfigError, InputError
from omniloom.model.activation import activation
from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, RopeConfig, VisionConfig
from omniloom.model.families import read_config, read_config_file, write_config
from omniloom.model.initialize import initialize
from omniloom.model.projector import Projector, pixel_shuffle, pool
from omniloom.model.rope import attention_factor, frequencies, rope_table, rotate

CPU = torch.device("cpu")


def tower(**fields: Any) -> VisionConfig:
    sizes = {"image_size": 336, "patch_size": 14, "position_rows": 24, "dim": 64, "num_layers": 2, "num_heads": 4}
    return VisionConfig(**{"family": "clip", **sizes, "mlp_dim": 256, **fields})


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_pixel_shuffle_in_internvls_order() -> None:
    one = torch.arange(16).reshape(1, 16, 1)
    assert pixel_shuffle(one, (4, 4), 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    two = torch.arange(32).reshape(1, 16, 2)
    assert pixel_shuffle(two, (4, 4), 2).tolist() == [
        [
            [0, 1, 2, 3, 8, 9, 10, 11],
            [4, 5, 6, 7, 12, 13, 14, 15],
            [16, 17, 18, 19, 24, 25, 26, 27],
            [20, 21, 22, 23, 28, 29, 30, 31],
        ]
    ]


def test_pixel_shuffle_of_an_oblong_grid() -> None:
    features = torch.arange(8).reshape(1, 8, 1)
    assert pixel_shuffle(features, (2, 4), 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    assert pixel_shuffle(features, (4, 2), 2).tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7]]]


def test_pool_takes_the_mean_of_neighbours() -> None:
    features = torch.arange(16.0).reshape(1, 16, 1)
    assert pool(features, (4, 4), 2)[0, :, 0].tolist() == [2.5, 4.5, 10.5, 12.5]


def test_numbers_of_parameters_are_megatrons() -> None:
    """What Megatron-LM's own unit tests count for its towers and projectors of these sizes."""
    clip = tower(class_tokens=1, class_positions=1, patch_bias=False, pre_norm=True)
    assert parameters(build(clip)) == 174_720
    radio = tower(family="radio", image_size=224, position_rows=2048 // 14, patch_bias=False, positions="cropped")
    assert parameters(build(radio)) == 1_501_824
    mlp = ProjectorConfig(input_dim=1024, hidden_dims=(256,), output_dim=64, norm="layer")
    assert parameters(Projector(mlp)) == 280_896
    assert parameters(Projector(ProjectorConfig(input_dim=1024, output_dim=64))) == 65_600


def test_mistrals_wide_projector_of_megatron() -> None:
    config = ProjectorConfig(input_dim=1024, hidden_dims=(14336,), output_dim=4096, bias=False)
    with torch.device("meta"):
        projector = Projector(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in projector.named_parameters()}
    assert shapes == {"fc1.weight": (14336, 1024), "fc2.weight": (4096, 14336)}


@pytest.mark.parametrize(
    ("vision", "reduction", "keeps_class", "expected"),
    [
        (tower(class_tokens=1, class_positions=1), "none", False, {336: 576, 448: 1024}),
        (tower(class_tokens=1, class_positions=1), "none", True, {336: 577}),
        (tower(class_tokens=1, class_positions=1), "pixel_shuffle", False, {448: 256}),
        (tower(family="siglip"), "pixel_shuffle", False, {448: 256}),
        (tower(family="radio", patch_size=16, class_tokens=8), "pool", False, {512: 256}),
    ],
)
def test_tokens_per_tile(vision: VisionConfig, reduction: Any, keeps_class: bool, expected: dict[int, int]) -> None:
    language = DecoderConfig(
        family="llama", vocab_size=8, dim=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=8, mlp_dim=8
    )
    projector = ProjectorConfig(input_dim=64, output_dim=8, reduction=reduction)
    config = LlavaConfig(
        language=language, vision=vision, projector=projector, image_token_id=7, keep_class_token=keeps_class
    )
    assert {side: config.image_tokens(side, side) for side in expected} == expected


def test_projectors_of_several_maps() -> None:
    projector = Projector(ProjectorConfig(input_dim=4, hidden_dims=(6, 5), output_dim=3, activation="relu2"))
    assert [name for name, _ in projector.named_parameters() if "weight" in name] == [
        "fc1.weight",
        "fc2.weight",
        "fc3.weight",
    ]
    assert projector(torch.randn(2, 9, 4), rows=3, columns=3).shape == (2, 9, 3)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("quick_gelu", 1.5, 1.5 / (1 + math.exp(-1.702 * 1.5))),
        ("gelu", 1.5, 0.5 * 1.5 * (1 + math.erf(1.5 / math.sqrt(2)))),
        ("gelu_pytorch_tanh", 1.5, 0.5 * 1.5 * (1 + math.tanh(0.7978845608 * 1.5 * (1 + 0.044715 * 1.5**2)))),
        ("relu2", 1.5, 2.25),
        ("relu2", -1.5, 0.0),
        ("silu", 1.5, 1.5 / (1 + math.exp(-1.5))),
    ],
)
def test_activations(name: str, value: float, expected: float) -> None:
    assert activation(name)(torch.tensor(value)).item() == pytest.approx(expected, rel=1e-6)


def test_an_activation_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"activation 'swish7' is not known. Use one of gelu, "):
        activation("swish7")


def test_rope_turns_pairs_and_scores_depend_on_distance() -> None:
    rope = RopeConfig(theta=100.0)
    assert frequencies(rope, head_dim=4, device=CPU).tolist() == pytest.approx([1.0, 0.1])
    turned = rotate(
        torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]), rope_table(rope, torch.tensor([2]), head_dim=4, dtype=torch.float32)
    )
    assert turned.flatten().tolist() == pytest.approx([math.cos(2), 0, math.sin(2), 0], abs=1e-6)
    query, key = torch.randn(2, 1, 4)

    def score(first: int, second: int) -> float:
        table = rope_table(rope, torch.tensor([first, second]), head_dim=4, dtype=torch.float32)
        both = rotate(torch.stack([query, key]), table)
        return float((both[0] * both[1]).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)


def test_llama3_keeps_fast_pairs_and_slows_slow_ones() -> None:
    """Llama 3.1: wave lengths below 8192 / 4 positions stay, those above 8192 become 8 times longer."""
    rope = RopeConfig(kind="llama3", theta=500_000.0, factor=8.0, original_positions=8192)
    plain = frequencies(RopeConfig(theta=500_000.0), head_dim=128, device=CPU)
    ratio = frequencies(rope, head_dim=128, device=CPU) / plain
    waves = 2 * math.pi / plain
    assert torch.equal(ratio[waves < 2048], torch.ones(int((waves < 2048).sum())))
    assert torch.allclose(ratio[waves > 8192], torch.tensor(1 / 8))
    middle = ratio[(waves > 2048) & (waves < 8192)]
    assert ((middle > 1 / 8) & (middle < 1)).all()


def test_yarns_attention_factor() -> None:
    rope = RopeConfig(kind="yarn", factor=4.0, original_positions=32768)
    assert attention_factor(rope) == pytest.approx(0.1 * math.log(4) + 1)
    assert attention_factor(RopeConfig()) == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "model_type None is not known here; clip, clip_vision_model, dinov2"),
        ({"model_type": "mixtral"}, "'mixtral' is not known here.*`hf:PATH`"),
        ({"model_type": "llama", "hidden_size": "wide"}, "'hidden_size' is 'wide', expected a whole number"),
        ({"model_type": "llama", "quantization_config": {}}, "the weights are quantised"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic' is not known"),
        ({"model_type": "llama", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"model_type": "llama", "num_key_value_heads": 5}, "32 query heads cannot share 5"),
        (
            {"model_type": "llava", "vision_config": {"model_type": "siglip_vision_model"}},
            "'default' drops one token, but a tower of family 'siglip' has 0",
        ),
        ({"model_type": "llava", "mm_vision_tower": "clip"}, "form of LLaVA's own program"),
        ({"model_type": "llava", "text_config": {"model_type": "llava"}}, "a part of the model is a whole model"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "num_hidden_layers": 2, "layer_types": ["x", "y"]},
            "'layer_types' is",
        ),
        ({"model_type": "radio", "layerscale_value": 0.5}, "'layerscale_value' is 0.5, expected 1.0"),
    ],
)
def test_config_files_that_cannot_be_honoured(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(given)


@pytest.mark.parametrize(
    ("given", "window"),
    [({}, 4096), ({"sliding_window": None}, None), ({"sliding_window": 1024}, 1024)],
    ids=["v0.1 says nothing", "v0.2 and v0.3 say null", "another"],
)
def test_mistrals_window(given: dict[str, Any], window: int | None) -> None:
    config = read_config({"model_type": "mistral", **given})
    assert isinstance(config, DecoderConfig)
    assert config.window == window
    assert read_config(write_config(config)) == config


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, RopeConfig(theta=10_000.0)),
        ({"rope_theta": 5e6, "rope_scaling": None}, RopeConfig(theta=5e6)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, RopeConfig(theta=7.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, RopeConfig(kind="linear", factor=4.0)),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 2.0}},
            RopeConfig(kind="yarn", factor=2.0, original_positions=4096),
        ),
    ],
)
def test_rope_in_old_and_new_files(given: dict[str, Any], expected: RopeConfig) -> None:
    config = read_config({"model_type": "llama", **given})
    assert isinstance(config, DecoderConfig)
    assert config.rope == expected


def test_radios_own_file_describes_the_training() -> None:
    """RADIO v2.5-H has 8 tokens before its patches and C-RADIO v4-H has 10, as Megatron-LM's configs count them."""
    teachers = [{"name": name} for name in ("clip", "siglip", "dino_v2", "sam", "clip")]
    arguments = {"model": "vit_huge_patch16_224", "cpe_max_size": 2048, "cls_token_per_teacher": True}
    given = {"architectures": ["RADIOModel"], "patch_size": 16}
    config = read_config({**given, "args": {**arguments, "teachers": teachers, "register_multiple": 8}})
    assert isinstance(config, VisionConfig)
    assert (config.class_tokens, config.register_tokens, config.prefix_tokens) == (4, 4, 8)
    assert (config.dim, config.num_layers, config.num_heads, config.mlp_dim) == (1280, 32, 16, 5120)
    assert (config.position_rows, config.patch_size) == (128, 16)
    newer = read_config({**given, "args": {**arguments, "teachers": teachers[:3], "register_multiple": 10}})
    assert isinstance(newer, VisionConfig)
    assert newer.prefix_tokens == 10
    assert newer == read_config({"model_type": "radio"})
    with pytest.raises(ConfigError, match="backbone 'eradio'"):
        read_config({**given, "args": {"model": "eradio", "teachers": []}})


def test_an_unknown_family_has_no_table() -> None:
    sizes = {"vocab_size": 8, "dim": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "head_dim": 8, "mlp_dim": 8}
    with pytest.raises(ConfigError, match="'nobody' has no files of its own here"):
        write_config(DecoderConfig(family="nobody", **sizes))  # type: ignore[arg-type]


def test_a_config_file_is_named_in_its_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config.json: not a readable config.json"):
        read_config_file(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="holds list, expected an object"):
        read_config_file(tmp_path)


def test_fresh_values_are_the_same_for_the_same_generator() -> None:
    config = tower(
        image_size=28, position_rows=2, class_tokens=1, class_positions=1, layer_scale=True, register_tokens=2
    )
    first, second = build(config), build(config)
    for module in (first, second):
        initialize(module, generator=torch.Generator().manual_seed(5))
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), name
    weight = first.get_parameter("layers.0.mlp.fc1.weight")
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert first.get_parameter("layers.0.mlp_scale").unique().tolist() == [1.0]


def test_a_model_has_parameters_only() -> None:
    """Nothing but weights need a value after a model was made on the meta device."""
    language = {"vocab_size": 8, "dim": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "head_dim": 8}
    for config in (tower(), DecoderConfig(family="llama", mlp_dim=8, **language)):  # type: ignore[arg-type]
        assert list(build(config, device="meta").buffers()) == []


def test_a_feature_layer_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"feature layers \(3,\) of a tower that has -3 to 2"):
        build(tower())(torch.zeros(1, 3, 28, 28), feature_layers=(3,))


def test_an_image_smaller_than_a_patch() -> None:
    with pytest.raises(ConfigError, match="10x10 pixels is smaller than a patch of 14"):
        build(tower())(torch.zeros(1, 3, 10, 10))
