"""Coverage-guided fuzzing of the readers that are Python throughout, where atheris is installed.

python -m tests.slow.fuzz_atheris json|yaml|image|tar|index -max_total_time=60
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # `pip install atheris`; it has wheels for Linux only

with atheris.instrument_imports(include=["omniloom.data.media", "omniloom.data.index", "omniloom.data.shards", "json"]):
    from tests.slow.fuzz_targets import BYTES, SEEDS


def main() -> None:
    name = sys.argv.pop(1)
    read = BYTES[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]()):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], lambda data: read(data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
