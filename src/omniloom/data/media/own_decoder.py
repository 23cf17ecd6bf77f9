"""Decoders of a user's own: classes below `SampleDecoder` with another ``decode``, and objects that are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from omniloom.data.media.decoder import SampleDecoder


@dataclass(frozen=True)
class OwnDecoder(SampleDecoder):
    """A decoder whose every part is decoded by an object of the user's, at once.

    Attributes:
        own: has ``decode(name, data)``; or is called with a sample, a dict of undecoded parts, and gives a decoded one.
    """

    image_decode: str = "raw"
    own: Any = None

    def function(self, part: str) -> Callable[[bytes], Any]:
        """The function that decodes a part of this name."""
        return partial(self.decode, part)

    def decode(self, fname: str, raw: bytes) -> Any:
        """The value of a part, by its file name."""
        if hasattr(self.own, "decode") and not _is_ready(type(self.own).decode):
            return self.own.decode(fname, raw)
        return self.own({fname: raw})[fname]

    def later(self, fname: str, raw: bytes) -> Any:
        """The same: what a user's function may do is done now."""
        return self.decode(fname, raw)

    def eager(self) -> OwnDecoder:
        """The same."""
        return self


def as_decoder(decoder: Any) -> SampleDecoder | None:
    """A decoder as the engine uses it: a user's own becomes an `OwnDecoder`, a ready-made one stays."""
    if decoder is None or isinstance(decoder, OwnDecoder):
        return decoder
    kind = type(decoder)
    if isinstance(decoder, SampleDecoder) and _is_ready(kind.decode) and _is_ready(kind.__call__):
        return decoder
    return OwnDecoder(own=decoder)


def _is_ready(method: Any) -> bool:
    """Whether a method is one of the package's."""
    return str(getattr(method, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
