"""``omniloom convert packs`` and ``grids``: what the encoder would do in every epoch, done once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click

from omniloom.tools.convert_options import convert_shown, shard_options
from omniloom.tools.encoder_options import encoder_of, encoder_options
from omniloom.tools.place_type import PLACE
from omniloom.vlm.offline import DEFAULT_WINDOW, OfflineEntries

# Options of the encoder by name, to tell them from those of the conversion.
_ENCODER_NAMES = frozenset(inspect.signature(encoder_of).parameters) - {"pack_tokens"}


def offline_commands() -> Iterator[click.Command]:
    """The commands."""
    yield packs
    yield grids


def _split(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the encoder, and of the conversion."""
    encoder = {name: value for name, value in settings.items() if name in _ENCODER_NAMES}
    return encoder, {name: value for name, value in settings.items() if name not in _ENCODER_NAMES}


@click.command(
    "packs",
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert packs shards --pack-tokens 8192 --max-tokens 8192 --tokenizer models/qwen2.5-7b \\\n"
        "      --template qwen2.5 --layout tiles --tile-pixels 448 --pixel-shuffle --out packed"
    ),
)
@click.argument("dataset", type=PLACE)
@click.option("--pack-tokens", required=True, type=click.IntRange(1), help="Length of a pack in tokens.")
@click.option("--part", "part", default="train", show_default=True, help="Part of the data set to pack.")
@click.option("--window", default=DEFAULT_WINDOW, show_default=True, type=click.IntRange(1), help="Samples at a time.")
@encoder_options
@shard_options
@click.pass_context
def packs(ctx: click.Context, /, dataset: str, *, pack_tokens: int, part: str, window: int, **settings: Any) -> None:
    """Packs of samples, chosen once: each sample of the new data set is a pack of conversations with their images.

    Packs are best fit among --window samples. They are read without packing_buffer_size, by an encoder of the same
    tokenizer, template and tiles.
    """
    encoder, rest = _split(settings)
    entries = OfflineEntries(
        dataset,
        encoder=encoder_of(**encoder, pack_tokens=pack_tokens),
        split_part=part,
        pack_tokens=pack_tokens,
        window=window,
    )
    convert_shown(ctx, entries, **rest)


@click.command(
    "grids",
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert grids shards --layout tiles --area-weighted --tile-pixels 448 --out shards-with-grids"
    ),
)
@click.argument("dataset", type=PLACE)
@click.option("--part", "part", default="train", show_default=True, help="Part of the data set to write again.")
@encoder_options
@shard_options
@click.pass_context
def grids(ctx: click.Context, /, dataset: str, *, part: str, **settings: Any) -> None:
    """Conversations with the grid of tiles of each image, chosen once.

    The encoder takes the grids as they are, as it does those of Megatron's OfflineTargetAspectRatioSample.
    """
    encoder, rest = _split(settings)
    convert_shown(ctx, OfflineEntries(dataset, encoder=encoder_of(**encoder), split_part=part), **rest)
