"""Coverage-guided fuzzing of the readers that are Python throughout, where atheris is installed.

python -m tests.slow.fuzz_atheris json|yaml|image -max_total_time=60
"""

from __future__ import annotations

import sys

import atheris  # `pip install atheris`; it has wheels for Linux only

with atheris.instrument_imports(include=["omniloom.data.media", "omniloom.data.index", "json"]):
    from tests.slow.fuzz_targets import BYTES


def main() -> None:
    read = BYTES[sys.argv.pop(1)]
    atheris.Setup(sys.argv, lambda data: read(data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
