"""Fuzzing by time budget: bytes that nobody should trust are read or refused, never a crash, a hang, a wrong answer."""

from __future__ import annotations

import os

import pytest

from tests.slow.fuzz_page import fuzz
from tests.slow.fuzz_targets import TARGETS, Target

BUDGET_SECONDS = float(os.environ.get("OMNILOOM_FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("OMNILOOM_FUZZ_SEED", "0"))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_untrusted_bytes(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    tally = fuzz(target, seconds=BUDGET_SECONDS / len(TARGETS), seed=SEED)
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.inputs > 0
    assert tally.slowest_seconds < 10
