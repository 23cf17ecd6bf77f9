"""Shows how far a preparation is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from omniloom.data.index.prepare import Progress

LINE_EVERY_SECONDS = 15.0
_REDRAW_SECONDS = 0.1
_BAR_AFTER_SECONDS = 0.5


@contextmanager
def progress_display(*, shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback for `prepare_dataset`; ``None`` when nothing is to be shown. Writes to standard error."""
    if not shown:
        yield None
        return
    display = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield display.show
    finally:
        display.close()


def rate_and_time_left(progress: Progress, seconds: float) -> str:
    """Samples per second, and how long the rest of the bytes will take."""
    if not progress.samples or not seconds:
        return "starting"
    rate = f"{progress.samples / seconds:,.0f} samples/s"
    if not progress.size_bytes or progress.shards == progress.shards_total:
        return rate
    left = seconds * (progress.size_bytes_total - progress.size_bytes) / progress.size_bytes
    return f"{rate}, {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class _Lines:
    """A line every quarter of a minute, for logs."""

    def __init__(self) -> None:
        self._begin = self._last = time.monotonic()

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_SECONDS:
            self._last = now
            click.echo(_sentence(progress, now - self._begin), err=True)

    def close(self) -> None:
        """Nothing is open."""


class _Bar:
    """A bar that is redrawn in place, once the scan has taken a moment."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._drawn = 0.0
        self._bar: _RichBar | None = None

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._begin < _BAR_AFTER_SECONDS or now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        if self._bar is None:
            self._bar = _RichBar()
        self._bar.draw(progress, now - self._begin)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.close()


class _RichBar:
    def __init__(self) -> None:
        from rich import progress as bars  # noqa: PLC0415 - slow to import, and most scans end before a bar is drawn
        from rich.console import Console  # noqa: PLC0415

        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TextColumn("{task.fields[told]}"),
            console=Console(stderr=True),
            auto_refresh=False,  # a thread of its own would forbid to fork the workers
            transient=True,
        )
        self._task = self._bar.add_task("Scanning", told="")
        self._bar.start()

    def draw(self, progress: Progress, seconds: float) -> None:
        what = "Scanning" if progress.phase == "scan" else "Writing the index"
        self._bar.update(
            self._task,
            description=what,
            completed=progress.shards,
            total=progress.shards_total,
            told=_told(progress, seconds),
        )
        self._bar.refresh()

    def close(self) -> None:
        self._bar.stop()


def _told(progress: Progress, seconds: float) -> str:
    bad = f", {progress.bad:,} bad" if progress.bad else ""
    return f"{progress.shards:,}/{progress.shards_total:,} shards{bad}, {rate_and_time_left(progress, seconds)}"


def _sentence(progress: Progress, seconds: float) -> str:
    return f"Scanned {progress.samples:,} samples: {_told(progress, seconds)}"
