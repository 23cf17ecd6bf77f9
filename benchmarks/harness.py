"""Starts measured programs, one process each, one at a time and in turn, and collects what they report."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory import PeakMemory

HERE = Path(__file__).resolve().parent
RESULT_MARK = "RESULT "
Reading = dict[str, Any]


class ProgramError(RuntimeError):
    """A measured program failed or reported nothing."""


@dataclass(frozen=True)
class Program:
    """One side of a comparison: a command that prints a line ``RESULT {json}``.

    Attributes:
        side: whose program it is: ``omniloom``, ``energon``, ``webdataset`` or ``floor``.
        command: what to start.
    """

    side: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What every benchmark is given.

    Attributes:
        python: interpreter that has omniloom.
        peer_python: interpreter that has the peers; ``None`` leaves the peers out.
        data_dir: where data sets are made and kept between runs.
        pairs: how many times each program of a comparison runs.
        quick: small data and short windows: shows that the programs work, measures nothing.
        sides: whose programs run.
        image_peer_python: interpreter that has torchvision and SPDL; ``None`` leaves them out.
    """

    python: Path
    peer_python: Path | None
    data_dir: Path
    pairs: int = 5
    quick: bool = False
    sides: frozenset[str] = frozenset({"omniloom", "energon", "webdataset", "torchvision", "spdl", "floor"})
    image_peer_python: Path | None = None

    @property
    def window_seconds(self) -> float:
        """Length of a timed window of a throughput benchmark."""
        return 1.0 if self.quick else 4.0

    def program(self, side: str, script: str, **arguments: object) -> Program | None:
        """The program ``programs/<script>.py`` of a side, or None where that side is not to be run."""
        if side not in self.sides:
            return None
        peers = {"energon": self.peer_python, "webdataset": self.peer_python}
        image_peers = {"torchvision": self.image_peer_python, "spdl": self.image_peer_python}
        python = {**peers, **image_peers}.get(side, self.python)
        if python is None:
            return None
        options = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
        return Program(side, (str(python), str(HERE / "programs" / f"{script}.py"), *options))


def run_once(program: Program, *, timeout_seconds: float = 600) -> Reading:
    """Run a program to its end and return what it reported."""
    process, reading = _start_and_wait(program, timeout_seconds=timeout_seconds, watch_memory=False)
    del process
    return reading


def run_watched(program: Program, *, timeout_seconds: float = 600) -> Reading:
    """As run_once, with ``peak_pss_bytes`` of the program and all its children added."""
    _, reading = _start_and_wait(program, timeout_seconds=timeout_seconds, watch_memory=True)
    return reading


def _start_and_wait(
    program: Program, *, timeout_seconds: float, watch_memory: bool
) -> tuple[subprocess.Popen[str], Reading]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **program.environment}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(program.command, stdout=output, stderr=errors, text=True, env=environment)
        watch = PeakMemory(process.pid) if watch_memory else None
        try:
            process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        wall_seconds = time.perf_counter() - started
        peak_bytes = watch.stop() if watch else None
        output.seek(0)
        errors.seek(0)
        reading = _reading(program, process.returncode, output.read(), errors.read())
    reading["wall_seconds"] = wall_seconds
    if peak_bytes is not None:
        reading["peak_pss_bytes"] = peak_bytes
    return process, reading


def _reading(program: Program, returncode: int, output: str, errors: str) -> Reading:
    lines = [line for line in output.splitlines() if line.startswith(RESULT_MARK)]
    if returncode == 0 and lines:
        reading: Reading = json.loads(lines[-1].removeprefix(RESULT_MARK))
        return reading
    tail = "\n".join((output + errors).splitlines()[-15:])
    raise ProgramError(f"{program.side}: exit code {returncode} from {' '.join(program.command)}\n{tail}")


def alternate(
    programs: Sequence[Program | None], *, rounds: int, watch_memory: bool = False
) -> dict[str, list[Reading]]:
    """Run the programs in turn (A B A B ...), each ``rounds`` times. Programs that are None are left out."""
    chosen = [program for program in programs if program is not None]
    readings: dict[str, list[Reading]] = {program.side: [] for program in chosen}
    for _ in range(rounds):
        for program in chosen:
            run = run_watched if watch_memory else run_once
            readings[program.side].append(run(program))
    return readings


def values(readings: Mapping[str, Sequence[Reading]], name: str) -> dict[str, list[float]]:
    """One figure of every reading, by side."""
    return {side: [reading[name] for reading in ones] for side, ones in readings.items() if ones}


def row(
    case: str, figures: Mapping[str, Sequence[float]], *, bars: Mapping[str, float | None] | None = None, **more: Any
) -> dict[str, Any]:
    """One line of a result: the raw figures of each side, and the ratios that are asked for (``bars``; None: none)."""
    return {
        "case": case,
        "figures": {side: list(ones) for side, ones in figures.items()},
        "bars": dict(bars or {}),
        **more,
    }


def warm_page_cache(folder: Path) -> int:
    """Read every file below a folder once; returns the bytes read."""
    total = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(1 << 22):
                    total += len(chunk)
    return total


def say(message: str) -> None:
    """A line of progress, on stderr so that stdout carries only tables."""
    print(message, file=sys.stderr, flush=True)


def show_row(entry: Mapping[str, Any], unit: str) -> None:
    """Print the medians of a row while the benchmark is still running."""
    parts = [f"{side} {statistics.median(ones):,.4g}" for side, ones in entry["figures"].items() if ones]
    say(f"  {entry['case']}: " + ", ".join(parts) + f" {unit}")
