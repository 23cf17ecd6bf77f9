"""``energon analyze-debug``: what the logs of loaders say of the order of samples, as counts and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from PIL import Image

from omniloom.errors import DatasetError

_YIELDS = ("SavableDataLoader.yield", "BasicDataLoader.yield")


class _Step(NamedTuple):
    number: int
    keys: list[str]


@click.command(name="analyze-debug", epilog="\b\nExample:\n  energon analyze-debug worker_debug")
@click.argument("log_paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--heatmap-path", default="heatmap.png", show_default=True, type=click.Path(path_type=Path))
@click.option("--heatmap-steps", default=1000, show_default=True, type=click.IntRange(1), help="Width at most.")
@click.option("--heatmap-samples", default=1000, show_default=True, type=click.IntRange(1), help="Height at most.")
@click.option("--heatmap-gain", default=10.0, show_default=True, type=click.FloatRange(0), help="Brightness.")
@click.option("--force-loading-order", is_flag=True, help="Count steps in the order of the lines.")
@click.option("--include-modality", default="train", show_default=True, help="Parts of the run, separated by commas.")
@click.option("--skip", default=0, show_default=True, type=click.IntRange(0), help="Steps to leave out at the start.")
@click.option("--no-colors", is_flag=True, help="Grey instead of colours.")
def command(
    log_paths: tuple[Path, ...],
    *,
    heatmap_path: Path,
    heatmap_steps: int,
    heatmap_samples: int,
    heatmap_gain: float,
    force_loading_order: bool,
    include_modality: str,
    skip: int,
    no_colors: bool,
) -> None:
    """Draw which sample came at which step, from the logs that Energon writes to worker_debug_path."""
    files = [file for path in log_paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    click.echo(f"Analyzing {len(files)} logs...")
    lines = [line for file in files for line in _lines(file)]
    steps = list(_steps(lines, include_modality.split(","), in_order=force_loading_order))
    steps = [step for step in steps if step.number >= skip]
    if not steps:
        raise DatasetError(f"{', '.join(map(str, log_paths))}: no batches of {include_modality} in these logs")
    numbers: dict[str, int] = {}
    for step in steps:
        for key in step.keys:
            numbers.setdefault(key, len(numbers))
    count = max(step.number for step in steps) + 1
    click.echo(f"Found {len(numbers)} unique sample keys, {count} steps")
    picture = _heatmap(steps, numbers, count, (heatmap_samples, heatmap_steps), heatmap_gain)
    _colored(picture, no_colors=no_colors).save(heatmap_path)
    click.echo(f"Wrote heatmap to {heatmap_path}")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise DatasetError(
                    f"{path}:{number}: no JSON ({error}); a log that worker_debug_path wrote expected"
                ) from None


def _steps(lines: list[dict[str, Any]], modalities: list[str], *, in_order: bool) -> Iterator[_Step]:
    """The batches of the logs: what loaders gave, or, where they say no keys, what data sets gave."""
    given = [line for line in lines if line.get("t") in _YIELDS and line.get("keys")]
    if given:
        for number, line in enumerate(given):
            yield _Step(number if in_order else int(line["global_idx"]), line["keys"])
        return
    made = [line for line in lines if line.get("t") == "yield_batch" and line.get("m") in modalities and line["keys"]]
    for number, line in enumerate(made):
        yield _Step(number if in_order else int(line["idx"]), line["keys"])


def _heatmap(
    steps: list[_Step], numbers: dict[str, int], count: int, shape: tuple[int, int], gain: float
) -> np.ndarray[Any, Any]:
    """How often which samples came at which steps, from 0 to 1: (samples, steps)."""
    height, width = min(shape[0], len(numbers)), min(shape[1], count)
    picture = np.zeros((height, width))
    for step in steps:
        for key in step.keys:
            picture[numbers[key] * height // len(numbers), step.number * width // count] += 1
    cell = (len(numbers) / height) * (count / width)
    return np.minimum(picture / cell * gain, 1.0)


def _colored(picture: np.ndarray[Any, Any], *, no_colors: bool) -> Image.Image:
    if no_colors:
        return Image.fromarray((picture * 255).astype(np.uint8))
    red, green, blue = picture, picture**2, np.sqrt(picture) * 0.6
    return Image.fromarray((np.stack([red, green, blue], axis=-1) * 255).astype(np.uint8))
