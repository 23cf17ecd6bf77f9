"""Every mesh over gloo: losses, gradient norms, parameters and held-out losses of one process after three steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slow.rank_runs import run_jobs

pytestmark = pytest.mark.slow

DEEP = {"num_layers": 4}
BIASES = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}
TIED = {"num_layers": 4, "tied_head": True, "qk_norm": True, "vocab_size": 63, **BIASES}
FEW_HEADS = {"num_heads": 4, "num_kv_heads": 1, "window": 5}
STAGE_ONE = {"vision_tower": {"train": False}, "language_model": {"train": False}}
LORA = {"vision_tower": {"train": False}, "language_model": {"lora": {"rank": 4, "alpha": 8}}}
DROPOUT = {"language_model": {"dropout": {"stream": 0.2, "words": 0.1}}, "vision_tower": {"dropout": {"stream": 0.1}}}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "deep": {"language": DEEP},
    "tied": {"language": TIED},
    "few": {"language": FEW_HEADS},
    "stage-one": {"language": DEEP, "parts": STAGE_ONE},
    "lora": {"language": DEEP, "parts": LORA},
    "dropout": {"parts": DROPOUT},
    "features": {"features": True, "language": DEEP},
    "lora-few": {"language": FEW_HEADS, "parts": LORA},
}
EVERY_LAYER = {"language_model": 1, "vision_tower": 1}


def agree(found: Any, expected: Any) -> None:
    """Lines and held-out losses within 1e-4, relative; parameters after steps of 1e-3 within 1e-4, absolute."""
    for ours, theirs in zip(found["steps"], expected["steps"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    if "validation" in found:
        assert found["validation"] == pytest.approx(expected["validation"], rel=1e-4)
    assert set(found["weights"]) <= set(expected["weights"])
    for name, values in found["weights"].items():
        if values:  # a stage has no others
            assert values == pytest.approx(expected["weights"][name], abs=1e-4), name


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process: what all meshes are compared with."""
    asked = [{"validate": True, **run} for run in SHAPES.values()]
    return dict(zip(SHAPES, run_jobs(1, asked, tmp_path_factory.mktemp("alone")), strict=True))


def check(ranks: int, meshes: list[tuple[str, dict[str, Any]]], folder: Path, alone: dict[str, Any]) -> None:
    """Train on each mesh, and compare with the run of that name in one process."""
    runs = [{"parallel": parallel, "validate": True, **SHAPES[like]} for like, parallel in meshes]
    for (like, parallel), found in zip(meshes, run_jobs(ranks, runs, folder), strict=True):
        try:
            agree(found, alone[like])
            cut = ranks > 1 and not parallel.get("context")
            # A rank reads its slices: of the tiny model most is in matrices that are sharded or cut.
            assert not cut or found["read"] < 0.75 * alone[like]["read"]
            if parallel.get("balance") == "ranks":
                told = found["balance"]
                assert 1 <= told["imbalance_after"] < told["imbalance_before"]
                assert told["exchanged_bytes"] > 0
        except AssertionError as error:
            raise AssertionError(f"{like} {parallel}: {error}") from error


def test_two_ranks(tmp_path: Path, alone: dict[str, Any]) -> None:
    meshes: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("plain", {"balance": "ranks"}),
        ("plain", {"tensor": 2}),
        ("features", {}),
        ("features", {"balance": "ranks"}),
        ("features", {"tensor": 2, "tower": "dealt"}),
        ("features", {"context": 2}),
        ("plain", {"tensor": 2, "tower": "dealt"}),
        ("plain", {"tensor": 2, "sequence": True, "pad_tokens": 16}),
        ("tied", {"tensor": 2, "sequence": True, "recompute": EVERY_LAYER}),
        ("plain", {"context": 2}),
        ("plain", {"context": 2, "context_form": "gather"}),
        ("few", {"context": 2, "tower": "dealt"}),
        ("few", {"context": 2, "context_form": "gather", "recompute": EVERY_LAYER}),
        ("features", {"pipeline": 2}),
        ("deep", {"pipeline": 2}),
        ("deep", {"pipeline": 2, "pipeline_chunks": 2, "recompute": EVERY_LAYER}),
        ("tied", {"pipeline": 2}),
        ("stage-one", {"pipeline": 2, "pipeline_layers": [1, 3]}),
        ("lora", {"tensor": 2, "sequence": True}),
        ("lora", {"pipeline": 2}),
        ("dropout", {"balance": "ranks"}),
        ("dropout", {"tensor": 2, "recompute": EVERY_LAYER}),
        ("lora-few", {"tensor": 2, "sequence": True}),
    ]
    check(2, meshes, tmp_path, alone)


def test_four_ranks(tmp_path: Path, alone: dict[str, Any]) -> None:
    meshes: list[tuple[str, dict[str, Any]]] = [
        ("plain", {"tensor": 2, "sequence": True}),
        ("plain", {"tensor": 2, "replicas": 2}),
        ("plain", {"context": 2}),
        ("plain", {"context": 2, "tensor": 2, "sequence": True, "tower": "dealt"}),
        ("plain", {"context": 2, "tensor": 2, "sequence": True, "context_form": "gather"}),
        ("plain", {"context": 4, "context_form": "gather"}),
        ("deep", {"pipeline": 2}),
        ("deep", {"pipeline": 2, "pipeline_chunks": 2, "tensor": 2}),
        ("deep", {"pipeline": 2, "context": 2}),
        ("tied", {"pipeline": 4}),
    ]
    check(4, meshes, tmp_path, alone)


def test_eight_ranks(tmp_path: Path, alone: dict[str, Any]) -> None:
    meshes: list[tuple[str, dict[str, Any]]] = [
        ("tied", {"pipeline": 2, "tensor": 2, "sequence": True}),
        ("deep", {"pipeline": 2, "context": 2, "tensor": 2}),
    ]
    check(8, meshes, tmp_path, alone)


def test_a_run_goes_on_on_other_meshes(tmp_path: Path, alone: dict[str, Any]) -> None:
    """Steps on two stages, on one process, on matrices cut, on stages with tied words: one checkpoint form."""
    deep = {"language": DEEP, "folder": str(tmp_path / "deep")}
    tied = {"language": TIED, "folder": str(tmp_path / "tied")}
    first = [{**deep, "parallel": {"pipeline": 2}}, {**tied, "parallel": {"tensor": 2, "sequence": True}}]
    last = [{**deep, "parallel": {"context": 2}}, {**tied, "parallel": {"pipeline": 2}}]
    for steps, (ranks, legs) in enumerate([(2, first), (1, [deep, tied]), (2, last)], start=1):
        found = run_jobs(ranks, [{**leg, "steps": steps} for leg in legs], tmp_path / f"leg-{steps}")
    agree(found[0], alone["deep"])
    agree(found[1], alone["tied"])
