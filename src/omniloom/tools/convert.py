"""``omniloom convert``: other data formats become prepared shards."""

from __future__ import annotations

import json
from typing import Any

import click

from omniloom.data.convert.tar_archives import plan_unpacking, unpack_archives
from omniloom.tools.convert_offline import offline_commands
from omniloom.tools.convert_options import EXIT_LEFT_OUT, convert_shown, input_files, shard_options
from omniloom.tools.convert_recipes import recipe_commands
from omniloom.tools.place_type import PLACE
from omniloom.tools.prepare import opened_executor
from omniloom.tools.progress_bar import progress_bar


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
@click.argument("json_path", metavar="JSON", type=PLACE)
@shard_options
@click.pass_context
def llava(
    ctx: click.Context,
    /,
    json_path: str,
    **settings: Any,
) -> None:
    """LLaVA-style JSON or JSONL, and its images.

    An entry has an id, an image (a name, a list of names, null or nothing) and conversations. Its id becomes the key,
    its image the part jpg, png and so on by content, its conversation the part json. Several images become 0.jpg,
    1.jpg and so on; other fields the part extra.json.

    Entries that cannot be converted are counted by reason and listed in convert_report.jsonl in --out. The exit code
    is 1 if there are any, unless --allow-missing is given. Run it again after a stop to go on, or when missing images
    have come to take them in.
    """
    (path,) = input_files([json_path], settings)
    convert_shown(ctx, path, **settings)


@command.command(
    "tar",
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert tar train-0001.tar.gz --out shards/train-0001.tar\n"
        "  omniloom convert tar downloads --out shards"
    ),
)
@click.argument("source", type=PLACE)
@click.option("--out", required=True, type=PLACE, help="Plain archive, or folder of them; a path or URL.")
@click.option("--overwrite", is_flag=True, help="Write archives again that are there already.")
@click.option("--num-workers", default=1, show_default=True, type=click.IntRange(1), help="Archives at a time.")
@click.option("--executor", metavar="URL", help="Unpack elsewhere: dask://host:port, ray://, mpi://, processes://8.")
@click.option("--progress/--no-progress", default=True, help="Show how far it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def tar(
    ctx: click.Context,
    /,
    source: str,
    *,
    out: str,
    overwrite: bool,
    num_workers: int,
    executor: str | None,
    progress: bool,
    as_json: bool,
) -> None:
    """Compressed archives (gzip, Zstandard, xz, bzip2), one or a folder of them, become plain ones.

    A sample of a compressed archive cannot be read without all before it; of a plain one it can. The content stays as
    it is, byte for byte. A damaged archive is reported, the others are converted, and the exit code is 1.
    """
    planned = plan_unpacking(source, out)
    with opened_executor(executor) as workers, progress_bar("Unpacking", shown=progress) as display:
        result = unpack_archives(
            planned,
            overwrite=overwrite,
            executor=workers,
            num_workers=num_workers,
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


for _command in (*recipe_commands(), *offline_commands()):
    command.add_command(_command)
