"""Runs Energon's own test suite, unmodified, on the names of omniloom.

    python tests/compat/run_energon_suite.py CHECKOUT [--only PART] [--report FILE]

CHECKOUT is a clone of https://github.com/NVIDIA/Megatron-Energon. Each test file runs in a process of its own, with the
checkout's root as working folder, as the suite wants it. Energon's sources must not be importable there: `compat/`
stands in their place. What the tests themselves import (webdataset, soundfile) has to be installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "compat"
LIMIT_SECONDS = 900


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", help="test files whose name holds this")
    parser.add_argument("--tests", help="tests whose name matches, as for pytest -k")
    parser.add_argument("--report", type=Path, help="write a line for each test to this file")
    parser.add_argument("--per-test-seconds", type=int, default=120)
    arguments = parser.parse_args()
    files = sorted(
        path for path in (arguments.checkout / "tests").glob("test_*.py") if (arguments.only or "") in path.name
    )
    lines: list[str] = []
    for path in files:
        lines += run_file(path, arguments.checkout, arguments.tests, arguments.per_test_seconds)
        print("\n".join(line for line in lines if line.startswith(f"{path.stem}.")), flush=True)
    counts = Counter(line.split(": ")[1].split(" ")[0] for line in lines)
    print(f"{counts['passed']} of {sum(counts.values())} pass; {dict(counts)}")
    if arguments.report:
        arguments.report.write_text("\n".join(lines) + "\n")
    return 0


def run_file(path: Path, checkout: Path, tests: str | None, seconds: int) -> list[str]:
    """A line for each test of a file: its name, what became of it, and why."""
    report = Path(os.environ.get("TMPDIR", "/tmp"), f"energon-suite-{os.getpid()}.xml")
    report.unlink(missing_ok=True)
    plugin = ROOT / "tests" / "compat" / "energon_suite_limit.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        plugin.stem,
        f"--junitxml={report}",
    ]
    command += ["-o", "addopts=", "--rootdir", str(checkout), str(path.relative_to(checkout))]
    command += ["-k", tests] if tests else []
    paths = [str(COMPAT), str(ROOT / "src"), str(plugin.parent), str(checkout)]
    paths += [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TEST_LIMIT_SECONDS": str(seconds)}
    try:
        subprocess.run(command, cwd=checkout, env=environment, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [f"{path.stem}.*: hung after {LIMIT_SECONDS} s"]
    return list(outcomes(path.stem, report)) if report.exists() else [f"{path.stem}.*: crashed"]


def outcomes(stem: str, report: Path) -> list[str]:
    """A line for each test in a report."""
    lines = []
    for case in ET.parse(report).getroot().iter("testcase"):
        found = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        name = f"{stem}.{case.get('name')}"
        if case.get("name") == "test_joiner" or (found is not None and found.tag == "skipped"):
            continue  # a helper function of the suite that pytest takes for a test
        if found is None:
            lines.append(f"{name}: passed")
        else:
            why = (found.get("message") or "").splitlines() or [""]
            lines.append(f"{name}: failed ({why[0][:200]})")
    return lines


if __name__ == "__main__":
    sys.exit(main())
