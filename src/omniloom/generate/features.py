"""Embeddings of a batch of prompts. A tile that comes several times, as an image with many questions, is seen once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from omniloom.errors import InputError
from omniloom.model.decoder import LanguageModel
from omniloom.model.llava import Images, Llava, ShownTiles


class Embedded(NamedTuple):
    """The tokens of a batch of prompts, one prompt after another.

    Attributes:
        embeddings: with image features at their placeholders.
        names: on the CPU; equal where tokens are: ids of words, numbers below 0 of image features.
    """

    embeddings: Float[Tensor, "tokens dim"]
    names: Int[Tensor, " tokens"]


def embed_prompts(
    model: Llava | LanguageModel, words: Sequence[int], *, images: Images, device: torch.device
) -> Embedded:
    """Token embeddings with image features at their placeholders.

    Args:
        model: on its device.
        words: token ids of all prompts, one after another.
        images: tiles in the order of their placeholders, as for `Llava`, on any device. Equal ones are found on the
            CPU only: elsewhere the search would cost a copy.
        device: the model's.

    Raises:
        InputError: placeholders and features do not fit together.
    """
    names = torch.tensor(words, dtype=torch.int64)
    input_ids = names.to(device)
    if isinstance(model, LanguageModel):
        return Embedded(model.embed(input_ids), names)
    shown = images.shown if isinstance(images, ShownTiles) else None
    images = images.tiles if isinstance(images, ShownTiles) else images
    groups = [images] if isinstance(images, Tensor) else list(images or ())
    if not any(len(group) for group in groups):
        return Embedded(model.embed(input_ids, visit_tower=False), names)
    groups = model.groups(groups)
    places = (names == model.config.image_token_id).nonzero()[:, 0]
    features, numbers = _of_groups(model, groups, device)
    if shown is not None:
        features = features.reshape(len(groups[0]), -1, features.shape[-1])[shown.to(device)].flatten(0, 1)
        numbers = numbers.reshape(len(groups[0]), -1)[shown.cpu()].flatten()
    if len(features) != len(places):
        raise InputError(
            f"{len(features)} image features for {len(places)} placeholders (id {model.config.image_token_id}). "
            "Put LlavaConfig.image_tokens(height, width) placeholders for a tile."
        )
    names[places] = -1 - numbers
    places = places.to(device)
    # The placeholder's id may lie outside of the vocabulary; its embedding is replaced anyway.
    embeddings = model.language_model.embed(input_ids.index_fill(0, places, 0))
    return Embedded(embeddings.index_put((places,), features.to(embeddings.dtype)), names)


def _of_groups(model: Llava, groups: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Features of all tiles, and for each feature the number of the first that equals it."""
    features, numbers = [], []
    before = 0
    for tiles in groups:
        firsts, same_as = different_tiles(tiles) if tiles.device.type == "cpu" else _all_of(tiles)
        computed = model.image_features([tiles[firsts].to(device)])
        each = len(computed) // len(firsts)
        chosen = torch.tensor(same_as)
        features.append(computed.reshape(len(firsts), each, -1)[chosen.to(device)].flatten(0, 1))
        numbers.append((before + chosen[:, None] * each + torch.arange(each)).flatten())
        before += len(computed)
    return torch.cat(features), torch.cat(numbers)


def _all_of(tiles: Tensor) -> tuple[Sequence[int], Sequence[int]]:
    everything = range(len(tiles))
    return list(everything), list(everything)


def different_tiles(tiles: Tensor) -> tuple[Sequence[int], Sequence[int]]:
    """Numbers of the tiles that no earlier one equals bit by bit, and for each tile which of these it equals."""
    numbers: dict[bytes, int] = {}
    firsts: list[int] = []
    same_as: list[int] = []
    for number, tile in enumerate(tiles):
        digest = blake2b(tile.contiguous().view(torch.uint8).numpy().data).digest()
        if digest not in numbers:
            numbers[digest] = len(firsts)
            firsts.append(number)
        same_as.append(numbers[digest])
    return firsts, same_as
