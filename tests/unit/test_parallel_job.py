"""The end of a rank: exit handlers run, output is whole, the code is kept, and the interpreter is not taken apart."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BODY = """
from omniloom.parallel.job import PlainEnd
end = PlainEnd()
import atexit
import sys
class Kept:
    def __del__(self):
        print("taken apart")
kept = Kept()
atexit.register(print, "handler")
end.code = CODE
print("x" * 100_000)
sys.exit(CODE)
"""


def ended(code: str, variables: dict[str, str]) -> tuple[int, list[str]]:
    found = subprocess.run(
        [sys.executable, "-c", BODY.replace("CODE", code)],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return found.returncode, [line for line in found.stdout.splitlines() if not line.startswith("x" * 100_000)]


@pytest.mark.parametrize("code", ["0", "3"])
def test_a_rank_ends_after_its_exit_handlers(code: str) -> None:
    assert ended(code, {"RANK": "1", "WORLD_SIZE": "2"}) == (int(code), ["handler"])


@pytest.mark.parametrize("variables", [{"RANK": "0", "WORLD_SIZE": "1"}, {}])
def test_one_process_ends_as_ever(variables: dict[str, str]) -> None:
    assert ended("3", variables) == (3, ["handler", "taken apart"])


def test_an_error_keeps_its_code() -> None:
    assert ended("None", {"RANK": "0", "WORLD_SIZE": "2"})[0] == 0
