"""Answers while training as files: the lines of a step, pictures beside them, and one page of all."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from omniloom.storage.files import replace_file

FOLDER = "samples"
_STYLE = (
    "body{font:15px system-ui;margin:2rem auto;max-width:60rem}img{max-width:14rem;display:block}"
    "section{display:flex;gap:1.5rem;border-top:1px solid #ccc;padding:1rem 0}table{border-collapse:collapse}"
    "td{padding:.15rem .6rem;vertical-align:top}pre{white-space:pre-wrap;margin:0}"
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was answered to a held-out sample after a step.

    Attributes:
        step: so many steps were taken.
        sample: its name.
        picture: file in the folder, or ``None``.
        prompt, expected, answer: texts.
    """

    step: int
    sample: str
    picture: str | None
    prompt: str
    expected: str
    answer: str


def write_answers(run: Path, answers: Sequence[Answer]) -> None:
    """Write the answers of a step of a run, and the page of all steps anew."""
    folder = run / FOLDER
    for step in {answer.step for answer in answers}:
        lines = (json.dumps(asdict(answer)) for answer in answers if answer.step == step)
        replace_file(folder / _name(step), "".join(f"{line}\n" for line in lines))
    replace_file(folder / "index.html", _page(folder))


def read_answers(run: Path, step: int) -> list[Answer]:
    """The answers of a step of a run; none where it was not asked then."""
    path = run / FOLDER / _name(step)
    return _read(path) if path.is_file() else []


def _name(step: int) -> str:
    return f"step-{step:08d}.jsonl"


def _read(path: Path) -> list[Answer]:
    return [Answer(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _page(folder: Path) -> str:
    """The answers of all steps, sample by sample, as HTML."""
    by_sample: dict[str, list[Answer]] = {}
    for path in sorted(folder.glob("step-*.jsonl")):
        for answer in _read(path):
            by_sample.setdefault(answer.sample, []).append(answer)
    sections = []
    for answers in by_sample.values():
        newest = answers[-1]
        picture = f'<img src="{html.escape(newest.picture)}" alt="">' if newest.picture else ""
        lines = "".join(f"<tr><td>step {one.step:,}</td><td>{html.escape(one.answer)}</td></tr>" for one in answers)
        sections.append(
            f"<section>{picture}<div><pre>{html.escape(newest.prompt)}</pre><table>{lines}"
            f"<tr><td>expected</td><td><b>{html.escape(newest.expected)}</b></td></tr></table></div></section>"
        )
    head = f'<!doctype html><meta charset="utf-8"><title>Answers while training</title><style>{_STYLE}</style>'
    return f"{head}<h1>Answers while training</h1>{''.join(sections)}"
