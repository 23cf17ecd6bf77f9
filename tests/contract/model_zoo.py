"""Small configs of every family, and weights whose every number tells its name and place."""

import zlib
from dataclasses import replace

import torch

from omniloom.model.build import parameter_shapes
from omniloom.model.config import LlavaConfig, ProjectorConfig
from omniloom.model.families import read_config

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 4,
    "vocab_size": 199,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "image_size": 56,
    "patch_size": 14,
}
LANGUAGE_FAMILIES = {
    "llama": {"model_type": "llama", **TEXT},
    "llama-tied": {"model_type": "llama", **TEXT, "tie_word_embeddings": True},
    "llama-bias": {"model_type": "llama", **TEXT, "attention_bias": True},
    "mistral": {"model_type": "mistral", **TEXT, "num_key_value_heads": 2, "sliding_window": 16},
    "qwen2": {"model_type": "qwen2", **TEXT, "num_key_value_heads": 4},
    "qwen3": {"model_type": "qwen3", **TEXT, "num_key_value_heads": 4, "head_dim": 8},
}
VISION_FAMILIES = {
    "clip": {"model_type": "clip_vision_model", **VISION},
    "siglip": {"model_type": "siglip_vision_model", **VISION},
    "internvit-6b": {"model_type": "intern_vit_6b", **VISION, "num_attention_heads": 5, "hidden_size": 40},
    "internvit-300m": {
        "model_type": "intern_vit_6b",
        **VISION,
        "norm_type": "layer_norm",
        "qkv_bias": True,
        "qk_normalization": False,
    },
    "radio": {"model_type": "radio", **VISION, "mlp_ratio": 2, "max_img_size": 112},
    "dinov2": {"model_type": "dinov2", **VISION},
    "dinov2-registers": {"model_type": "dinov2_with_registers", **VISION, "num_register_tokens": 4},
    "dinov2-giant": {"model_type": "dinov2", **VISION, "use_swiglu_ffn": True},
}


def language(name, **changes):
    return replace(read_config(LANGUAGE_FAMILIES[name]), **changes)


def vision(name, **changes):
    return replace(read_config(VISION_FAMILIES[name]), **changes)


def llava(language_name="llama", vision_name="clip", *, image_token_id=198, **changes):
    text, tower = language(language_name), vision(vision_name)
    projector = ProjectorConfig(input_dim=tower.dim, hidden_dims=(text.dim,), output_dim=text.dim)
    return LlavaConfig(language=text, vision=tower, projector=projector, image_token_id=image_token_id, **changes)


def internvl():
    given = {"image_size": 56, "patch_size": 14, "hidden_size": 32, "intermediate_size": 64}
    vision_given = {"model_type": "internvl_vision", **given, "num_hidden_layers": 2, "num_attention_heads": 8}
    text = {**LANGUAGE_FAMILIES["qwen2"], "num_key_value_heads": 8}
    return read_config({"model_type": "internvl", "text_config": text, "vision_config": vision_given})


def every_config():
    yield "internvl", internvl()
    yield from ((name, language(name)) for name in LANGUAGE_FAMILIES)
    yield from ((name, vision(name)) for name in VISION_FAMILIES)
    yield "llava-mistral-clip", llava("mistral", "clip")
    yield "llava-llama-tied-siglip", llava("llama-tied", "siglip", keep_class_token=True)


def coded(name, shape, dtype):
    """Numbers that tell where they stand: a ramp from a start that the name gives, all bit patterns finite."""
    count = torch.Size(shape).numel()
    ramp = torch.arange(count, dtype=torch.int64) + zlib.crc32(name.encode()) % 1_000_003
    if dtype is torch.float32:
        return (ramp % (1 << 24)).to(torch.float32).reshape(shape)
    # 16 bits: the exponent's top bits stay below infinity
    bits = (ramp % 0x7000).to(torch.int16)
    return bits.view(dtype).reshape(shape)


def coded_weights(config, dtype=torch.float32):
    return {name: coded(name, shape, dtype) for name, shape in parameter_shapes(config).items()}
