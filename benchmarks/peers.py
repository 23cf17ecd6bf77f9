"""Installing the peers, and preparing a data set once for all sides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import Context, say

HERE = Path(__file__).resolve().parent
DEFAULT_VENV = HERE / ".venv-peers"
DEFAULT_PYTHON = DEFAULT_VENV / "bin" / "python"


def install_peers() -> Path:
    """Make benchmarks/.venv-peers, once; returns its interpreter."""
    if not DEFAULT_PYTHON.exists():
        say(f"installing the peers into {DEFAULT_VENV} (once)")
        subprocess.run([sys.executable, "-m", "venv", str(DEFAULT_VENV)], check=True)
        requirements = str(HERE / "requirements-peers.txt")
        subprocess.run([str(DEFAULT_PYTHON), "-m", "pip", "install", "-q", "-r", requirements], check=True)
    return DEFAULT_PYTHON


def prepare_command(
    context: Context, side: str, folder: Path, *, sample_type: str, field_map: dict[str, str], workers: int = 2
) -> tuple[str, ...]:
    """The command line that indexes a folder of tars, of Energon or of omniloom: the same options."""
    python = context.peer_python if side == "energon" else context.python
    program = ("-m", "omniloom") if side == "omniloom" else ("-c", "from megatron.energon.cli.main import main; main()")
    return (
        str(python), *program, "prepare", str(folder), "--non-interactive", "--no-progress",
        f"--num-workers={workers}", "--split-ratio=1,0,0", f"--sample-type={sample_type}",
        f"--field-map={json.dumps(field_map)}",
    )  # fmt: skip


def ensure_prepared(context: Context, folder: Path, *, sample_type: str, field_map: dict[str, str]) -> None:
    """Index a made data set once; by Energon's own command where it is installed, so that no side can complain."""
    if (folder / ".nv-meta" / ".info.json").exists():
        return
    side = "energon" if context.peer_python else "omniloom"
    say(f"preparing {folder.name} with {side}")
    subprocess.run(
        prepare_command(context, side, folder, sample_type=sample_type, field_map=field_map),
        check=True,
        capture_output=True,
    )
