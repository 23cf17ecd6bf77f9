"""A tokenizer that needs no file: one id a byte. For looking at data before there is a model, and for tiny runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omniloom.vlm.tokenizer import Place

_BYTES = 256


class ByteTokenizer:
    """Bytes of UTF-8 are the ids 0 to 255; special tokens follow in their order.

    Args:
        special_tokens: their names. ``<bos>``, ``<eos>`` and ``<pad>`` are added.
    """

    def __init__(self, special_tokens: Iterable[str] = ()) -> None:
        names = ["<bos>", "<eos>", "<pad>", *dict.fromkeys(special_tokens)]
        self._ids = {name: _BYTES + number for number, name in enumerate(dict.fromkeys(names))}
        self._names = {number: name for name, number in self._ids.items()}
        self.special_tokens = frozenset(self._ids)
        self.vocabulary_size = _BYTES + len(self._ids)
        self.bos_id: int | None = self._ids["<bos>"]
        self.eos_id: int | None = self._ids["<eos>"]
        self.pad_id: int | None = self._ids["<pad>"]

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        """The bytes of a text."""
        return list(text.encode("utf-8", "surrogatepass"))

    def token_id(self, token: str) -> int | None:
        """Id of a special token; ``None`` where there is none."""
        return self._ids.get(token)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; what is no UTF-8 is replaced, and rows of a model beyond the vocabulary are no text."""
        data = b"".join(bytes([i]) if i < _BYTES else self._names.get(i, "").encode() for i in ids)
        return data.decode("utf-8", "replace")
