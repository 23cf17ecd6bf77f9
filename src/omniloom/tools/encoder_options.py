"""Options that say what a model sees of a sample: tokenizer, chat template, tiles, lengths; and the encoder of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from omniloom.errors import ConfigError
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.image_processor import ImageProcessor, tile_tokens
from omniloom.vlm.jinja_template import OWN_TEMPLATE, JinjaTemplate
from omniloom.vlm.layouts import LAYOUTS, DynamicTiles, Layout
from omniloom.vlm.preprocessor_config import image_processor_of
from omniloom.vlm.prompts import PromptPools
from omniloom.vlm.statistics import PIXEL_STATISTICS
from omniloom.vlm.talks import MEGATRON_RULES, TalkRules
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder
from omniloom.vlm.template import ChatTemplate
from omniloom.vlm.template_table import IMAGE_TAGS, chat_template
from omniloom.vlm.tokenizer import HuggingFaceTokenizer, open_tokenizer

_BYTES = "bytes"
_TAG_NAMES = [name or "none" for name in IMAGE_TAGS]

_OPTIONS = (
    click.option(
        "--tokenizer",
        type=click.Path(path_type=Path),
        help=f"Model folder, or tokenizer file, or `{_BYTES}`: each byte a token.  [default: {_BYTES}]",
    ),
    click.option("--special-token", "special_tokens", multiple=True, help="A special token more, such as <box>."),
    click.option(
        "--template",
        default="chatml",
        show_default=True,
        help=f"Chat template by name, or `{OWN_TEMPLATE}`: the one that came with the tokenizer.",
    ),
    click.option("--image-token", help=f"What `--template {OWN_TEMPLATE}` writes for an image, such as <|image_pad|>."),
    click.option("--system", help="What the system says.  [default: as the template]"),
    click.option("--prompts", type=click.Path(path_type=Path), help="Pools of prompts in Megatron's JSON form."),
    click.option(
        "--processor",
        type=click.Path(path_type=Path),
        help="Model folder whose preprocessor_config.json says what images become, in place of the next options.",
    ),
    click.option("--layout", default="squash", show_default=True, type=click.Choice(list(LAYOUTS)), help="Tiles."),
    click.option("--max-tiles", default=12, show_default=True, type=click.IntRange(1), help="Of the layout `tiles`."),
    click.option("--area-weighted", is_flag=True, help="Of the layout `tiles`: choose grids by shape and area."),
    click.option(
        "--tower", default="clip", show_default=True, type=click.Choice(list(PIXEL_STATISTICS)), help="Pixels."
    ),
    click.option("--tile-pixels", default=336, show_default=True, type=click.IntRange(1), help="Side of a tile."),
    click.option("--patch-pixels", default=14, show_default=True, type=click.IntRange(1), help="Side of a patch."),
    click.option("--pixel-shuffle", is_flag=True, help="Four neighbouring patches are one token."),
    click.option(
        "--image-tags", default="none", show_default=True, type=click.Choice(_TAG_NAMES), help="Around images."
    ),
    click.option("--tile-tags", is_flag=True, help="The name of each tile before its features."),
    click.option("--video-frames", default=8, show_default=True, type=click.IntRange(1), help="Frames of a video."),
    click.option("--max-tokens", default=4096, show_default=True, type=click.IntRange(1), help="Length of a sample."),
    click.option("--turns-apart", is_flag=True, help="Each question of a conversation as a document of its own."),
    click.option("--megatron-rules", is_flag=True, help="System text and stray placeholders as in Megatron's example."),
)


def encoder_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of an encoder; it takes them as ``**encoder`` and hands them to `encoder_of`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def encoder_of(
    *,
    tokenizer: Path | None,
    special_tokens: Sequence[str] = (),
    template: str,
    image_token: str | None,
    system: str | None,
    prompts: Path | None,
    processor: Path | None,
    layout: str,
    max_tiles: int,
    area_weighted: bool,
    tower: str,
    tile_pixels: int,
    patch_pixels: int,
    pixel_shuffle: bool,
    image_tags: str,
    tile_tags: bool,
    video_frames: int,
    max_tokens: int,
    megatron_rules: bool,
    turns_apart: bool = False,
    pack_tokens: int | None = None,
) -> LlavaTaskEncoder:
    """The encoder that the options describe.

    Args:
        tokenizer, special_tokens, template, image_token, system, prompts: what conversations look like.
        processor: model folder that says what images look like; without it the next ones do.
        layout, max_tiles, area_weighted, tower, tile_pixels, patch_pixels, pixel_shuffle: what images look like.
        image_tags, tile_tags, video_frames, max_tokens, turns_apart, megatron_rules: see `LlavaSettings`, `TalkRules`.
        pack_tokens: length of packs.

    Raises:
        ConfigError: they do not go together.
    """
    opened, form = _tokenizer_and_template(tokenizer, template, image_tags, image_token, special_tokens)
    if processor is not None:
        images = image_processor_of(processor, patch_pixels=patch_pixels, pixel_shuffle=pixel_shuffle)
    else:
        tiles: Layout = LAYOUTS[layout]()
        if layout == "tiles":
            tiles = DynamicTiles(max_tiles=max_tiles, choice="area-weighted" if area_weighted else "closest")
        size = tile_tokens(tile_pixels=tile_pixels, patch_pixels=patch_pixels, pixel_shuffle=pixel_shuffle)
        images = ImageProcessor(tile_pixels=tile_pixels, tile_tokens=size, tower=tower, layout=tiles)
    base = MEGATRON_RULES if megatron_rules else TalkRules()
    rules = replace(
        base,
        prompts=base.prompts if prompts is None else PromptPools.from_file(prompts),
        system=base.system if system is None else system,
    )
    return LlavaTaskEncoder(
        tokenizer=opened,
        template=form,
        images=images,
        settings=LlavaSettings(
            max_tokens=max_tokens,
            image_tags="" if image_tags == "none" else image_tags,
            tile_tags=tile_tags,
            video_frames=video_frames,
            pack_tokens=pack_tokens,
            turns="apart" if turns_apart else "together",
            rules=rules,
        ),
    )


def _tokenizer_and_template(
    path: Path | None, name: str, image_tags: str, image_token: str | None, special_tokens: Sequence[str]
) -> tuple[Any, ChatTemplate | JinjaTemplate]:
    if path is not None and str(path) != _BYTES:
        opened = open_tokenizer(path)
        if special_tokens:
            if not isinstance(opened, HuggingFaceTokenizer):
                raise ConfigError(f"--special-token needs a tokenizer.json; {path} is no such tokenizer")
            opened = opened.with_special_tokens(special_tokens)
        own = name == OWN_TEMPLATE
        return opened, JinjaTemplate.of(opened, image_token=image_token) if own else chat_template(name)
    if name == OWN_TEMPLATE:
        raise ConfigError(f"--template {OWN_TEMPLATE} needs a --tokenizer that came with one")
    template = chat_template(name)
    tags = ["<img>", "</img>"] if image_tags == "internvl" else []
    return ByteTokenizer([*sorted(template.named_tokens - {"bos", "eos"}), *tags, *special_tokens]), template
