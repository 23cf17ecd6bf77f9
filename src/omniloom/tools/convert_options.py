"""What all conversions to shards have in common on the command line: options, the progress bar, the summary."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from omniloom.data.convert.entry_source import EntrySource, JsonEntries
from omniloom.data.convert.llava import LlavaSummary, convert_llava
from omniloom.data.convert.llava_conversion import LlavaOptions, Progress
from omniloom.data.convert.shares import SharedConversion
from omniloom.data.convert.staged_output import staged_output
from omniloom.data.index.shard_share import parse_shard_range
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.urls import is_url, join_url, name_of, parent_url, redacted
from omniloom.tools.place_type import PLACE
from omniloom.tools.prepare import opened_executor
from omniloom.tools.progress_bar import progress_bar

EXIT_LEFT_OUT = 1
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _size_bytes(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    """The number of bytes that a text such as ``500M`` or ``2GiB`` stands for."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r}: expected a number of bytes such as 3000000000, 500M or 2GiB.")
    number, power, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])


def _json_object(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> dict[str, str] | None:
    """The mapping that a JSON text stands for."""
    if text is None:
        return None
    try:
        mapping = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no JSON: {error}.") from error
    if not isinstance(mapping, dict) or not all(isinstance(value, str) for value in mapping.values()):
        raise click.BadParameter(f'{text!r}: expected an object of texts such as \'{{"image": "jpg"}}\'.')
    return mapping


_OPTIONS = (
    click.option(
        "--images", type=PLACE, help="Folder or zip of images; a path or the URL of a folder.  [default: JSON's folder]"
    ),
    click.option("--out", required=True, type=PLACE, help="Folder of the data set to make; a path or URL."),
    click.option("--max-count", default=10_000, show_default=True, type=click.IntRange(1), help="Samples of a shard."),
    click.option(
        "--max-size",
        default="3G",
        show_default=True,
        callback=_size_bytes,
        metavar="BYTES",
        help="Close a shard that has this much payload.",
    ),
    click.option("--pattern", default="shard-%06d.tar", show_default=True, help="Name of the shards."),
    click.option("--image-part", help="Part name of a single image, whatever its kind (the Megatron guide's is jpg)."),
    click.option(
        "--on-duplicate",
        default="rename",
        show_default=True,
        type=click.Choice(["rename", "skip"]),
        help="What becomes of an id that comes again: ID~2, or nothing.",
    ),
    click.option("--follow-links", is_flag=True, help="Read images through links that leave the image folder."),
    click.option("--split-ratio", default="1,0,0", show_default=True, help="Shares of train, val and test, by shards."),
    click.option("--sample-type", help="For dataset.yaml.  [default: VQASample if it loses nothing, else crude]"),
    click.option("--crude", "sample_type", flag_value="CrudeWebdataset", help="Make a crude data set, for a cooker."),
    click.option("--field-map", callback=_json_object, metavar="JSON", help="For dataset.yaml, as JSON."),
    click.option("--no-sqlite", is_flag=True, help="Leave out the key database; training does not need it."),
    click.option("--overwrite", is_flag=True, help="Throw away what an earlier conversion left in --out."),
    click.option("--allow-missing", is_flag=True, help="Exit with 0 although entries were left out."),
    click.option("--threads", default=4, show_default=True, type=click.IntRange(0), help="Images read at a time."),
    click.option("--executor", metavar="URL", help="Convert in shares there: dask://host:port, ray://, processes://8."),
    click.option(
        "--shares", default=16, show_default=True, type=click.IntRange(1), help="How many shares, with --executor."
    ),
    click.option("--shard-range", metavar="I/N", help="Convert share I of N alone, from 0 on, and leave it for merge."),
    click.option("--progress/--no-progress", default=True, help="Show how far it is."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
)


def shard_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a conversion to shards."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def input_files(places: Sequence[str], settings: dict[str, Any]) -> list[Path]:
    """The files that a conversion reads: those of a store are brought here, and their images stay beside them.

    Args:
        places: paths or URLs.
        settings: options of the command; ``images`` is set to the folder of a file in a store where none is given.
    """
    if is_url(places[0]) and settings.get("images") is None:
        settings["images"] = parent_url(places[0])
    return [kept_copy(place) for place in places]


def convert_shown(
    ctx: click.Context,
    source: Path | EntrySource,
    *,
    max_count: int,
    max_size: int,
    pattern: str,
    image_part: str | None,
    on_duplicate: Any,
    follow_links: bool,
    no_sqlite: bool,
    allow_missing: bool,
    progress: bool,
    as_json: bool,
    out: str,
    executor: str | None,
    shares: int,
    shard_range: str | None,
    **rest: Any,
) -> None:
    """Convert with a progress bar and print the summary. Exits with 1 where entries were left out.

    Args:
        ctx: the command's.
        source: what is converted.
        max_count, max_size, pattern, image_part, on_duplicate, follow_links: see `LlavaOptions`.
        no_sqlite: leave out the key database.
        allow_missing: exit with 0 all the same.
        progress: show the bar.
        as_json: print the summary as JSON.
        out: folder of the data set, a path or URL.
        executor: where shares of it are made; ``None``: all of it is made here.
        shares: how many shares there are then.
        shard_range: the one share that is made; ``None``: all.
        rest: as for `convert_llava`.
    """
    options = LlavaOptions(
        max_count=max_count,
        max_size_bytes=max_size,
        pattern=pattern,
        image_part=image_part,
        on_duplicate=on_duplicate,
        follow_links=follow_links,
    )
    made: dict[str, Any] = {"options": options, "sqlite": not no_sqlite}
    if executor is not None or shard_range is not None:
        summary = _in_shares(source, out, made | rest, executor=executor, shares=shares, shard_range=shard_range)
    else:
        summary = _at_once(source, out, made | rest, progress=progress)
    click.echo(json.dumps(summary.to_json()) if as_json else _told(summary))
    if shard_range is not None and not as_json:
        click.echo(f"Once all shares are done, run `omniloom merge {redacted(out)}`.")
    if summary.left_out and not allow_missing:
        ctx.exit(EXIT_LEFT_OUT)


def _at_once(source: Path | EntrySource, out: str, settings: dict[str, Any], *, progress: bool) -> LlavaSummary:
    begin = time.monotonic()
    with progress_bar("Converting", shown=progress) as display:

        def show(state: Progress) -> None:
            rate = state.counts.samples / max(time.monotonic() - begin, 1e-9)
            display.show(state.fraction, f"{state.counts.samples:,} samples, {rate:,.0f} samples/s")

        with staged_output(out, overwrite=bool(settings.get("overwrite"))) as folder:
            summary = convert_llava(source, out=folder, on_progress=show, **settings)
    return _named(summary, out) if is_url(out) else summary


def _in_shares(
    source: Path | EntrySource,
    out: str,
    settings: dict[str, Any],
    *,
    executor: str | None,
    shares: int,
    shard_range: str | None,
) -> LlavaSummary:
    entries = JsonEntries(source) if isinstance(source, Path) else source
    place = out if is_url(out) else str(Path(out).absolute())
    conversion = SharedConversion(entries, place, settings)
    if shard_range is None:
        with opened_executor(executor) as workers:
            return conversion.run(workers, shares=shares)
    return conversion.run_one(parse_shard_range(shard_range))


def _named(summary: LlavaSummary, out: str) -> LlavaSummary:
    return replace(summary, out=redacted(out), report=redacted(join_url(out, name_of(str(summary.report)))))


def _told(summary: LlavaSummary) -> str:
    counts = summary.counts
    kept = f", {summary.kept_shards:,} of them from an earlier run" if summary.kept_shards else ""
    lines = [
        f"{counts.samples:,} samples with {counts.images:,} images in {summary.shards:,} shards{kept}.",
        f"{summary.out} is ready as {summary.dataset_type}.",
        *(f"  {shape}: {count:,}" for shape, count in sorted(counts.shapes.items())),
    ]
    if counts.left_out:
        lines += [f"Left out {summary.left_out:,} of {counts.entries:,} entries:"]
        lines += [f"  {reason}: {count:,}" for reason, count in counts.left_out.most_common()]
    if counts.kept:
        lines += ["Kept, but look at:"]
        lines += [f"  {reason}: {count:,}" for reason, count in counts.kept.most_common()]
    if counts.left_out or counts.kept:
        lines += [f"Every case is listed in {summary.report}."]
    return "\n".join(lines)
