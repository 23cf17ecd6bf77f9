"""Runs the benchmarks one after the other: `python benchmarks/run.py [--only NAME] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
import report  # noqa: E402
from harness import Context, say  # noqa: E402
from peers import install_peers  # noqa: E402

NAMES = (
    "text",
    "images",
    "image_work",
    "video",
    "first_batch",
    "prepare",
    "mix",
    "plan",
    "scale",
    "shuffle_quality",
    "data_wait",
    "train_step",
    "checkpoint",
    "packing",
    "sources",
    "generate",
    "stores",
    "stores_shards",
)


def main() -> int:
    """Run, print tables, and write the raw figures."""
    options = _options()
    # Both sides start from compiled modules, as an installed package does; the first of the pairs compiles what is new.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    data_dir = HERE / "data"
    data_dir.mkdir(exist_ok=True)
    with (data_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # nothing is timed while another benchmark runs
        peer_python = None if options.no_peers else options.peer_python or install_peers()
        context = Context(
            Path(sys.executable),
            peer_python,
            data_dir,
            1 if options.quick else options.pairs,
            options.quick,
            image_peer_python=options.image_peer_python,
        )
        results: dict[str, Any] = {
            "machine": machine.describe(),
            "versions": {"omniloom": machine.versions(context.python)},
            "pairs": context.pairs,
            "quick": options.quick,
            "benchmarks": {},
        }
        if peer_python:
            results["versions"]["peers"] = machine.versions(peer_python)
        if options.json and options.json.exists() and options.only:
            earlier = json.loads(options.json.read_text())
            results["benchmarks"] = earlier["benchmarks"]
            results["versions"] = {**earlier["versions"], **results["versions"]}
        for name in options.only or NAMES:
            started = time.perf_counter()
            circumstances = machine.Circumstances()
            say(f"{name} ...")
            found = importlib.import_module(name).run(context)
            results["benchmarks"][name] = {**found, "measured": circumstances.describe()}
            say(f"{name}: done after {time.perf_counter() - started:.0f} s")
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report.render(results))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="run this benchmark alone; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="small data, one pair: shows that it works, measures nothing"
    )
    parser.add_argument("--pairs", type=int, default=5, help="runs of each program (default 5)")
    parser.add_argument("--json", type=Path, help="write the raw figures here; with --only, renew a part of the file")
    parser.add_argument("--peer-python", type=Path, help="interpreter with the peers; default: benchmarks/.venv-peers")
    parser.add_argument("--image-peer-python", type=Path, help="interpreter with torchvision and spdl; default: none")
    parser.add_argument("--no-peers", action="store_true", help="measure omniloom and the floors alone")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
