"""The built-in packer: packs as full as an offline bound allows, within all capacities, without samples that starve."""

from __future__ import annotations

import json
import random
from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.selection import Selection
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import RawSample, SampleKey
from omniloom.errors import ConfigError, DatasetError

HISTOGRAMS = Path(__file__).resolve().parents[1] / "golden" / "lengths"
SEED = 12


@dataclass
class Lengths:
    """A leaf whose row i is the i-th (tokens, images) of a list."""

    name: str
    costs: list[tuple[int, int]]

    def read(self, row: int) -> RawSample:
        return RawSample(str(row), "lengths.tar", {})

    def cook(self, raw: RawSample, key: SampleKey) -> tuple[int, int, int]:
        return key.row, *self.costs[key.row]

    def origin(self, row: int) -> Origin:
        return Origin(self.name)


def drawn(mix: str, count: int) -> list[tuple[int, int]]:
    counts = json.loads((HISTOGRAMS / f"{mix}.json").read_text())["counts"]
    kinds = [(int(tokens), int(images)) for images, by_length in counts.items() for tokens in by_length]
    weights = [number for by_length in counts.values() for number in by_length.values()]
    return random.Random(SEED).choices(kinds, weights, k=count)


def best_fit_decreasing(lengths: list[int], capacity: int) -> float:
    """Fill of the textbook's offline packing of all samples at once: each into the fullest bin that takes it."""
    room: list[int] = []
    bins = 0
    for length in sorted(lengths, reverse=True):
        place = bisect_left(room, length)
        if place < len(room):
            insort(room, room.pop(place) - length)
        else:
            bins += 1
            insort(room, capacity - length)
    return sum(lengths) / (bins * capacity)


def packs_of(costs: list[tuple[int, int]], packer: BestFitPacker, *, window: int, packs: int) -> list[list[Any]]:
    def select(samples: list[Any], *, last: bool) -> Selection:
        said = [dict(zip(("tokens", "images"), sample[1:], strict=True)) for sample in samples]
        return packer.select(samples, [{k: s[k] for k in packer.names} for s in said], last=last)

    make = Make(Plan((Leaf("lengths", len(costs)),)), (Lengths("lengths", costs),))
    stream = Pack(make, window, select, list).open(Lane(0, 1), Desk())
    return [pack for _, pack in islice(stream, packs)]


@pytest.mark.parametrize("capacity", [2_048, 4_096, 8_192])
@pytest.mark.parametrize("mix", ["pretrain", "sft"])
def test_packs_are_as_full_as_offline_within_a_point(mix: str, capacity: int) -> None:
    costs = drawn(mix, 6_000)
    bound = best_fit_decreasing([tokens for tokens, _ in costs], capacity)
    for buffer_of_a_rank_of_12_lanes in (100, 500):
        window = buffer_of_a_rank_of_12_lanes // 12
        packs = packs_of(costs, BestFitPacker(capacity), window=window, packs=2_000 * 800 // capacity)
        filled = [sum(sample[1] for sample in pack) for pack in packs]
        assert max(filled) <= capacity
        assert sum(filled) / (len(packs) * capacity) > bound - 0.01


def test_several_capacities_hold_at_once_and_the_one_that_ends_first_is_filled() -> None:
    costs = drawn("sft", 6_000)
    packs = packs_of(costs, BestFitPacker({"tokens": 8_192, "images": 6}), window=40, packs=300)
    tokens = [sum(sample[1] for sample in pack) for pack in packs]
    images = [sum(sample[2] for sample in pack) for pack in packs]
    assert max(tokens) <= 8_192
    assert max(images) <= 6
    # 94 of 100 samples have an image, and 8,192 tokens would hold more than 6: images end first
    assert sum(images) / (6 * len(packs)) > 0.99


def test_three_capacities_tokens_images_and_vision_tokens() -> None:
    costs = drawn("sft", 4_000)
    packer = BestFitPacker({"tokens": 8_192, "images": 6, "vision_tokens": 4 * 576})
    window = [{"tokens": tokens, "images": images, "vision_tokens": 576 * images} for tokens, images in costs]
    selection = packer.select(window, window, last=True)
    assert sum(map(len, selection.packs)) == len(window)
    whole = [{name: sum(sample[name] for sample in pack) for name in packer.names} for pack in selection.packs]
    assert max(pack["tokens"] for pack in whole) <= 8_192
    assert max(pack["vision_tokens"] for pack in whole) <= 4 * 576  # 4 images: these end before 6 images or the tokens
    assert sum(pack["images"] for pack in whole) / (4 * len(whole)) > 0.98


def test_no_sample_waits_longer_than_those_before_it_last() -> None:
    costs = drawn("sft", 3_000)
    packs = packs_of(costs, BestFitPacker(4_096), window=40, packs=400)
    order = [
        key.row
        for key, _ in islice(
            Make(Plan((Leaf("lengths", 3_000),)), (Lengths("lengths", costs),)).open(Lane(0, 1), Desk()), 3_000
        )
    ]
    place = {row: number for number, row in enumerate(order)}
    for number, pack in enumerate(packs):
        given_before = sum(len(one) for one in packs[:number])
        # a pack begins with the oldest of at most 64 + 40 or so that wait: nothing comes much later than its turn
        assert all(given_before - place[row] < 150 for row, _, _ in pack)
    assert sorted(place[pack[0][0]] for pack in packs) == [place[pack[0][0]] for pack in packs]


def test_a_pack_is_the_best_of_all_that_begin_with_the_oldest() -> None:
    draw = random.Random(3)
    for _ in range(60):
        lengths = [draw.randint(1, 50) for _ in range(10)]
        chosen = BestFitPacker(100, spare=0).select(lengths, lengths, last=True).packs[0]
        fills = [lengths[0] + sum(others) for size in range(10) for others in combinations(lengths[1:], size)]
        assert sum(chosen) == max(fill for fill in fills if fill <= 100)


def test_oversize_and_faulty_samples_are_named() -> None:
    samples = ["long", "odd", "short", "many"]
    costs = [{"tokens": 11}, ValueError("no length"), {"tokens": 4}, {"tokens": 1, "images": 3}]
    selection = BestFitPacker({"tokens": 10, "images": 2}).select(samples, costs, last=True)
    assert selection.packs == [["short"]]
    assert selection.left_out == {"oversize": ["long", "many"]}
    assert [(sample, str(error)) for sample, error in selection.failed] == [("odd", "no length")]
    odd = BestFitPacker(10).select(["x", "y"], [{"pixels": 3}, -1], last=True)
    assert [(sample, str(error)) for sample, error in odd.failed] == [
        ("x", "the cost of a sample names ['pixels']; the capacities are ['tokens']"),
        ("y", "the cost of a sample is {'tokens': -1}; numbers of 0 or more expected"),
    ]
    assert all(isinstance(error, DatasetError | ConfigError) for _, error in odd.failed)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="capacity 0 found"):
        BestFitPacker(0)
    with pytest.raises(ConfigError, match=r"capacity \{\} found"):
        BestFitPacker({})
    with pytest.raises(ConfigError, match="reach 0, spare 4 found"):
        BestFitPacker(5, reach=0)
    assert (
        str(BestFitPacker({"tokens": 4_096, "images": 16})) == "best fit of tokens 4096, images 16; reach 64, spare 4"
    )
