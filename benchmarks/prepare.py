"""`prepare` on the text data set with two workers: seconds of the whole command, and whether the index is the same."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from data_text import text_dataset
from harness import Context, ProgramError, row, run_once, show_row, warm_page_cache
from memory import PeakMemory
from peers import prepare_command

NAME = "prepare"
WORKERS = 2
WITH_SQLITE, WITHOUT_SQLITE = "with index.sqlite", "without (--no-sqlite)"
TABLES = ("samples", "sample_parts")


def run(context: Context) -> dict[str, Any]:
    """Measure the commands in turn on fresh hard links to the same tars."""
    folder = text_dataset(context.data_dir, records=20_000 if context.quick else 200_000)
    warm_page_cache(folder)
    seconds: dict[str, list[float]] = {"omniloom": [], "energon": [], "floor": [], WITHOUT_SQLITE: []}
    same = None
    with tempfile.TemporaryDirectory(dir=context.data_dir) as temporary:
        work = Path(temporary)
        for _ in range(context.pairs):
            for side in ("omniloom", "energon", WITHOUT_SQLITE):
                if side == "energon" and (context.peer_python is None or "energon" not in context.sides):
                    continue
                target = _links(folder, work / side)
                seconds[side].append(_prepare(context, side, target)[0])
            floor = context.program("floor", "prepare_floor", data=folder, out=work / "floor.sqlite")
            if floor:
                seconds["floor"].append(run_once(floor)["seconds"])
                (work / "floor.sqlite").unlink()
        if seconds["energon"]:
            same = _same_index(work / "omniloom", work / "energon")
        growth = _growth(context, folder, work)
    figures = {side: seconds[side] for side in ("omniloom", "energon", "floor") if seconds[side]}
    short = {"omniloom": seconds[WITHOUT_SQLITE], "energon": seconds["energon"]}
    rows = [
        row(WITH_SQLITE, figures, bars={"energon": 8.0}),
        row(
            WITHOUT_SQLITE,
            {side: ones for side, ones in short.items() if ones},
            bars={"energon": 15.0},
            without_floor=True,
        ),
    ]
    for entry in rows:
        show_row(entry, "s")
    return {
        "title": "Prepare",
        "unit": "s",
        "better": "lower",
        "settings": f"{'20,000' if context.quick else '200,000'} text records in plain tars, {WORKERS} workers, the "
        "whole command with its start; 1.5 times the floor is allowed too",
        "floor": "reading every header in 2 processes and filling the same sqlite tables, without any check",
        "rows": rows,
        "facts": {"same_index_as_energon": same, "growth": growth},
    }


def _links(folder: Path, target: Path, *, shards: int | None = None) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for tar in sorted(folder.glob("*.tar"))[:shards]:
        os.link(tar, target / tar.name)
    return target


def _prepare(context: Context, side: str, target: Path, *, watch: bool = False) -> tuple[float, int]:
    """Seconds of the command, and its peak memory in bytes when it is watched."""
    program = "energon" if side == "energon" else "omniloom"
    command = prepare_command(
        context, program, target, sample_type="TextSample", field_map={"text": "txt"}, workers=WORKERS
    )
    command += ("--no-sqlite",) if side == WITHOUT_SQLITE else ()
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    memory = PeakMemory(process.pid) if watch else None
    errors = process.communicate()[1]
    elapsed = time.perf_counter() - started
    peak = memory.stop() if memory else 0
    if process.returncode:
        raise ProgramError(f"{side}: exit code {process.returncode} from {' '.join(command)}\n{errors[-2_000:]}")
    return elapsed, peak


def _growth(context: Context, folder: Path, work: Path) -> list[dict[str, float]]:
    """Seconds and peak memory of ours for a quarter, a half and all of the shards: linear, and flat."""
    shards = len(list(folder.glob("*.tar")))
    found = []
    for part in sorted({max(1, shards // 4), max(1, shards // 2), shards}):
        elapsed, _ = _prepare(context, "omniloom", _links(folder, work / "growth", shards=part))
        _, peak = _prepare(context, "omniloom", _links(folder, work / "growth", shards=part), watch=True)
        found.append({"samples": part * 10_000, "seconds": elapsed, "peak_pss_mb": peak / 1e6})
    return found


def _same_index(ours: Path, theirs: Path) -> bool:
    """Whether every .tar.idx is equal in bytes and every table of index.sqlite in sorted rows."""
    names = sorted(path.name for path in theirs.glob("*.tar.idx"))
    equal = names == sorted(path.name for path in ours.glob("*.tar.idx"))
    equal = equal and all((ours / name).read_bytes() == (theirs / name).read_bytes() for name in names)
    return equal and all(_rows(ours, table) == _rows(theirs, table) for table in TABLES)


def _rows(folder: Path, table: str) -> list[Any]:
    base = sqlite3.connect(folder / ".nv-meta" / "index.sqlite")
    try:
        return sorted(base.execute(f"SELECT * FROM {table}"))
    finally:
        base.close()
