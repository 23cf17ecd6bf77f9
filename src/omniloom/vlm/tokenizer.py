"""Tokenizers as chat templates need them: plain text in, ids out, and special tokens only by name.

Text of a data set is never searched for special tokens: a user who writes ``</s>`` gets the tokens of these four
characters. That is what keeps a sample from closing its own turn.

SentencePiece puts a space before a text that begins a string and not before one that goes on. So an adapter has to be
told where a text stands (`Place`); the same text may have other tokens there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from omniloom.errors import ConfigError

Place = Literal["start", "after-special", "inside"]
"""Where a text stands: at the start of a string, after a special token, or right after other text."""

_ANCHORS = ("\n", "|", "0", "é")


class Tokenizer(Protocol):
    """What a tokenizer can do.

    Attributes:
        vocabulary_size: ids are below it.
        bos_id: the token that begins a text; ``None`` where there is none.
        eos_id: the token that ends a text.
        pad_id: the token that fills up a batch; ``None`` where there is none.
        special_tokens: texts of the special tokens.
    """

    vocabulary_size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    special_tokens: frozenset[str]

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """Ids of a plain text; special tokens in it are text like any other."""

    def token_id(self, token: str) -> int | None:
        """Id of the token of this exact name, such as ``<|im_end|>``; ``None`` where there is none."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""


class PlainEncoder:
    """Encodes a text at any place with a function that only knows texts at the start of a string.

    Args:
        encode: ids of a text at the start of a string; special tokens are not looked for.
        after_special: what a text after a special token is like.
    """

    def __init__(self, encode: Callable[[str], list[int]], *, after_special: Literal["start", "inside"]) -> None:
        self._encode = encode
        self._after_special = after_special

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """Ids of a text."""
        if not text:
            return []
        where = self._after_special if place == "after-special" else place
        return self._encode(text) if where == "start" else self.inside(text)

    def inside(self, text: str) -> list[int]:
        """Ids of a text that goes on after another one.

        It is encoded behind an anchor with which its first token does not merge, and the anchor's ids are taken off.
        """
        if not self._marks_start:
            return self._encode(text)
        for anchor in _ANCHORS:
            head = self._encode(anchor)
            whole = self._encode(anchor + text)
            if whole[: len(head)] == head:
                return whole[len(head) :]
        return self._encode(text)

    @cached_property
    def _marks_start(self) -> bool:
        """Whether the start of a string is encoded in a way of its own (SentencePiece's dummy prefix)."""
        head = self._encode("\n")
        return self._encode("\na") != head + self._encode("a")


class HuggingFaceTokenizer:
    """A fast tokenizer of the ``tokenizers`` library, with the names of its special tokens.

    Args:
        tokenizer: a ``tokenizers.Tokenizer``; it is copied.
        bos_token: text of the token that begins a text.
        eos_token: text of the token that ends a text.
        pad_token: text of the token that fills up a batch.
        chat_template: the Jinja template that came with it, if any; see `omniloom.vlm.jinja_template`.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        pad_token: str | None = None,
        chat_template: str | None = None,
    ) -> None:
        self._parsing = tokenizer
        self._plain = type(tokenizer).from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True
        self.chat_template = chat_template
        self.vocabulary_size = int(tokenizer.get_vocab_size(with_added_tokens=True))
        added = tokenizer.get_added_tokens_decoder().values()
        self.special_tokens = frozenset(str(token.content) for token in added if token.special)
        self.bos_token, self.eos_token, self.pad_token = bos_token, eos_token, pad_token
        self.bos_id = self._required(bos_token)
        self.eos_id = self._required(eos_token)
        self.pad_id = self._required(pad_token)
        self._encoder = PlainEncoder(self._ids, after_special="start")
        self._encoder = PlainEncoder(self._ids, after_special=self._probe_after_special())

    @classmethod
    def from_folder(cls, folder: str | Path) -> HuggingFaceTokenizer:
        """The tokenizer of a model's folder: ``tokenizer.json`` and ``tokenizer_config.json``.

        Raises:
            ConfigError: a file is missing, or the ``tokenizers`` library is.
        """
        import json  # noqa: PLC0415 - only those who read from folders

        folder = Path(folder)
        path = folder if folder.suffix == ".json" else folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"{path}: no such file. Expected a model's folder with tokenizer.json.")
        config_path = path.parent / "tokenizer_config.json"
        config = json.loads(config_path.read_text(encoding="utf-8")) if config_path.is_file() else {}
        template_path = path.parent / "chat_template.jinja"
        template = template_path.read_text(encoding="utf-8") if template_path.is_file() else config.get("chat_template")
        if isinstance(template, list):  # older files name several templates
            template = next((one["template"] for one in template if one.get("name") == "default"), None)
        names = {name: _token_text(config.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
        return cls(_library().Tokenizer.from_file(str(path)), chat_template=template, **names)

    @classmethod
    def from_transformers(cls, tokenizer: Any) -> HuggingFaceTokenizer:
        """The tokenizer inside one of ``transformers``, which has to be a fast one."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"{type(tokenizer).__name__} has no backend_tokenizer: it is a slow one. Load it with use_fast=True."
            )
        return cls(
            backend,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            pad_token=tokenizer.pad_token,
            chat_template=getattr(tokenizer, "chat_template", None),
        )

    def with_special_tokens(self, names: Iterable[str]) -> HuggingFaceTokenizer:
        """A copy with more special tokens, such as ``<box>`` or ``<tile_1>``; those that it has keep their ids.

        The rows of the model's embedding have to reach the new ids.
        """
        library = _library()
        copy = type(self._parsing).from_str(self._parsing.to_str())
        copy.add_special_tokens([library.AddedToken(name, special=True, normalized=False) for name in names])
        words = self.bos_token, self.eos_token, self.pad_token, self.chat_template
        return _again(copy.to_str(), *words)

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """Ids of a plain text; special tokens in it are text like any other."""
        return self._encoder.encode(text, place=place)

    def token_id(self, token: str) -> int | None:
        """Id of the token of this exact name; ``None`` where there is none."""
        found = self._parsing.token_to_id(token)
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._parsing.decode(list(ids), skip_special_tokens=False))

    def __reduce__(self) -> tuple[Any, ...]:
        words = self.bos_token, self.eos_token, self.pad_token, self.chat_template
        return _again, (self._parsing.to_str(), *words)

    def _ids(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def _required(self, token: str | None) -> int | None:
        if token is None:
            return None
        found = self.token_id(token)
        if found is None:
            raise ConfigError(f"the tokenizer has no token {token!r}, which its configuration names")
        return found

    def _probe_after_special(self) -> Literal["start", "inside"]:
        """How the library itself encodes a text that follows a special token."""
        token = next(iter(sorted(self.special_tokens)), None)
        if token is None:
            return "inside"
        ids = list(self._parsing.encode(f"{token}probe", add_special_tokens=False).ids)
        return "start" if ids[1:] == self._ids("probe") else "inside"


class SentencePieceTokenizer:
    """A SentencePiece model by itself, as LLaMA, Vicuna and Mistral have them.

    Args:
        model: a ``sentencepiece.SentencePieceProcessor``.
        after_special: what a text after a special token is like. ``None``: as in LLaMA and Vicuna it starts a string,
            but in vocabularies with ``[INST]``, as Mistral has them from its second version on, it goes on.
    """

    def __init__(self, model: Any, *, after_special: Literal["start", "inside"] | None = None) -> None:
        self._model = model
        self.vocabulary_size = int(model.vocab_size())
        self.bos_id, self.eos_id, self.pad_id = (
            None if found < 0 else int(found) for found in (model.bos_id(), model.eos_id(), model.pad_id())
        )
        ids = range(self.vocabulary_size)
        self.special_tokens = frozenset(str(model.id_to_piece(i)) for i in ids if model.is_control(i))
        place: Literal["start", "inside"] = "inside" if "[INST]" in self.special_tokens else "start"
        self._encoder = PlainEncoder(self._ids, after_special=after_special or place)

    @classmethod
    def from_file(cls, path: str | Path) -> SentencePieceTokenizer:
        """The model of a ``tokenizer.model`` file. Raises ConfigError without the ``sentencepiece`` library."""
        try:
            import sentencepiece  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("reading a SentencePiece model needs `pip install omniloom[vlm]`") from error
        if not Path(path).is_file():
            raise ConfigError(f"{path}: no such file. Expected a SentencePiece model such as tokenizer.model.")
        return cls(sentencepiece.SentencePieceProcessor(model_file=str(path)))

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """Ids of a plain text; special tokens in it are text like any other."""
        return self._encoder.encode(text, place=place)

    def token_id(self, token: str) -> int | None:
        """Id of the token of this exact name; ``None`` where there is none."""
        found = int(self._model.piece_to_id(token))
        return found if self._model.id_to_piece(found) == token else None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        pieces = "".join(
            self._model.id_to_piece(i) if self._model.is_control(i) else _piece(self._model, i) for i in ids
        )
        return pieces.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("▁", " ")

    def _ids(self, text: str) -> list[int]:
        return list(self._model.encode(text))


class TiktokenTokenizer:
    """A byte-level BPE of the ``tiktoken`` library, as Llama 3, Qwen and Mistral's Tekken have them.

    Args:
        encoding: a ``tiktoken.Encoding``.
        special_tokens: ids of special tokens by text.
        bos_token: text of the token that begins a text.
        eos_token: text of the token that ends a text.
        pad_token: text of the token that fills up a batch.
        offset: added to the ids of ordinary tokens (Tekken has its special tokens first).
    """

    def __init__(
        self,
        encoding: Any,
        *,
        special_tokens: dict[str, int],
        bos_token: str | None = None,
        eos_token: str | None = None,
        pad_token: str | None = None,
        offset: int = 0,
    ) -> None:
        self._encoding = encoding
        self._ids_of = dict(special_tokens)
        self._texts = {number: text for text, number in special_tokens.items()}
        self._offset = offset
        self.special_tokens = frozenset(special_tokens)
        self.vocabulary_size = 1 + max(encoding.n_vocab - 1 + offset, *special_tokens.values())
        self.bos_id = None if bos_token is None else special_tokens[bos_token]
        self.eos_id = None if eos_token is None else special_tokens[eos_token]
        self.pad_id = None if pad_token is None else special_tokens[pad_token]

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """Ids of a plain text; the place does not matter to bytes."""
        ids = self._encoding.encode_ordinary(text)
        return [number + self._offset for number in ids] if self._offset else list(ids)

    def token_id(self, token: str) -> int | None:
        """Id of the special token of this exact name; ``None`` where there is none."""
        return self._ids_of.get(token)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        parts: list[bytes] = [
            self._texts[number].encode()
            if number in self._texts
            else self._encoding.decode_single_token_bytes(number - self._offset)
            for number in ids
        ]
        return b"".join(parts).decode("utf-8", "replace")


def open_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a file or a model's folder: ``tokenizer.json``, or a SentencePiece ``tokenizer.model``.

    Raises:
        ConfigError: there is neither, or the library that reads it is not installed.
    """
    path = Path(path)
    if (path / "tokenizer.json").is_file() or path.suffix == ".json":
        return HuggingFaceTokenizer.from_folder(path)
    file = path / "tokenizer.model" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{path}: no such file. Expected a model's folder with tokenizer.json or tokenizer.model.")
    return SentencePieceTokenizer.from_file(file)


def _again(text: str, bos: str | None, eos: str | None, pad: str | None, template: str | None) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(
        _library().Tokenizer.from_str(text), bos_token=bos, eos_token=eos, pad_token=pad, chat_template=template
    )


def _library() -> Any:
    try:
        import tokenizers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("reading tokenizer.json needs `pip install omniloom[vlm]`") from error
    return tokenizers


def _token_text(value: Any) -> str | None:
    """A token of ``tokenizer_config.json``: a text, or a mapping that has it under ``content``."""
    return value.get("content") if isinstance(value, dict) else value


def _piece(model: Any, number: int) -> str:
    """The text of a piece; a byte piece as an escaped byte."""
    if model.is_byte(number):
        return bytes([int(model.id_to_piece(number)[3:5], 16)]).decode("utf-8", "surrogateescape")
    return str(model.id_to_piece(number))
