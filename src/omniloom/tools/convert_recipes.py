"""``omniloom convert`` for well-known data sets: a command for each recipe of the table, for Parquet and for videos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from omniloom.data.convert.parquet_entries import ParquetEntries
from omniloom.data.convert.recipes import RECIPES, Recipe, RecipeEntries
from omniloom.data.convert.video_entries import VideoEntries
from omniloom.tools.convert_options import convert_shown, input_files, shard_options
from omniloom.tools.place_type import PLACE

_PATH = click.Path(path_type=Path)


def recipe_commands() -> Iterator[click.Command]:
    """The commands, in the order of the table."""
    for recipe in RECIPES.values():
        yield _command(recipe)
    yield parquet
    yield video


def _command(recipe: Recipe) -> click.Command:
    files = [f"FILE_{number}" for number in range(1, len(recipe.files) + 1)] if len(recipe.files) > 1 else ["FILE"]

    def convert(ctx: click.Context, /, **settings: Any) -> None:
        paths = input_files([settings.pop(name.lower()) for name in files], settings)
        convert_shown(ctx, RecipeEntries(recipe, paths), **settings)

    function = shard_options(click.pass_context(convert))
    for name in reversed(files):
        function = click.argument(name.lower(), metavar=name, type=PLACE)(function)
    return click.command(
        recipe.name,
        help=f"{recipe.summary}\n\nSee `omniloom convert llava --help` for what is counted, and for going on.",
        short_help=recipe.summary,
        epilog=f"\b\nExample:\n  omniloom convert {recipe.name} {' '.join(recipe.files)} --images images --out shards",
    )(function)


@click.command(
    "parquet",
    epilog="\b\nExample:\n  omniloom convert parquet the_cauldron/ai2d --out shards",
)
@click.argument("path", type=_PATH)
@shard_options
@click.pass_context
def parquet(ctx: click.Context, /, path: Path, **settings: Any) -> None:
    """Hugging Face data sets in Parquet, such as The Cauldron or LLaVA-OneVision: a file, or a folder of them.

    The names of the columns say what they are: images or image; conversations, messages, texts, question and answer,
    or caption. Columns that JSON can hold are kept in extra.json.
    """
    convert_shown(ctx, ParquetEntries(path), **settings)


@click.command(
    "video",
    epilog="\b\nExample:\n  omniloom convert video llava_video_178k.json --images videos --out shards",
)
@click.argument("json_path", metavar="JSON", type=PLACE)
@shard_options
@click.pass_context
def video(ctx: click.Context, /, json_path: str, **settings: Any) -> None:
    """Questions about videos in JSON or JSONL: video, and conversations or a question and its answer.

    --images is the folder (or zip) of the videos.
    """
    (path,) = input_files([json_path], settings)
    convert_shown(ctx, VideoEntries(path), **settings)
