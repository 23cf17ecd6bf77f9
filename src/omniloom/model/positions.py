"""Position embeddings of vision towers, fitted to grids of other sizes.

Each way is what the models were published with: a wrong filter changes every feature a little, which no test of
shapes would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from omniloom.model.config import VisionConfig


def fit_positions(
    table: Float[Tensor, "positions dim"], config: VisionConfig, *, rows: int, columns: int
) -> Float[Tensor, "fitted dim"]:
    """Position embeddings of a grid, in reading order and in the type of the table; computed in float32.

    Args:
        table: the embeddings of the tower's own grid, without those of class tokens.
        config: the tower; `positions` names the way, `position_rows` the grid.
        rows, columns: the grid that is wanted.
    """
    own = config.position_rows
    if (rows, columns) == (own, own):
        return table
    grid = table.float().reshape(own, own, -1).movedim(-1, 0)[None]
    fitted = _WAYS[config.positions](grid, (rows, columns))
    return fitted[0].movedim(0, -1).flatten(0, 1).to(table.dtype)


def _resize(grid: Tensor, size: tuple[int, int], *, mode: str, antialias: bool = False) -> Tensor:
    return functional.interpolate(grid, size=size, mode=mode, align_corners=False, antialias=antialias)


def _crop(grid: Tensor, size: tuple[int, int]) -> Tensor:
    """RADIO's cropped positions: the grid becomes a square over the longer side, of which the top left is kept."""
    side = max(size)
    return _resize(grid, (side, side), mode="bilinear")[..., : size[0], : size[1]]


_WAYS: dict[str, Callable[[Tensor, tuple[int, int]], Tensor]] = {
    "bicubic": partial(_resize, mode="bicubic"),
    "bicubic_antialias": partial(_resize, mode="bicubic", antialias=True),
    "bilinear_antialias": partial(_resize, mode="bilinear", antialias=True),
    "cropped": _crop,
}
