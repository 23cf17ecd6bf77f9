"""Runs every fuzz target for a time and writes what was tried into docs/reliability.md.

python -m tests.slow.fuzz_page SECONDS_PER_TARGET [SEED]
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.slow.fuzz_targets import TARGETS, Target

PAGE = Path(__file__).resolve().parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- fuzz: begin -->\n", "<!-- fuzz: end -->\n"


@dataclass(kw_only=True)
class Tally:
    """What came of a target.

    Attributes:
        target: the target.
        inputs: how many inputs were tried.
        outcomes: calls by the word that told what came of them.
        slowest_seconds: of one call.
    """

    target: Target
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0

    def __str__(self) -> str:
        words = ", ".join(f"{word} {count:,}" for word, count in self.outcomes.most_common())
        return f"{self.target.name}: {self.inputs:,} inputs, slowest {self.slowest_seconds:.2f} s: {words}"


def fuzz(target: Target, *, seconds: float, seed: int) -> Tally:
    """Try a target until the time is up. The seed of an input that goes wrong is in the error."""
    tally = Tally(target=target)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        try:
            word = target.check(random.Random(seed))
        except BaseException as error:
            raise AssertionError(f"{target.name}: seed {seed}: {type(error).__name__}: {error}") from error
        tally.outcomes[word] += 1
        tally.inputs += target.inputs
        tally.slowest_seconds = max(tally.slowest_seconds, time.monotonic() - began)
        seed += 1
    return tally


def table(tallies: list[Tally]) -> str:
    """The tallies as a Markdown table."""
    rows = ["| what was fed | inputs tried | slowest call | what came of them |", "|---|---|---|---|"]
    for tally in tallies:
        total = sum(tally.outcomes.values())
        words = ", ".join(f"{word} {count / total:.1%}" for word, count in tally.outcomes.most_common(8))
        rows.append(f"| {tally.target.name} | {tally.inputs:,} | {tally.slowest_seconds:.2f} s | {words} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff tells of damage on the error stream
    tallies = []
    for target in TARGETS:
        try:
            tallies.append(fuzz(target, seconds=seconds, seed=seed))
        except AssertionError as error:
            print(error)
            raise SystemExit(1) from error
        print(tallies[-1], flush=True)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(tallies) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
