"""Fuzzing by time budget: Energon's wrappers in random towers, stopped at random steps, go on as if nothing was."""

from __future__ import annotations

import importlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omniloom
from omniloom.energon.adapters.savable import BaseWrapperDataset

energon: Any = importlib.import_module("omniloom.energon")

BUDGET_SECONDS = float(os.environ.get("OMNILOOM_FUZZ_SECONDS", "60"))
CONFIG = energon.WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=3)
END = "end of a pass"


def text_of(value: Any) -> Any:
    text = getattr(value, "text", value)
    return text if isinstance(text, str) else list(text)


def drawn(value: Any) -> list[Any]:
    return [text_of(value), random.random()]


def several(value: Any) -> Iterator[list[Any]]:
    for part in range(1 + len(str(text_of(value))) % 3):  # a lane without any value would be gone through for ever
        yield [text_of(value), part, random.random()]


def wanted(value: Any) -> bool:
    return len(str(value)) % 4 != 1


def in_threes(values: Iterator[Any]) -> Iterator[list[Any]]:
    held: list[Any] = []
    for value in values:
        held.append(text_of(value))
        if len(held) == 3:
            yield [held, random.random()]
            held = []
    if held:
        yield [held, random.random()]


def threes(samples: list[Any]) -> list[list[Any]]:
    return [samples[start : start + 3] for start in range(0, len(samples), 3)]


def together(values: list[Any]) -> list[Any]:
    return [[text_of(value) for value in values], random.random()]


def parity(value: Any) -> tuple[int, None]:
    return len(str(text_of(value))) % 2, None


class Own(BaseWrapperDataset[Any, Any]):
    """A user's own: one value of each, with something drawn."""

    _savable_fields = ("count",)

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, worker_config=CONFIG)
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        for value in self.dataset:
            self.count += 1
            yield drawn(value)

    def restore_sample(self, restore_key: Any) -> Any:
        return drawn(super().restore_sample(restore_key))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    for name, rows in (("a", 17), ("b", 9)):
        (root / name).mkdir()
        with omniloom.TarWriter(root / name / "s.tar") as tar:
            for row in range(rows):
                tar.add(f"{row:03}.txt", f"{name}{row}".encode())
        energon.BaseWebdatasetFactory.prepare_dataset(
            root / name, ["s.tar"], split_parts_ratio=[("train", 1)], workers=1
        )
        (root / name / ".nv-meta/dataset.yaml").write_text(
            "sample_type: {__module__: megatron.energon, __class__: TextSample}\nfield_map: {text: txt}\n"
        )
    return root


def tower(draw: random.Random, root: Path) -> tuple[Any, list[str]]:
    """A data set of one to four wrappers, and their names; what does not go together is left out."""

    def base(name: str) -> Any:
        training = draw.random() < 0.5
        return energon.get_dataset_from_config(
            root / name, split_part="train", training=training, worker_config=CONFIG
        ).build()

    wrappers: dict[str, Callable[[Any], Any]] = {
        "map": lambda inner: energon.MapDataset(inner, drawn),
        "map to several": lambda inner: energon.MapDataset(inner, several),
        "filter": lambda inner: energon.FilterDataset(inner, filter_fn=wanted),
        "batch": lambda inner: energon.BatchDataset(inner, 2, together),
        "group": lambda inner: energon.GroupBatchDataset(inner, 2, parity, together),
        "pack": lambda inner: energon.PackingDataset(inner, 12, threes, together),
        "blend": lambda inner: energon.BlendDataset((inner, 0.6), (base("b"), 0.4)),
        "concat": lambda inner: energon.ConcatDataset(inner, base("b")),
        "repeat": lambda inner: energon.RepeatDataset(inner, repeats=draw.choice([None, 2, 3])),
        "limit": lambda inner: energon.LimitDataset(inner, draw.randint(1, 9)),
        "epochize": lambda inner: energon.EpochizeDataset(inner, draw.randint(1, 6)),
        "shuffle": lambda inner: energon.ShuffleBufferDataset(inner, 4),
        "stream": lambda inner: energon.IterMapDataset(inner, in_threes),
        "own": Own,
    }
    dataset, names = base("a"), []
    for _ in range(draw.randint(1, 4)):
        name = draw.choice(sorted(wrappers))
        try:
            dataset = wrappers[name](dataset)
        except omniloom.ConfigError:
            continue
        names.append(name)
    return dataset, names


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=text_of))


def run(loader: Any, count: int) -> Iterator[Any]:
    """Values of up to three passes, with their ends, and no more than ``count``."""
    for _ in range(3 if count else 0):
        for value in loader:
            yield plain(value)
            count -= 1
            if not count:
                return
        yield END
        count -= 1
        if not count:
            return


@pytest.mark.slow
def test_any_tower_of_wrappers_goes_on_from_any_step(folder: Path) -> None:
    draw = random.Random(int(os.environ.get("OMNILOOM_FUZZ_SEED", "0")))
    deadline = time.monotonic() + BUDGET_SECONDS
    towers = 0
    while time.monotonic() < deadline:
        dataset, names = tower(draw, folder)
        first = energon.get_savable_loader(dataset)
        states, whole = [first.save_state_rank()], []
        for value in run(first, 25):
            whole.append(value)
            states.append(json.loads(json.dumps(first.save_state_rank())))
        for step in draw.sample(range(len(states)), min(3, len(states))):
            again = energon.get_savable_loader(dataset)
            again.restore_state_rank(states[step])
            assert list(run(again, len(whole) - step))[: len(whole) - step] == whole[step:], (names, step)
        towers += 1
    print(f"{towers} towers of wrappers in {BUDGET_SECONDS:.0f} s")
    assert towers >= 1
