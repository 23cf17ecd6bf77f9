"""Runs Energon's own test suite, unmodified, on the names of omniloom.

    python tests/compat/run_energon_suite.py CHECKOUT [--only PART] [--results FILE] [--again] [--page]

CHECKOUT is a clone of https://github.com/NVIDIA/Megatron-Energon. Each test file runs in a process of its own, with the
checkout's root as working folder, as the suite wants it. Energon's sources must not be importable there: `compat/`
stands in their place. What the tests themselves import (webdataset, soundfile, multi-storage-client, tqdm, torchvision)
has to be installed or on PYTHONPATH; a test whose libraries are missing counts as not run.

The outcomes are kept in a file (`--results`), which a run of some tests renews for these. `--again` runs those that
have not passed, each alone; `--page` writes the table of docs/energon.md of the file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import energon_suite_page

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "compat"
PLUGIN = ROOT / "tests" / "compat" / "energon_suite_limit.py"
LIMIT_SECONDS = 1800
PASSED, FAILED, NOT_RUN = "passes", "fails", "not run"


class Outcome(NamedTuple):
    """What became of a test.

    Attributes:
        state: it passed, failed or did not run.
        why: the first line of what it said.
    """

    state: str
    why: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="", help="test files whose name holds this")
    parser.add_argument("--tests", help="tests whose name matches, as for pytest -k")
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir(), "energon-suite.json"))
    parser.add_argument("--again", action="store_true", help="run the tests that have not passed, each alone")
    parser.add_argument("--page", action="store_true", help="write docs/energon.md's table of all results")
    parser.add_argument("--per-test-seconds", type=int, default=180)
    arguments = parser.parse_args()
    files = sorted(path for path in (arguments.checkout / "tests").glob("test_*.py") if arguments.only in path.name)
    results = read_results(arguments.results)
    for path in files:
        everything = tests_in(path)
        if arguments.again:
            wanted = [name for name in everything if results.get(name, Outcome(FAILED)).state != PASSED]
            found = {}
            for name in wanted:
                found |= run(path, arguments.checkout, [name], arguments.per_test_seconds, None)
        else:
            found = run(path, arguments.checkout, everything, arguments.per_test_seconds, arguments.tests)
        for name, outcome in found.items():
            print(f"{name}: {outcome.state}{f' ({outcome.why})' if outcome.why else ''}", flush=True)
        results |= found
        arguments.results.write_text(json.dumps(results, indent=1) + "\n")
    counts = Counter(outcome.state for outcome in results.values())
    print(f"{counts[PASSED]} of {len(results)} pass; {dict(counts)}")
    if arguments.page:
        energon_suite_page.write(ROOT / "docs" / "energon.md", {name: tuple(one) for name, one in results.items()})
    return 0


def read_results(path: Path) -> dict[str, Outcome]:
    """The outcomes that a file holds, by test."""
    return {name: Outcome(*one) for name, one in json.loads(path.read_text()).items()} if path.is_file() else {}


def tests_in(path: Path) -> list[str]:
    """The tests of a file, as ``file.Class.test``: read, not imported, so that none is left out where one fails."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    return [
        f"{path.stem}.{owner.name}.{node.name}"
        for owner in classes
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def run(path: Path, checkout: Path, names: list[str], seconds: int, matching: str | None) -> dict[str, Outcome]:
    """The outcomes of tests of one file, run in one process."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        relative = path.relative_to(checkout)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN.stem, "-o", "addopts="]
        command += [f"--junitxml={report}", "--rootdir", str(checkout)]
        command += [f"{relative}::{'::'.join(name.split('.')[1:])}" for name in names]
        command += ["-k", matching] if matching else []
        try:
            subprocess.run(
                command,
                cwd=checkout,
                env=environment(checkout, seconds),
                capture_output=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {name: Outcome(FAILED, f"hung after {LIMIT_SECONDS} s") for name in names}
        found = outcomes(path.stem, report) if report.exists() else {}
    missing = Outcome(FAILED, "the process of the tests crashed")
    if "*" in found:
        missing = found.pop("*")
    return found if matching else {name: found.get(name, missing) for name in names}


def environment(checkout: Path, seconds: int) -> dict[str, str]:
    """The environment of the tests: omniloom's names stand where Energon's sources would."""
    paths = [str(COMPAT), str(ROOT / "src"), str(PLUGIN.parent), str(checkout)]
    paths += [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TEST_LIMIT_SECONDS": str(seconds)}


def outcomes(stem: str, report: Path) -> dict[str, Outcome]:
    """The outcomes that a report of pytest tells; that of a file that could not be imported is called ``*``."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        owner = (case.get("classname") or "").rpartition(".")[2]
        name = f"{stem}.{owner}.{case.get('name')}" if owner.startswith("Test") else "*"
        if problem is None:
            found[name] = Outcome(PASSED)
            continue
        lines = (problem.get("message") or "").splitlines() or [""]
        text = (problem.text or "").strip().splitlines() or [""]
        why = next((line for line in text if "ModuleNotFoundError" in line), lines[0]) if name == "*" else lines[0]
        left_out = problem.tag == "skipped" or ("ModuleNotFoundError" in why and "megatron" not in why)
        found[name] = Outcome(NOT_RUN if left_out else FAILED, why.removeprefix("E   ")[:200])
    return found


if __name__ == "__main__":
    sys.exit(main())
