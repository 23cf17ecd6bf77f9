"""What a trained model is asked is what stood before the answer in training, to the last token."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.data.kinds import VQASample
from omniloom.errors import ConfigError
from omniloom.generate.prompts import Prompter
from omniloom.model.config import LlavaConfig
from omniloom.train.data import DataConfig, task_encoder
from omniloom.train.model_files import ModelConfig, model_config
from omniloom.vlm.encoded import EncodedSample, expand
from omniloom.vlm.tokenizer import HuggingFaceTokenizer

tokenizers = pytest.importorskip("tokenizers")
NAMES = ["<|im_start|>", "<|im_end|>", "<s>", "<pad>", "<img>", "</img>", "<|image_pad|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{{ mood }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<img><|image_pad|></img>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ mood }}\n"
    "{% endif %}"
)


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelConfig, LlavaConfig]:
    """A tiny model's description beside a tokenizer with a chat template of its own."""
    folder = tmp_path_factory.mktemp("model")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator([], tokenizers.trainers.BpeTrainer(special_tokens=NAMES, initial_alphabet=alphabet))
    bpe.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}'
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    tiny = Path(__file__).resolve().parents[2] / "recipes/models/tiny.json"
    settings = ModelConfig(config=str(tiny), tokenizer=str(folder))
    return settings, model_config(settings)


def _png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (90, 30), (9, 99, 10)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    "settings",
    [
        {"template": "chatml"},
        {"template": "nvlm-yi-34b", "rules": "megatron", "image_tags": "nvlm", "tile_tags": True, "layout": "tiles"},
        {"template": "chatml", "image_tags": "internvl", "system": "Be brief."},
        {"template": "qwen2.5", "rules": "megatron", "layout": "anyres"},
        {"template": "model", "image_token": "<|image_pad|>", "template_variables": {"mood": "!"}},
        {"template": "model", "system": "Be brief."},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_a_prompt_is_what_stood_before_the_answer(
    settings: dict[str, Any], model: tuple[ModelConfig, LlavaConfig]
) -> None:
    encoder = task_encoder(DataConfig(train="", max_tokens=4000, **settings), *model)
    fields: dict[str, Any] = {"__key__": "k", "__restore_key__": (0, 0, 0), "__subflavors__": None}
    sample = VQASample(**fields, image=_png(), context="What is it?", answers="Green.", answer_weights=None)
    made = encoder.preencode_sample(sample)
    assert isinstance(made, EncodedSample)
    ids, labels = expand(made, image_id=encoder.settings.image_id)
    first = int(np.flatnonzero(labels >= 0)[0]) + 1  # labels are those of the next token
    prompt = Prompter.of(encoder).prompt("What is it?", [_png()])
    assert prompt.ids == ids[:first].tolist()
    assert prompt.tiles is not None
    assert len(prompt.tiles) == sum(made.num_tiles)


def test_a_templates_variables_reach_it(model: tuple[ModelConfig, LlavaConfig]) -> None:
    encoder = task_encoder(DataConfig(train="", template="model", template_variables={"mood": "?"}), *model)
    assert isinstance(encoder.tokenizer, HuggingFaceTokenizer)
    text = encoder.tokenizer.decode(Prompter.of(encoder).prompt("Hi").ids)
    assert text == "<|im_start|>user?\nHi<|im_end|>\n<|im_start|>assistant?\n"


def test_a_tokenizer_of_bytes_has_no_template(model: tuple[ModelConfig, LlavaConfig]) -> None:
    settings = ModelConfig(config=model[0].config, tokenizer="bytes")
    with pytest.raises(ConfigError, match="came with none"):
        task_encoder(DataConfig(train="", template="model"), settings, model[1])
