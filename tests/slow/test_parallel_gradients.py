"""Gradients that are summed over ranks with each micro-batch, against those that are kept whole until the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slow.rank_runs import run_jobs
from tests.slow.test_parallel_meshes import SHAPES, agree

pytestmark = pytest.mark.slow

EACH = {"gradients": "sharded"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process."""
    names = ("plain", "lora")
    found = run_jobs(1, [SHAPES[name] for name in names], tmp_path_factory.mktemp("alone"))
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("ranks", "meshes"),
    [
        (2, [("plain", {}), ("plain", {"replicas": 2}), ("plain", {"context": 2}), ("lora", {"tensor": 2})]),
        (4, [("plain", {"replicas": 2}), ("plain", {"tensor": 2, "sequence": True}), ("lora", {})]),
    ],
    ids=["two", "four"],
)
def test_losses_norms_and_parameters_are_those_of_one_process(
    tmp_path: Path, alone: dict[str, Any], ranks: int, meshes: list[tuple[str, dict[str, Any]]]
) -> None:
    runs = [{**SHAPES[like], "parallel": parallel | EACH} for like, parallel in meshes]
    for (like, parallel), found in zip(meshes, run_jobs(ranks, runs, tmp_path), strict=True):
        try:
            agree(found, alone[like])
        except AssertionError as error:
            raise AssertionError(f"{like} {parallel}: {error}") from error


def test_what_is_kept_between_micro_batches(tmp_path: Path) -> None:
    """Of two ranks each keeps half of the gradients, or all."""
    runs = [{"parallel": {"gradients": kept}, "steps": 1} for kept in ("sharded", "whole")]
    sharded, whole = run_jobs(2, runs, tmp_path)
    assert sharded["steps"][0] == pytest.approx(whole["steps"][0], rel=1e-6)
    assert sharded["kept"] == pytest.approx(whole["kept"] / 2, rel=0.02)
