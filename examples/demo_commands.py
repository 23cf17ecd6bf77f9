"""Commands as a user types them, shown and run; a run that is killed; scores beside what they are held against."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path


class Commands:
    """Runs commands in a folder, and shows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scored = 0

    def __call__(self, command: str) -> None:
        """Run a command to its end, with the variables before it; a failure ends the demo."""
        print(f"\n$ {command}", flush=True)
        words = shlex.split(command)
        variables = dict(word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words))
        words = _words_of(shlex.join(words[len(variables) :]))
        subprocess.run(words, cwd=self.folder, check=True, env={**os.environ, **variables})

    def killed(self, command: str, *, run: str, saved_step: int, more_steps: int) -> list[str]:
        """Run a training command and kill it without warning; the lines of its log until then.

        Args:
            command: what is run.
            run: the folder of the run.
            saved_step: the kill waits until the checkpoint of this step is there, whole,
            more_steps: and so many steps have been taken since.
        """
        print(f"\n$ {command}    # kill -9, {more_steps} steps after the first checkpoint is there", flush=True)
        log, saved = self.folder / run / "steps.jsonl", self.folder / run / f"step-{saved_step:08}"
        enough = None
        with subprocess.Popen(_words_of(command), cwd=self.folder, start_new_session=True) as process:
            while process.poll() is None and (enough is None or _count(log) < enough):
                if enough is None and saved.is_dir():
                    enough = _count(log) + more_steps
                time.sleep(0.05)
            if process.poll() is not None:
                raise SystemExit("the run ended before it was killed")
            os.killpg(process.pid, signal.SIGKILL)
        return [line for line in log.read_text().split("\n")[:-1] if line]


def score(go: Commands, task: str, answers: str, *, truth: str, model: str) -> float:
    """The first score of answers, by the command line."""
    go.scored += 1
    out = f"--output results/{go.scored}.json --items results/items-{go.scored}.jsonl"
    go(f"omniloom evaluate {task} --answers {answers} --ground-truth {truth} --model '{model}' {out}")
    result = json.loads((go.folder / f"results/{go.scored}.json").read_text())
    return float(next(iter(result["scores"].values())))


def print_scores(scores: dict[str, float], *, heading: str) -> None:
    """A score beside what it has to be held against."""
    print(f"\n{heading}")
    for label, value in scores.items():
        print(f"  {label:<42}{value:6.1f}")


def title(text: str) -> None:
    """The heading of a chapter."""
    print(f"\n{'=' * len(text)}\n{text}\n{'=' * len(text)}", flush=True)


def _words_of(command: str) -> list[str]:
    program, *words = shlex.split(command)
    return [sys.executable, "-m", program, *words]


def _count(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.is_file() else 0
