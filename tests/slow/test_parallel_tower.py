"""A tower that is cut over all ranks of a stage, or whole on each: losses, norms and parameters of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slow.rank_runs import run_jobs
from tests.slow.test_parallel_meshes import SHAPES, agree

pytestmark = pytest.mark.slow

WHOLE = {"tower_weights": "replicated"}
MESHES: dict[int, list[tuple[str, dict[str, Any]]]] = {
    2: [
        ("plain", WHOLE),
        ("plain", {**WHOLE, "gradients": "sharded"}),
        ("plain", {**WHOLE, "tensor": 2}),
        ("plain", {**WHOLE, "tensor": 2, "tower": "dealt", "sequence": True}),
        ("plain", {"tensor": 2, "tower": "dealt"}),
        ("plain", {**WHOLE, "context": 2, "tower": "dealt"}),
        ("stage-one", {**WHOLE, "pipeline": 2}),
    ],
    4: [
        ("plain", {"tensor": 2}),
        ("plain", {"tensor": 2, "replicas": 2}),
        ("plain", {**WHOLE, "tensor": 2, "sequence": True}),
        ("plain", {"tensor": 2, "context": 2, "tower": "dealt"}),
        ("deep", {**WHOLE, "pipeline": 2}),
        ("deep", {"pipeline": 2, "tensor": 2}),
    ],
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process."""
    names = ("plain", "stage-one", "deep")
    found = run_jobs(1, [SHAPES[name] for name in names], tmp_path_factory.mktemp("alone"))
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("ranks", list(MESHES))
def test_a_tower_learns_what_it_learns_alone(tmp_path: Path, alone: dict[str, Any], ranks: int) -> None:
    runs = [{**SHAPES[like], "parallel": parallel} for like, parallel in MESHES[ranks]]
    for (like, parallel), found in zip(MESHES[ranks], run_jobs(ranks, runs, tmp_path), strict=True):
        try:
            agree(found, alone[like])
            tower = sum(size for name, size in found["held"].items() if name.startswith("vision_tower"))
            every = sum(size for name, size in alone[like]["held"].items() if name.startswith("vision_tower"))
            whole = parallel.get("tower_weights") == "replicated"
            shards = ranks // parallel.get("pipeline", 1) // parallel.get("replicas", 1)
            # Vectors that ranks do not divide are filled up on some.
            assert tower == every if whole else every / shards <= tower < 1.1 * every / shards
        except AssertionError as error:
            raise AssertionError(f"{like} {parallel}: {error}") from error
