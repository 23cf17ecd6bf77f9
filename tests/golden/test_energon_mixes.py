"""Metadatasets come to the leaves, rows, weights and subflavors that Megatron Energon makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "energon_mixes"))

from mixes import SETS, describe_sets, make_sets

from omniloom import (
    WorkerConfig,
    get_loader,
    get_train_dataset,
    get_val_dataset,
    prepare_dataset,
    prepare_metadataset,
)
from omniloom.data.mix.flatten import flatten
from omniloom.data.mix.tree import Ref

EXPECTED = json.loads((Path(__file__).parent / "energon_mixes" / "expected.json").read_text())
MODES = {"single": "none", "weights": "dataset_weight", "repetitions": "sample_repetitions"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mixes")
    make_sets(root)
    for name in SETS:
        prepare_dataset(root / name, split_ratio={"train": 1.0}, num_workers=1)
    describe_sets(root)
    return root


@pytest.mark.parametrize("case", EXPECTED)
def test_leaves_are_those_of_energon(case: str, root: Path) -> None:
    name, part = case.split()
    flat = flatten(
        Ref(path=str(root / name)), split_part=part, training=True, subflavors={"outermost": True}, multiplier=5
    )
    expected = EXPECTED[case]
    assert MODES[flat.mode] == expected["mode"]
    assert [leaf.multiplier for leaf in flat.leaves] == [one["multiplier"] for one in expected["leaves"]]
    for leaf, one in zip(flat.leaves, expected["leaves"], strict=True):
        weight = 1.0
        for share in leaf.shares:
            weight *= share.at(0)
        assert weight == pytest.approx(1.0 if one["weight"] is None else one["weight"], rel=1e-12)
        assert float(leaf.repetitions) == (1 if one["repetitions"] is None else one["repetitions"])
        if leaf.join is None:
            # What dataset.yaml says is added when the leaf is opened.
            assert {"from": "dataset.yaml", "kept": 1} | dict(leaf.subflavors) == one["subflavors"]


@pytest.mark.parametrize("case", EXPECTED)
def test_evaluation_goes_through_the_samples_that_energon_goes_through(
    case: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, part = case.split()
    monkeypatch.syspath_prepend(str(root))
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_val_dataset(root / name, split_part=part, worker_config=config, batch_size=None, trust=True)
    samples: list[Any] = [[s.__key__, s.text, s.__subflavors__] for s in get_loader(dataset)]
    assert samples == EXPECTED[case]["samples"]


@pytest.mark.parametrize("case", [case for case in EXPECTED if EXPECTED[case]["join_indexes"]])
def test_joins_are_prepared_for_energon_byte_for_byte(case: str, root: Path) -> None:
    name, part = case.split()
    (prepared,) = prepare_metadataset(root / name)
    assert prepared.energon_path is not None
    (expected,) = EXPECTED[case]["join_indexes"]
    assert Path(prepared.energon_path).read_bytes().hex() == expected
    assert (prepared.split_part, prepared.rows) == (part, (len(expected) // 2 - 16) // 24 // (2 + ("three" in name)))


@pytest.mark.parametrize("case", [case for case in EXPECTED if EXPECTED[case]["epoch"]])
def test_an_epoch_holds_each_sample_as_often_as_energons(
    case: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, part = case.split()
    monkeypatch.syspath_prepend(str(root))
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_train_dataset(
        root / name, split_part=part, worker_config=config, batch_size=None, repeat=False, trust=True
    )
    drawn = Counter(sample.__key__ for sample in get_loader(dataset))

    def told(counts: Counter[str]) -> Counter[tuple[str, int]]:
        """How many samples of each data set came how often; which ones a part of a pass takes is each program's own."""
        return Counter((key[0], count) for key, count in counts.items())

    assert told(drawn) == told(Counter(EXPECTED[case]["epoch"]))


def test_energon_reads_mixes_and_joins_that_were_prepared_here(root: Path) -> None:
    program = os.environ.get("ENERGON_PYTHON")
    if not program:
        pytest.skip("ENERGON_PYTHON names no Python that has megatron-energon")
    for name in {case.split()[0] for case in EXPECTED}:
        if "V2" in (root / name).read_text():
            prepare_metadataset(root / name)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [program, str(Path(__file__).parent / "energon_mixes" / "record.py"), str(root)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    for case, found in told.items():
        assert found == EXPECTED[case], case
