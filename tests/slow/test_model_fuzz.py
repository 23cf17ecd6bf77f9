"""Random language models of every family beside transformers, packs and answers included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.generate.greedy import generate_greedily
from omniloom.model.attention import AttendPacked
from omniloom.model.documents import Documents
from tests.unit.hugging_face_pairs import ours_beside, random_model, transformers

pytestmark = pytest.mark.slow


def a_config(draw: random.Random) -> tuple[str, dict[str, Any]]:
    family = draw.choice(["Llama", "Mistral", "Qwen2", "Qwen3"])
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2, 4])
    head_dim = draw.choice([4, 8, 16])
    fields: dict[str, Any] = {
        "vocab_size": draw.randint(20, 200),
        "hidden_size": heads * head_dim,
        "intermediate_size": draw.randint(8, 80),
        "num_hidden_layers": draw.randint(1, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": draw.choice([1e-5, 1e-6]),
        "tie_word_embeddings": draw.random() < 0.4,
        "max_position_embeddings": 128,
        "rope_parameters": a_rope(draw),
    }
    if family != "Qwen2":
        fields["head_dim"] = draw.choice([head_dim, 2 * head_dim])
    if family in {"Llama", "Qwen3"}:
        fields["attention_bias"] = draw.random() < 0.5
    if family == "Llama":
        fields["mlp_bias"] = draw.random() < 0.5
    if family == "Mistral":
        fields["sliding_window"] = draw.choice([None, 1, 4, 50])
    if family.startswith("Qwen") and draw.random() < 0.5:
        fields |= {"use_sliding_window": True, "sliding_window": draw.choice([1, 4]), "max_window_layers": 1}
    return family, fields


def a_rope(draw: random.Random) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": draw.choice([1e4, 5e5, 1e6])}
    kind = draw.choice(["default", "linear", "llama3", "yarn"])
    original = {"original_max_position_embeddings": draw.choice([16, 64])}
    more: dict[str, dict[str, Any]] = {
        "default": {},
        "linear": {"factor": draw.choice([2.0, 3.5])},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **original},
        "yarn": {"factor": draw.choice([1.0, 4.0]), **original, **draw.choice([{}, {"beta_fast": 16.0}])},
    }
    if kind == "yarn" and draw.random() < 0.3:
        rope["attention_factor"] = 1.25
    return {**rope, "rope_type": kind, **more[kind]}


@pytest.mark.parametrize("seed", range(40))
def test_a_random_model(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    family, fields = a_config(draw)
    config = getattr(transformers, f"{family}Config")(**fields)
    model = random_model(config, getattr(transformers, f"{family}ForCausalLM"), deviation=0.2)
    model.generation_config.eos_token_id = None
    _, ours = ours_beside(model, tmp_path)
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, fields["vocab_size"], (draw.randint(1, 40),), generator=generator) for _ in range(3)]
    documents = Documents.of_lengths(map(len, prompts))
    with torch.no_grad():
        stream = ours(ours.embed(torch.cat(prompts)), AttendPacked(documents, torch.device("cpu")))
        expected = torch.cat([model(input_ids=prompt[None]).logits[0] for prompt in prompts])
    assert (ours.logits(stream) - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    answers = generate_greedily(ours, [prompt.tolist() for prompt in prompts], max_new_tokens=6)
    for prompt, answer in zip(prompts, answers, strict=True):
        row = prompt[None]
        # Without its cache: with a window of one token, transformers 5.24 answers differently with and without it.
        whole = model.generate(
            row, attention_mask=torch.ones_like(row), max_new_tokens=6, do_sample=False, use_cache=False
        )
        assert list(answer.token_ids) == whole[0, len(prompt) :].tolist(), (family, fields)
