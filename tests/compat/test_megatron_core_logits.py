"""Logits of megatron-core's own models on checkpoints written here equal ours. Skipped without megatron-core.

Where megatron-core asks for a CUDA device it is given the CPU, its tower gets layers without Transformer Engine that
look both ways, as that engine's do, and nothing is dropped, so that no random numbers are drawn. All else is its own.
"""

import contextlib
import dataclasses
import importlib.util

import pytest
import torch
from tests.contract.model_zoo import language, llava, vision

from omniloom.conversion.published import Published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.model.attention import AttendPacked
from omniloom.model.build import build
from omniloom.model.config import ProjectorConfig
from omniloom.model.documents import Documents
from omniloom.weights.filling import fill
from omniloom.weights.source import InMemory

if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.core") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.models.vision.clip_vit_model import CLIPViTModel
from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from torch.testing._internal.distributed.fake_pg import FakeStore

FAMILIES = ["llama", "llama-tied", "mistral", "qwen2", "qwen3"]
THEIR_IMAGE = -200
COMMON = {
    "use_cpu_initialization": True,
    "perform_initialization": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "bias_dropout_fusion": False,
    "apply_rope_fusion": False,
}


class NoRandomNumbers:
    """Stands where megatron-core keeps the state of a CUDA generator."""

    @staticmethod
    def fork(*_):
        return contextlib.nullcontext()


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(tensor_parallel, "get_cuda_rng_tracker", NoRandomNumbers)
    torch.distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    parallel_state.initialize_model_parallel(1, 1, create_gloo_process_groups=False)
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def language_settings(config):
    return TransformerConfig(
        num_layers=config.num_layers,
        hidden_size=config.dim,
        num_attention_heads=config.num_heads,
        num_query_groups=config.num_kv_heads,
        kv_channels=config.head_dim,
        ffn_hidden_size=config.mlp_dim,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=config.norm_eps,
        add_bias_linear=False,
        add_qkv_bias=config.qkv_bias,
        qk_layernorm=config.qk_norm,
        **COMMON,
    )


def language_layers(config):
    return get_gpt_layer_local_spec(qk_layernorm=config.qk_norm, normalization="RMSNorm")


def randomized(config):
    """A model of ours with weights of the size of trained ones, norms and biases that are not 1 and 0 included."""
    torch.manual_seed(7)
    model = build(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.2)
    return model


def written(model, config, folder, prefix):
    """The model in Megatron's layout: the state that its rank 0 would load."""
    weights = {prefix + name: value for name, value in model.state_dict().items()}
    wanted = Wanted(to="megatron", transformer_engine=False)
    target = plan_target(Published(None, "omniloom", config, InMemory(weights)), wanted)
    fill(target.plan, target.source, folder)
    return torch.load(folder / "iter_0000001/mp_rank_00/model_optim_rng.pt", weights_only=False)


def loaded(model, saved):
    report = model.load_state_dict(saved["model"], strict=False)
    assert not report.unexpected_keys
    assert [key for key in report.missing_keys if "_extra_state" not in key] == []
    return model.eval()


def later_tokens_hidden(count):
    return torch.triu(torch.ones(1, 1, count, count, dtype=torch.bool), 1)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_language_model_scores_words_as_megatron_core_does(tmp_path, name):
    config = language(name)
    ours = randomized(config)
    saved = written(ours, config, tmp_path, "language_model.")
    theirs = GPTModel(
        language_settings(config),
        language_layers(config),
        vocab_size=saved["args"].padded_vocab_size,
        max_sequence_length=64,
        share_embeddings_and_output_weights=config.tied_head,
        position_embedding_type="rope",
        rotary_base=config.rope.theta,
    )
    loaded(theirs, saved)
    tokens = torch.randint(0, config.vocab_size, (12,), generator=torch.Generator().manual_seed(1))
    expected = theirs(tokens[None], torch.arange(12)[None], later_tokens_hidden(12))[0, :, : config.vocab_size]
    found = ours.logits(ours(ours.embed(tokens), AttendPacked(Documents.of_lengths([12]), torch.device("cpu"))))
    assert expected.abs().max() > 0.1
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1)


ACTIVATIONS = {
    "clip": lambda x: x * torch.sigmoid(1.702 * x),
    "siglip": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def combined(name):
    """Mistral and a tower as Megatron joins them: the last layer's features, a wide projector without bias."""
    tower, text = vision(name), language("mistral", window=None)
    projector = ProjectorConfig(
        input_dim=tower.dim, hidden_dims=(text.mlp_dim,), output_dim=text.dim, bias=False, activation="gelu"
    )
    joined = dataclasses.replace(llava("mistral", name), language=text, projector=projector, feature_layers=(-1,))
    return dataclasses.replace(joined, norm_features=name == "siglip")  # Megatron's SigLIP ends with its norm


def their_llava(name, config, padded, monkeypatch):
    tower = config.vision
    settings = TransformerConfig(
        num_layers=tower.num_layers,
        hidden_size=tower.dim,
        num_attention_heads=tower.num_heads,
        ffn_hidden_size=tower.mlp_dim,
        activation_func=ACTIVATIONS[name],
        layernorm_epsilon=tower.norm_eps,
        **COMMON,
    )
    settings.vision_model_type = name
    layers = get_vit_layer_with_local_spec()
    layers.submodules.self_attention.params["attn_mask_type"] = AttnMaskType.no_mask
    # Its default norm before the layers is one that it cannot build without Transformer Engine.
    given = CLIPViTModel.__init__.__defaults__
    monkeypatch.setattr(CLIPViTModel.__init__, "__defaults__", (WrappedTorchNorm, WrappedTorchNorm, *given[2:]))
    projection = dataclasses.replace(
        language_settings(config.language),
        gated_linear_unit=False,
        activation_func=torch.nn.functional.gelu,
        ffn_hidden_size=config.projector.hidden_dims[0],
    )
    mlp = language_layers(config.language).submodules.mlp.submodules
    return LLaVAModel(
        language_settings(config.language),
        language_layers(config.language),
        padded,
        64,
        settings,
        layers,
        name == "clip",
        projection,
        MLPSubmodules(linear_fc1=mlp.linear_fc1, linear_fc2=mlp.linear_fc2),
        language_position_embedding_type="rope",
        language_rotary_base=config.language.rope.theta,
        img_h=tower.image_size,
        img_w=tower.image_size,
        patch_dim=tower.patch_size,
    )


@pytest.mark.parametrize("images", [0, 1, 3])
@pytest.mark.parametrize("name", ACTIVATIONS)
@torch.no_grad()
def test_llava_scores_words_as_megatron_core_does(tmp_path, monkeypatch, name, images):
    config = combined(name)
    ours = randomized(config)
    saved = written(ours, config, tmp_path, "")
    theirs = loaded(their_llava(name, config, saved["args"].padded_vocab_size, monkeypatch), saved)
    features = config.image_tokens(config.vision.image_size, config.vision.image_size)
    side = config.vision.image_size
    pixels = torch.randn(images, 3, side, side, generator=torch.Generator().manual_seed(3))
    words = [1, 5, *[THEIR_IMAGE, 7, 8, 9] * images, 11, 12]
    spread = [
        word for each in words for word in ([config.image_token_id] * features if each == THEIR_IMAGE else [each])
    ]
    count = len(spread)
    expected, _ = theirs(pixels, torch.tensor([words]), torch.arange(len(words))[None], later_tokens_hidden(count))
    found = ours(torch.tensor(spread), documents=Documents.of_lengths([count]), images=pixels if images else None)
    expected = expected[0, :, : config.language.vocab_size]
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1)
