"""`hf:` models: packed documents never see each other, whatever transformers does by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.errors import ConfigError, InputError
from omniloom.generate.greedy import generate_greedily
from omniloom.model.attention import AttendPacked
from omniloom.model.cache import AttendPrompts, KeyValueCache
from omniloom.model.config import LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.hugging_face import HuggingFaceDecoder, load_hugging_face
from omniloom.model.llava import Llava
from tests.unit.hugging_face_pairs import random_model, transformers

SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
KINDS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "packed by positions": ("GPTNeoX", {**SIZES, "intermediate_size": 48}, True),
    "learned positions with an offset": ("OPT", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}, False),
    "slopes instead of positions": ("Bloom", {"vocab_size": 96, "hidden_size": 32, "n_layer": 2, "n_head": 4}, False),
}


def wrapped(kind: str) -> tuple[Any, HuggingFaceDecoder]:
    family, fields, _ = KINDS[kind]
    model = random_model(
        getattr(transformers, f"{family}Config")(**fields), getattr(transformers, f"{family}ForCausalLM")
    )
    return model, HuggingFaceDecoder(model)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_pack_equals_each_document_alone(kind: str) -> None:
    model, ours = wrapped(kind)
    assert ours.packs is KINDS[kind][2]
    documents = Documents.of_lengths([5, 9, 3])
    tokens = torch.randint(0, 96, (17,), generator=torch.Generator().manual_seed(1))
    logits = ours.logits(ours(ours.embed(tokens), AttendPacked(documents, torch.device("cpu"))))
    for start, stop in documents.spans():
        alone = model(input_ids=tokens[None, start:stop]).logits[0]
        assert (logits[start:stop] - alone).abs().max() <= 1e-5
    tokens[5:14] = 7
    changed = ours.logits(ours(ours.embed(tokens), AttendPacked(documents, torch.device("cpu"))))
    assert torch.equal(changed[:5], logits[:5])
    assert torch.equal(changed[14:], logits[14:])


def test_a_model_that_caps_its_scores_is_refused() -> None:
    config = transformers.Gemma2Config(**SIZES, num_key_value_heads=2, intermediate_size=48, head_dim=8)
    model = random_model(config, transformers.Gemma2ForCausalLM, deviation=0.5)
    with pytest.raises(ConfigError, match="Gemma2ForCausalLM does more than a linear map after its last norm"):
        HuggingFaceDecoder(model)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_greedy_answers_are_those_of_transformers(kind: str) -> None:
    model, ours = wrapped(kind)
    model.eval()
    model.generation_config.eos_token_id = None
    prompts = [[1, 2, 3], [7, 50, 9, 8, 4], [90]]
    theirs = [
        model.generate(torch.tensor([prompt]), max_new_tokens=7, do_sample=False, pad_token_id=0)[0, len(prompt) :]
        for prompt in prompts
    ]
    together = generate_greedily(ours.eval(), prompts, max_new_tokens=7)
    assert [list(one.token_ids) for one in together] == [one.tolist() for one in theirs]


def test_it_is_the_language_model_of_a_llava(tmp_path: Path) -> None:
    wrapped("packed by positions")[0].save_pretrained(tmp_path)
    language = load_hugging_face(f"hf:{tmp_path}")
    vision = VisionConfig(
        family="siglip", image_size=8, patch_size=4, position_rows=2, dim=16, num_layers=1, num_heads=2, mlp_dim=16
    )
    projector = ProjectorConfig(input_dim=16, output_dim=32)
    config = LlavaConfig(
        language=language.config, vision=vision, projector=projector, image_token_id=-200, feature_layers=(-1,)
    )
    model = Llava(config, language_model=language)
    tokens = torch.tensor([1, -200, -200, -200, -200, 5, 6, 3, 4])
    labels = torch.tensor([-100, -100, -100, -100, 5, 6, -100, 4, -100])
    loss = model.loss(tokens, labels=labels, documents=Documents.of_lengths([7, 2]), images=torch.rand(1, 3, 8, 8))
    loss.total.backward()
    gradient = model.vision_tower.get_parameter("layers.0.mlp.fc1.weight").grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
    placed = [[1, -200, -200, -200, -200, 5], [3, 4]]
    both = generate_greedily(model.eval(), placed, images=torch.rand(1, 3, 8, 8), max_new_tokens=3)
    assert both[1] == generate_greedily(language.eval(), [[3, 4]], max_new_tokens=3)[0]
    cache = KeyValueCache(language.config, rows=1, capacity_tokens=4, dtype=torch.float32, device=torch.device("cpu"))
    with pytest.raises(InputError, match="AttendPrompts with a model of transformers"):
        language(language.embed(torch.tensor([1, 2])), AttendPrompts(Documents.of_lengths([2]), cache))
