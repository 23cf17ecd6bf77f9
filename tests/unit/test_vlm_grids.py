"""Grids of tiles and packs: choices recorded from the reference programs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.errors import ConfigError
from omniloom.vlm.grids import area_weighted_grid, closest_grid, fitted_size, tile_grids
from omniloom.vlm.image_processor import tile_tokens
from omniloom.vlm.layouts import AnyResolution, DynamicTiles
from omniloom.vlm.packing import best_fit
from omniloom.vlm.tile_tags import tile_tag_texts

# Recorded from the reference with a tile of 448 pixels: (image, closest, area-weighted where it differs).
SIX = [
    ((640, 480), (3, 2), None),
    ((1920, 1080), (2, 1), (3, 2)),
    ((1000, 1000), (2, 2), None),
    ((300, 300), (1, 1), None),
    ((3000, 1000), (3, 1), None),
    ((336, 1344), (1, 4), None),
]
TWELVE = [
    ((640, 480), (4, 3), None),
    ((480, 640), (3, 4), None),
    ((1920, 1080), (4, 2), None),
    ((1000, 1000), (3, 3), (2, 2)),
    ((500, 333), (3, 2), None),
    ((800, 800), (2, 2), None),
    ((3000, 1000), (6, 2), None),
]
RECORDED = [(6, *row) for row in SIX] + [(12, *row) for row in TWELVE]
OF_SIX = [
    (1, 1),
    (1, 2),
    (2, 1),
    (3, 1),
    (1, 3),
    (4, 1),
    (1, 4),
    (2, 2),
    (1, 5),
    (5, 1),
    (6, 1),
    (2, 3),
    (1, 6),
    (3, 2),
]


@pytest.mark.parametrize(("limit", "size", "closest", "weighted"), RECORDED)
def test_choices_are_those_recorded(
    limit: int, size: tuple[int, int], closest: tuple[int, int], weighted: tuple[int, int] | None
) -> None:
    grids = tile_grids(limit)
    assert closest_grid(size, grids=grids, tile_pixels=448) == closest
    if weighted is not None:
        assert area_weighted_grid(size, grids=grids, tile_pixels=448) == weighted


def test_candidates() -> None:
    assert set(tile_grids(6)) == set(OF_SIX)
    assert len(tile_grids(12)) == 35
    products = [columns * rows for columns, rows in tile_grids(12)]
    assert products == sorted(products)
    assert min(columns * rows for columns, rows in tile_grids(12, 4)) == 4
    with pytest.raises(ConfigError, match="min_tiles <= max_tiles"):
        tile_grids(0)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 12))
def test_plans_keep_within_their_limits(width: int, height: int, limit: int) -> None:
    plan = DynamicTiles(max_tiles=limit).plan((width, height), tile_pixels=448)
    assert 1 <= plan.grid[0] * plan.grid[1] <= limit
    assert plan.thumbnail == (plan.grid != (1, 1))
    fewer = DynamicTiles(max_tiles=12).plan((width, height), tile_pixels=448, max_tiles=limit)
    assert fewer.grid == plan.grid
    anyres = AnyResolution().plan((width, height), tile_pixels=336)
    canvas = anyres.grid[0] * 336, anyres.grid[1] * 336
    fitted = fitted_size((width, height), canvas=canvas)
    assert all(0 < side <= most for side, most in zip(fitted, canvas, strict=True))


@pytest.mark.parametrize(
    ("lengths", "capacity", "packs"),
    [
        ([5, 3, 8, 1, 7, 2], 10, [[8, 2], [7, 3], [5, 1]]),
        ([100, 200, 300, 400], 512, [[400, 100], [300, 200]]),
        ([600] * 5, 2048, [[600] * 3, [600] * 2]),
        (list(range(1, 11)), 10, [[10], [9, 1], [8, 2], [7, 3], [6, 4], [5]]),
    ],
)
def test_packs_are_those_recorded(lengths: list[int], capacity: int, packs: list[list[int]]) -> None:
    assert [[lengths[i] for i in pack] for pack in best_fit(lengths, capacity=capacity)] == packs


@given(st.lists(st.integers(1, 40), max_size=40), st.integers(40, 100))
def test_packs_hold_everything_once(lengths: list[int], capacity: int) -> None:
    packs = best_fit(lengths, capacity=capacity)
    assert sorted(itertools.chain(*packs)) == list(range(len(lengths)))
    sums = [sum(lengths[i] for i in pack) for pack in packs]
    assert all(total <= capacity for total in sums)


def test_tokens_of_a_tile() -> None:
    assert tile_tokens(tile_pixels=336, patch_pixels=14) == 576
    assert tile_tokens(tile_pixels=336, patch_pixels=14, class_tokens=1) == 577
    assert tile_tokens(tile_pixels=448, patch_pixels=14, pixel_shuffle=True) == 256
    assert tile_tokens(tile_pixels=512, patch_pixels=16, pixel_shuffle=True) == 256


def test_names_of_tiles() -> None:
    assert tile_tag_texts(6) == ([f"<tile_{n}>" for n in range(1, 7)], "<tile_global_thumbnail>")
    tags, last = tile_tag_texts(12)
    assert (tags[0], tags[-1], last) == ("<tile_01>", "<tile_12>", "<tile_global_thumbnail0>")
    with pytest.raises(ConfigError, match="1 to 12"):
        tile_tag_texts(13)
