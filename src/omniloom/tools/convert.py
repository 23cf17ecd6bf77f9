"""``omniloom convert``: other data formats become prepared shards."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import click

from omniloom.data.convert.llava import LlavaSummary, convert_llava
from omniloom.data.convert.llava_conversion import LlavaOptions, Progress
from omniloom.data.convert.tar_archives import plan_unpacking, unpack_archives
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


@click.group(
    epilog="\b\nExample:\n  omniloom convert llava train.json --images images --out shards",
)
def command() -> None:
    """Turn other data formats into prepared shards."""


@command.command(
    "llava",
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert llava blip_laion_cc_sbu_558k.json --images images.zip --out shards --split-ratio 9,1,0"
    ),
)
@click.argument("json_path", metavar="JSON", type=click.Path(path_type=Path))
@click.option("--images", type=click.Path(path_type=Path), help="Folder or zip of images.  [default: JSON's folder]")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the data set to make.")
@click.option("--max-count", default=10_000, show_default=True, type=click.IntRange(1), help="Samples of a shard.")
@click.option(
    "--max-size",
    default="3G",
    show_default=True,
    callback=_size_bytes,
    metavar="BYTES",
    help="Close a shard that has this much payload.",
)
@click.option("--pattern", default="shard-%06d.tar", show_default=True, help="Name of the shards.")
@click.option("--image-part", help="Part name of a single image, whatever its kind (the Megatron guide's is jpg).")
@click.option(
    "--on-duplicate",
    default="rename",
    show_default=True,
    type=click.Choice(["rename", "skip"]),
    help="What becomes of an id that comes again: ID~2, or nothing.",
)
@click.option("--follow-links", is_flag=True, help="Read images through links that leave the image folder.")
@click.option("--split-ratio", default="1,0,0", show_default=True, help="Shares of train, val and test, by shards.")
@click.option("--sample-type", help="For dataset.yaml.  [default: VQASample if it loses nothing, else crude]")
@click.option("--crude", "sample_type", flag_value="CrudeWebdataset", help="Make a crude data set, for a cooker.")
@click.option("--field-map", callback=_json_object, metavar="JSON", help="For dataset.yaml, as JSON.")
@click.option("--no-sqlite", is_flag=True, help="Leave out the key database; training does not need it.")
@click.option("--overwrite", is_flag=True, help="Throw away what an earlier conversion left in --out.")
@click.option("--allow-missing", is_flag=True, help="Exit with 0 although entries were left out.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(0), help="Images read at a time.")
@click.option("--progress/--no-progress", default=True, help="Show how far it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def llava(
    ctx: click.Context,
    /,
    json_path: Path,
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
    **rest: Any,
) -> None:
    """LLaVA-style JSON or JSONL, and its images.

    An entry has an id, an image (a name, a list of names, null or nothing) and conversations. Its id becomes the key,
    its image the part jpg, png and so on by content, its conversation the part json. Several images become 0.jpg,
    1.jpg and so on; other fields the part extra.json.

    Entries that cannot be converted are counted by reason and listed in convert_report.jsonl in --out. The exit code
    is 1 if there are any, unless --allow-missing is given. Run it again after a stop to go on, or when missing images
    have come to take them in.
    """
    options = LlavaOptions(
        max_count=max_count,
        max_size_bytes=max_size,
        pattern=pattern,
        image_part=image_part,
        on_duplicate=on_duplicate,
        follow_links=follow_links,
    )
    begin = time.monotonic()
    with progress_bar("Converting", shown=progress) as display:

        def show(state: Progress) -> None:
            rate = state.counts.samples / max(time.monotonic() - begin, 1e-9)
            display.show(state.fraction, f"{state.counts.samples:,} samples, {rate:,.0f} samples/s")

        summary = convert_llava(json_path, options=options, sqlite=not no_sqlite, on_progress=show, **rest)
    click.echo(json.dumps(summary.to_json()) if as_json else _told(summary))
    if summary.left_out and not allow_missing:
        ctx.exit(EXIT_LEFT_OUT)


@command.command(
    "tar",
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert tar train-0001.tar.gz --out shards/train-0001.tar\n"
        "  omniloom convert tar downloads --out shards"
    ),
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Plain archive, or folder of them.")
@click.option("--overwrite", is_flag=True, help="Write archives again that are there already.")
@click.option("--progress/--no-progress", default=True, help="Show how far it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def tar(ctx: click.Context, /, source: Path, *, out: Path, overwrite: bool, progress: bool, as_json: bool) -> None:
    """Compressed archives (gzip, Zstandard, xz, bzip2), one or a folder of them, become plain ones.

    A sample of a compressed archive cannot be read without all before it; of a plain one it can. The content stays as
    it is, byte for byte. A damaged archive is reported, the others are converted, and the exit code is 1.
    """
    planned = plan_unpacking(source, out)
    with progress_bar("Unpacking", shown=progress) as display:
        result = unpack_archives(
            planned,
            overwrite=overwrite,
            on_progress=lambda fraction, done: display.show(fraction, f"{done:,}/{len(planned):,} archives"),
        )
    if as_json:
        click.echo(json.dumps(result.to_json()))
    else:
        kept = f" {len(result.kept):,} were there already." if result.kept else ""
        click.echo(f"Wrote {len(result.written):,} plain archives, {result.size_bytes:,} bytes.{kept}")
    for _, error in result.faults:
        click.echo(f"ShardError: {error}", err=True)
    if result.faults:
        ctx.exit(EXIT_LEFT_OUT)


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
