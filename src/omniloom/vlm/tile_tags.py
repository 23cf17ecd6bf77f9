"""Names of tiles as texts before their features, as NVLM was trained with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omniloom.errors import ConfigError
from omniloom.vlm.tokenizer import Tokenizer

MAX_TAGGED_TILES = 12
_TWO_DIGITS = 10


@dataclass(frozen=True)
class TileTags:
    """Ids of the tags.

    Attributes:
        tiles: of each tile, in order.
        last: of the thumbnail, which comes last; also that of an image of one tile.
    """

    tiles: Sequence[npt.NDArray[np.int64]]
    last: npt.NDArray[np.int64]

    def of(self, tiles: int) -> list[npt.NDArray[np.int64]]:
        """The tags of an image of so many tiles."""
        return [*self.tiles[: tiles - 1], self.last]


def tile_tag_texts(max_tiles: int) -> tuple[list[str], str]:
    """The texts of the tags: ``<tile_1>`` and so on, with two digits from ten tiles on, and the thumbnail's.

    Raises:
        ConfigError: more tiles than have names.
    """
    if not 1 <= max_tiles <= MAX_TAGGED_TILES:
        raise ConfigError(f"tags for {max_tiles} tiles; 1 to {MAX_TAGGED_TILES} have names")
    if max_tiles < _TWO_DIGITS:
        return [f"<tile_{number}>" for number in range(1, max_tiles + 1)], "<tile_global_thumbnail>"
    return [f"<tile_{number:02d}>" for number in range(1, max_tiles + 1)], "<tile_global_thumbnail0>"


def tile_tags(tokenizer: Tokenizer, *, max_tiles: int) -> TileTags:
    """The ids of the tags: the tokenizer's own tokens where it has them, else those of their text."""
    texts, last = tile_tag_texts(max_tiles)

    def ids(text: str) -> npt.NDArray[np.int64]:
        known = tokenizer.token_id(text)
        return np.asarray(tokenizer.encode(text, place="after-special") if known is None else [known], np.int64)

    return TileTags([ids(text) for text in texts], ids(last))
