"""The demo with several seeds, and the rows of the table in docs/demo.md.

python examples/demo_seeds.py --side-by-side        # three seeds at once, one thread each
python examples/demo_seeds.py --seeds 3 4 --small   # one after the other
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

DEMO = Path(__file__).resolve().parent / "demo.py"
HEAD = "| seed | test questions | yes or no | shape | colour | asked about another image |"


def main() -> None:
    """Run them, and print the table; what a run says goes to a file beside its folder."""
    options = _options()
    environment = dict(os.environ, **({"OMP_NUM_THREADS": "1"} if options.side_by_side else {}))
    begin, running = time.perf_counter(), []
    for seed in options.seeds:
        folder = options.folder / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(DEMO), "--seed", str(seed), "--folder", str(folder)]
        command += ["--small"] if options.small else []
        with folder.with_suffix(".txt").open("w") as said:
            running.append(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment))
        if not options.side_by_side:
            running[-1].wait()
    failed = [seed for seed, process in zip(options.seeds, running, strict=True) if process.wait()]
    if failed:
        raise SystemExit(f"seeds that did not come to their end: {failed}; see {options.folder}/seed-*.txt")
    print(HEAD, "|---|---|---|---|---|---|", sep="\n")
    for seed in options.seeds:
        print(row_of(seed, options.folder / f"seed-{seed}/results"))
    print(f"\nDone in {time.perf_counter() - begin:.0f} s.")


def row_of(seed: int, results: Path) -> str:
    """A row of the table: the model's scores, by kind of question too, and its score with another image each."""
    seen, swapped = (json.loads((results / f"{number}.json").read_text()) for number in (1, 2))
    kinds = [seen["groups"]["kind"][kind] for kind in ("yes or no", "shape", "colour")]
    others = " | ".join(f"{value:.1f}" for value in (*kinds, swapped["scores"]["accuracy"]))
    return f"| {seed} | **{seen['scores']['accuracy']:.1f}** | {others} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("demo-seeds"))
    parser.add_argument("--side-by-side", action="store_true")
    parser.add_argument("--small", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
