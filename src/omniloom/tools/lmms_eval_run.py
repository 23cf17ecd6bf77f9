"""``omniloom evaluate --inside lmms-eval``: its command with a model of ours, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from omniloom.errors import ConfigError

EXIT_ERROR = 1


def run_lmms_eval(
    task: str,
    model: str | None,
    *,
    output: Path | None,
    limit: int | None,
    tasks: Path | None,
    words: Mapping[str, Any],
) -> int:
    """Let lmms-eval ask a model of ours and score it; its exit code.

    Args:
        task: its name there.
        model: folder of a run or of a model.
        output: where it writes its results and its log of samples; ``None``: it prints the results alone.
        limit: items at most.
        tasks: folder of tasks of one's own; ``None``: those that it brings.
        words: values of the flags of `omniloom.tools.answering`; a task there says itself how words are chosen.

    Raises:
        ConfigError: lmms-eval is not installed.
    """
    if model is None:
        raise click.UsageError("--model is missing; the folder of the model that lmms-eval is to ask expected.")
    if find_spec("lmms_eval") is None:
        raise ConfigError("lmms-eval is not installed beside omniloom: pip install omniloom[lmms-eval].")
    settings = {
        "pretrained": model,
        "template": words["template"],
        "batch_tokens": words["batch_tokens"],
        "max_frames_num": words["num_frames"],
    }
    odd = next((str(value) for value in settings.values() if "," in str(value)), None)
    if odd is not None:
        raise click.UsageError(f"{odd!r} has a comma in it, at which lmms-eval would cut it. Give it another name.")
    given = ",".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    command = [sys.executable, "-m", "lmms_eval", "--model", "omniloom", "--model_args", given, "--tasks", task]
    command += ["--batch_size", str(words["batch_size"])]
    command += [] if limit is None else ["--limit", str(limit)]
    command += [] if tasks is None else ["--include_path", str(tasks)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if output is None else output
        before = _results(folder)
        command += ["--output_path", str(folder)] + ([] if output is None else ["--log_samples"])
        code = subprocess.run(command, check=False).returncode
        if code == 0 and _results(folder) == before:  # it ends with 0 after its own errors, too
            click.echo(f"lmms-eval wrote no result of {task}; what it said before tells why.", err=True)
            return EXIT_ERROR
    return code


def _results(folder: Path) -> set[Path]:
    return set(folder.rglob("*results.json"))
