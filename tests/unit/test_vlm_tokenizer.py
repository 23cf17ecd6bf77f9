"""Tokenizers: opening, names of special tokens, places of texts, copies."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.tokenizer import HuggingFaceTokenizer, PlainEncoder, SentencePieceTokenizer, open_tokenizer

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder: a BPE with a dummy prefix as LLaMA's, special tokens, a chat template."""
    root = tmp_path_factory.mktemp("model")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    bpe.decoder = tokenizers.decoders.Metaspace(prepend_scheme="first")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"])
    bpe.train_from_iterator(["one word and one more word", "a|b0é\nc"] * 9, trainer)
    bpe.save(str(root / "tokenizer.json"))
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": True},
        "chat_template": [{"name": "default", "template": "{{ messages }}"}, {"name": "rag", "template": ""}],
    }
    (root / "tokenizer_config.json").write_text(json.dumps(config))
    return root


def test_a_folder_has_all_it_takes(folder: Path) -> None:
    opened = open_tokenizer(folder)
    assert isinstance(opened, HuggingFaceTokenizer)
    assert (opened.bos_id, opened.eos_id, opened.pad_id) == (1, 2, None)
    assert opened.special_tokens == {"<unk>", "<s>", "</s>"}
    assert opened.chat_template == "{{ messages }}"
    (folder / "chat_template.jinja").write_text("newer")
    assert HuggingFaceTokenizer.from_folder(folder).chat_template == "newer"
    (folder / "chat_template.jinja").unlink()


def test_special_tokens_are_named_and_never_found_in_texts(folder: Path) -> None:
    opened = open_tokenizer(folder)
    assert opened.token_id("</s>") == 2
    assert opened.token_id("</t>") is None
    assert 2 not in opened.encode("one </s> word")


def test_a_text_that_goes_on_has_no_dummy_prefix(folder: Path) -> None:
    opened = open_tokenizer(folder)
    assert opened.encode("|") + opened.encode("word", place="inside") == opened.encode("|word")
    assert opened.encode("word") != opened.encode("word", place="inside")
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    after = library.encode("</s>word", add_special_tokens=False).ids[1:]
    assert opened.encode("word", place="after-special") == after


def test_copies_are_alike(folder: Path) -> None:
    opened = open_tokenizer(folder)
    again = pickle.loads(pickle.dumps(opened))
    assert again.encode("one word") == opened.encode("one word")
    assert (again.bos_id, again.chat_template) == (1, "{{ messages }}")  # type: ignore[attr-defined]


def test_more_special_tokens_keep_the_ids_of_the_others(folder: Path) -> None:
    opened = HuggingFaceTokenizer.from_folder(folder)
    more = opened.with_special_tokens(["<box>", "</s>"])
    assert more.token_id("<box>") == opened.vocabulary_size
    assert more.token_id("</s>") == 2
    assert more.vocabulary_size == opened.vocabulary_size + 1
    assert opened.token_id("<box>") is None


def test_what_cannot_be_opened_is_told(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file.*tokenizer\.json or tokenizer\.model"):
        open_tokenizer(tmp_path)
    library: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    with pytest.raises(ConfigError, match="no token '<end>', which its configuration names"):
        HuggingFaceTokenizer(library, eos_token="<end>")


def test_sentencepiece_says_where_a_text_after_a_special_token_stands() -> None:
    mistral = pytest.importorskip("mistral_common")
    sentencepiece = pytest.importorskip("sentencepiece")
    data = Path(mistral.__file__).parent / "data"
    plain = SentencePieceTokenizer.from_file(data / "tokenizer.model.v1")
    assert plain.encode("word", place="after-special") == plain.encode("word")
    marked = SentencePieceTokenizer.from_file(data / "mistral_instruct_tokenizer_240323.model.v3")
    assert marked.encode("word", place="after-special") == marked.encode("word", place="inside")
    assert marked.encode("word", place="inside") != marked.encode("word")
    model = sentencepiece.SentencePieceProcessor(model_file=str(data / "tokenizer.model.v1"))
    text = "Zürich 2 > 1\n🙂"
    assert SentencePieceTokenizer(model).decode(model.encode(text)) == f" {text}"


def test_an_anchor_that_merges_is_passed_over() -> None:
    """A tokenizer that marks the start of a text and merges its first anchor with what follows."""

    def encode(text: str) -> list[int]:
        ids = [0, *map(ord, text)]
        at = next((n for n in range(1, len(ids) - 1) if ids[n] == ord("\n") and ids[n + 1] == ord("x")), None)
        return ids if at is None else [*ids[:at], 9999, *ids[at + 2 :]]

    encoder = PlainEncoder(encode, after_special="inside")
    assert encoder.encode("xy", place="inside") == [ord("x"), ord("y")]
    assert encoder.encode("xy") == [0, ord("x"), ord("y")]


def test_bytes() -> None:
    tokenizer = ByteTokenizer(["<|im_end|>", "<pad>"])
    assert tokenizer.vocabulary_size == 256 + 4
    assert tokenizer.encode("é") == [195, 169]
    assert tokenizer.decode([*tokenizer.encode("né"), tokenizer.token_id("<|im_end|>") or 0]) == "né<|im_end|>"
    assert tokenizer.token_id("<x>") is None
