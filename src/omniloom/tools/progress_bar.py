"""Shows how far a long command is: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

LINE_EVERY_SECONDS = 15.0
_BAR_AFTER_SECONDS = 0.5
_REDRAW_SECONDS = 0.1


class Display(Protocol):
    """Something that is told how far a command is."""

    def show(self, fraction: float, told: str) -> None:
        """Take in the share that is done, from 0 to 1, and what to say with it."""

    def close(self) -> None:
        """Leave the terminal as it was."""


@contextmanager
def progress_bar(what: str, *, shown: bool) -> Iterator[Display]:
    """A display on standard error for the length of a command.

    Args:
        what: what is going on, such as ``Converting``.
        shown: whether anything is to be shown at all.
    """
    display: Display = _Nothing() if not shown else _Bar(what) if sys.stderr.isatty() else _Lines(what)
    try:
        yield display
    finally:
        display.close()


def time_left(fraction: float, seconds: float) -> str:
    """How long the rest will take if it goes on as it went: ``3 min 20 s left``; empty before anything is done."""
    if not 0 < fraction < 1:
        return ""
    minutes, rest = divmod(round(seconds * (1 - fraction) / fraction), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{text} left"


class _Nothing:
    def show(self, fraction: float, told: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is open."""


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = self._last = time.monotonic()

    def show(self, fraction: float, told: str) -> None:
        now = time.monotonic()
        if now - self._last < LINE_EVERY_SECONDS:
            return
        self._last = now
        left = time_left(fraction, now - self._begin)
        click.echo(f"{self._what}: {fraction:.0%}, {told}{', ' if left else ''}{left}", err=True)

    def close(self) -> None:
        """Nothing is open."""


class _Bar:
    def __init__(self, what: str) -> None:
        from rich import progress as bars  # noqa: PLC0415 - slow to import, and only a terminal needs it
        from rich.console import Console  # noqa: PLC0415

        self._begin = time.monotonic()
        self._drawn = 0.0
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TextColumn("{task.percentage:>3.0f}%  {task.fields[told]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task(what, total=1.0, told="")

    def show(self, fraction: float, told: str) -> None:
        now = time.monotonic()
        if now - self._begin < _BAR_AFTER_SECONDS or now - self._drawn < _REDRAW_SECONDS:
            return
        if not self._drawn:
            self._bar.start()
        self._drawn = now
        left = time_left(fraction, now - self._begin)
        self._bar.update(self._task, completed=fraction, told=f"{told}  {left}")
        self._bar.refresh()

    def close(self) -> None:
        if self._drawn:
            self._bar.stop()
