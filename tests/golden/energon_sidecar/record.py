"""Makes the expected files with Megatron Energon itself; see README.md."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from archives import CASES
from sidecar_content import sidecar_content


def main(energon: str) -> None:
    """Run ``energon prepare`` on each data set and write what it made."""
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "set")
            case.make(root)
            subprocess.run(
                [energon, "prepare", str(root), "--non-interactive", "--no-progress", "--num-workers=1", *case.words],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            text = json.dumps(sidecar_content(root), indent=1, ensure_ascii=False)
        Path(__file__).with_name(f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
