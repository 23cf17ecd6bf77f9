"""Memory of a rank for a language model that transformers runs: counted as FSDP cuts it; other cuts are refused."""

from __future__ import annotations

import pytest

from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.config import LlavaConfig, ProjectorConfig
from omniloom.model.hugging_face import HuggingFaceDecoder
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.memory import Load, rank_memory
from tests.contract.tiny_llava import VISION
from tests.unit.hugging_face_pairs import transformers

SIZES = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}


def config() -> LlavaConfig:
    language = HuggingFaceDecoder(transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES))).config
    projector = ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(32,))
    return LlavaConfig(language=language, vision=VISION, projector=projector, image_token_id=63)


def test_its_parameters_are_counted_by_layers() -> None:
    model = build(config(), device="meta")
    found = rank_memory(model, ParallelConfig(), Load(tokens=64, tiles=1), ranks=4).parts["language_model"]
    # 12 d d + 13 d a layer, words and 1,024 positions, the last norm; a fourth each (Radford et al., GPT-2).
    layer, rest = 12 * 32 * 32 + 13 * 32, (64 + 1024) * 32 + 2 * 32
    assert found.weights == pytest.approx((3 * layer + rest) * 4 / 4, abs=64)
    assert found.gathered == (2 * layer + rest) * 4


def test_what_cannot_cut_it_is_refused() -> None:
    model = build(config(), device="meta")
    with pytest.raises(ConfigError, match="trained by one process, or under FSDP"):
        rank_memory(model, ParallelConfig(tensor=2), Load(tokens=64, tiles=1), ranks=4)
