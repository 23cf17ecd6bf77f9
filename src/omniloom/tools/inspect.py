"""``omniloom inspect``: samples as the model sees them, in the terminal or as an HTML page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from omniloom.data.index.place import absolute_root
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_val_dataset
from omniloom.storage.files import replace_file
from omniloom.storage.urls import name_of, redacted
from omniloom.tools.encoder_options import encoder_of, encoder_options
from omniloom.tools.inspect_figures import LeafFigures, figures_of, figures_table
from omniloom.tools.inspect_page import inspect_page
from omniloom.tools.inspect_samples import SeenSample, make_stage, packs_of, samples_of
from omniloom.tools.inspect_terminal import print_legend, print_packs, print_seen
from omniloom.tools.place_type import PLACE
from omniloom.tools.preview_samples import chosen_rows

EXIT_FAULTS = 1


@click.command(
    epilog=(
        "\b\nExample:\n"
        "  omniloom inspect shards --tokenizer models/mistral-7b --template mistral --count 3\n"
        "  omniloom inspect mix.yaml --figures --spread --count 1000 --pack-tokens 8192\n"
        "  omniloom inspect shards --layout tiles --tile-pixels 448 --pixel-shuffle --pack-tokens 8192 --html seen.html"
    )
)
@click.argument("dataset", type=PLACE)
@click.option("--split-part", default="train", show_default=True, help="Part of the data set to show.")
@click.option("--count", default=4, show_default=True, type=click.IntRange(1), help="How many samples.")
@click.option("--start", default=0, show_default=True, type=click.IntRange(0), help="Number of the first sample.")
@click.option("--spread", is_flag=True, help="Take the samples evenly from the whole part.")
@click.option("--pack-tokens", type=click.IntRange(1), help="Also show the packs of this length that they make.")
@click.option("--figures", is_flag=True, help="Only count: what samples cost, data set by data set.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page to this file instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a sample instead.")
@encoder_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    dataset: str,
    *,
    split_part: str,
    count: int,
    start: int,
    spread: bool,
    pack_tokens: int | None,
    figures: bool,
    html_path: Path | None,
    as_json: bool,
    **encoder_settings: Any,
) -> None:
    """Show samples as the model sees them: tokens, tiles, packs. What is learned is coloured.

    Without --tokenizer, a token is a byte: enough to see masks, placeholders and tiles. Samples that would be left out
    are shown with the reason, and the exit code is 1.
    """
    encoder = encoder_of(**encoder_settings, pack_tokens=pack_tokens)
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    opened = get_val_dataset(dataset, split_part=split_part, task_encoder=encoder, worker_config=config)
    sizes = [len(leaf.rows) for leaf in make_stage(opened).leaves]  # type: ignore[attr-defined]
    numbers = chosen_rows(sum(sizes), count=count, start=start, spread=spread)
    if not numbers:
        raise click.UsageError(f"--start {start} is beyond the {sum(sizes):,} samples of {split_part}.")
    places = [_place(number, sizes) for number in numbers]
    if figures:
        _print_figures(figures_of(opened, places), capacity=pack_tokens or encoder.settings.max_tokens, as_json=as_json)
        return
    samples = list(samples_of(opened, places, encoder))
    packs = packs_of(samples, encoder) if pack_tokens is not None else []
    capacity = pack_tokens or encoder.settings.max_tokens
    if as_json:
        for sample in samples:
            click.echo(json.dumps(_as_json(sample)))
    elif html_path is not None:
        facts = [("data set", redacted(dataset)), ("template", encoder.template.name), *_summary(samples)]
        text = inspect_page(
            samples, packs, capacity=capacity, title=f"{name_of(absolute_root(dataset))}: as seen", facts=facts
        )
        replace_file(html_path, text.encode("utf-8", "backslashreplace"))
        click.echo(f"Wrote {html_path} with {len(samples):,} samples.")
    else:
        console = Console()
        print_legend(console)
        print_seen(samples, console=console)
        print_packs(packs, capacity=capacity, console=console)
        for name, value in _summary(samples):
            console.print(f"{name}: {value}")
    if any(sample.fault for sample in samples):
        ctx.exit(EXIT_FAULTS)


def _print_figures(figures: list[LeafFigures], *, capacity: int, as_json: bool) -> None:
    if as_json:
        for each in figures:
            click.echo(json.dumps(each.to_json(capacity=capacity)))
    else:
        Console().print(figures_table(figures, capacity=capacity))


def _place(number: int, sizes: list[int]) -> tuple[int, int]:
    """(leaf, row) of a number among the rows of all leaves."""
    for leaf, size in enumerate(sizes):
        if number < size:
            return leaf, number
        number -= size
    raise IndexError(number)


def _summary(samples: list[SeenSample]) -> list[tuple[str, str]]:
    used = [sample for sample in samples if not sample.fault]
    tokens, learned = sum(s.tokens for s in used), sum(s.learned for s in used)
    lines = [("samples", f"{len(used):,}"), ("tokens", f"{tokens:,}, {learned:,} of them learned")]
    faults = Counter(sample.fault.partition(":")[0] for sample in samples if sample.fault)
    return lines + [("left out", f"{reason}: {count:,}") for reason, count in sorted(faults.items())]


def _as_json(sample: SeenSample) -> dict[str, Any]:
    if sample.fault:
        return {"key": sample.key, "data_set": sample.leaf, "row": sample.row, "fault": sample.fault}
    return {
        "key": sample.key,
        "data_set": sample.leaf,
        "row": sample.row,
        "tokens": sample.tokens,
        "learned": sample.learned,
        "images": [
            {"tiles": len(tiles), "grid": words} for tiles, words in zip(sample.tiles, sample.grids, strict=True)
        ],
        "spans": [[span.kind, span.text, span.tokens] for span in sample.spans],
    }
