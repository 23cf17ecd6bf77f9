"""Faults, cookers, ranges and wrapper datasets do under Energon's names what they do in megatron-energon 7.4.1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTED: dict[str, Any] = json.loads((HERE / "energon_behaviour" / "expected.json").read_text(encoding="utf-8"))


def recorded(python: str, folder: Path, *paths: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [python, str(HERE / "energon_behaviour" / "record.py"), str(folder)]
    told = subprocess.run(command, check=True, capture_output=True, env=environment)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded(sys.executable, tmp_path_factory.mktemp("sets") / "new", ROOT / "src", ROOT / "compat")


@pytest.mark.parametrize("case", EXPECTED)
def test_it_is_as_in_energon(case: str, found: dict[str, Any]) -> None:
    assert found[case] == EXPECTED[case]


def test_what_is_expected_is_what_the_installed_energon_does(tmp_path: Path) -> None:
    program = os.environ.get("ENERGON_PYTHON")
    if not program:
        pytest.skip("ENERGON_PYTHON names no Python that has megatron-energon")
    assert recorded(program, tmp_path / "new") == EXPECTED
