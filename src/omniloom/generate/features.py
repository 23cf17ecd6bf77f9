"""Embeddings of a batch of prompts. A tile that comes several times, as an image with many questions, is seen once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

from omniloom.errors import InputError
from omniloom.model.decoder import Decoder
from omniloom.model.llava import Images, Llava
from omniloom.model.vision import CHANNELS


def embed_prompts(
    model: Llava | Decoder, input_ids: Int[Tensor, " tokens"], *, images: Images
) -> Float[Tensor, "tokens dim"]:
    """Token embeddings with image features at their placeholders.

    Args:
        model: on its device.
        input_ids: of all prompts, one after another, on the model's device.
        images: tiles in the order of their placeholders, as for `Llava`, on any device. Equal ones are found on the
            CPU only: elsewhere the search would cost a copy.

    Raises:
        InputError: placeholders and features do not fit together.
    """
    if isinstance(model, Decoder):
        return model.embed(input_ids)
    groups = [images] if isinstance(images, Tensor) else list(images or ())
    if not any(len(group) for group in groups):
        return model.embed(input_ids, visit_tower=False)
    wrong = [tuple(group.shape) for group in groups if group.dim() != 4 or group.shape[1] != CHANNELS]
    if wrong:
        raise InputError(f"images of shape {wrong[0]}; expected [tiles, {CHANNELS}, height, width].")
    places = (input_ids == model.config.image_token_id).nonzero()[:, 0]
    device = input_ids.device
    features = torch.cat([_features(model, group, device) for group in groups if len(group)])
    if len(features) != len(places):
        raise InputError(
            f"{len(features)} image features for {len(places)} placeholders (id {model.config.image_token_id}). "
            "Put LlavaConfig.image_tokens(height, width) placeholders for a tile."
        )
    # The placeholder's id may lie outside of the vocabulary; its embedding is replaced anyway.
    embeddings = model.language_model.embed(input_ids.index_fill(0, places, 0))
    return embeddings.index_put((places,), features.to(embeddings.dtype))


def _features(model: Llava, tiles: Tensor, device: torch.device) -> Tensor:
    """Features of tiles of one size, each different one computed once."""
    if tiles.device.type != "cpu":
        return model.image_features([tiles.to(device)])
    firsts, same_as = different_tiles(tiles)
    features = model.image_features([tiles[firsts].to(device)])
    by_tile = features.reshape(len(firsts), -1, features.shape[-1])
    return by_tile[torch.tensor(same_as, device=device)].flatten(0, 1)


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
