"""LLaVA: a vision tower, a projector and a language model.

`input_ids` hold one placeholder for every image feature, so lengths are known before any pixel is seen. Features
take the places of the placeholders in order: image by image, tile by tile, patch by patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from omniloom.errors import InputError
from omniloom.model.attention import Attend, AttendPacked
from omniloom.model.config import LlavaConfig
from omniloom.model.decoder import LanguageModel
from omniloom.model.documents import Documents
from omniloom.model.language import language_module
from omniloom.model.loss import DEFAULT_CHUNK_TOKENS, LossSum, TokenGroups, sum_of_losses
from omniloom.model.projector import Projector
from omniloom.model.vision import CHANNELS, VisionTower


@dataclass(frozen=True)
class ShownTiles:
    """Tiles of which some have several places: each is seen by the tower once, however many documents show it.

    Attributes:
        tiles: float (tiles, 3, height, width), each another; or the features of tiles, see `Llava.seen`.
        shown: int64 (places,), which of them stands at each place of a tile, in order.
    """

    tiles: Tensor
    shown: Tensor


Images = Tensor | ShownTiles | Sequence[Tensor] | None


class Llava(nn.Module):
    """Images and text to what follows each token."""

    def __init__(self, config: LlavaConfig, *, language_model: LanguageModel | None = None) -> None:
        """Make the parts; `language_model` takes the place of the one that `config` describes."""
        super().__init__()
        self.config = config
        self.vision_tower = VisionTower(config.vision)
        self.projector = Projector(config.projector)
        self.language_model: LanguageModel = (
            language_module(config.language) if language_model is None else language_model
        )

    def forward(
        self,
        input_ids: Int[Tensor, " tokens"],
        *,
        documents: Documents,
        images: Images = None,
        image_positions: Int[Tensor, " features"] | None = None,
    ) -> Float[Tensor, "tokens vocab"]:
        """Scores of all words after each token; for training use `loss`, which never makes them all.

        Args:
            input_ids: tokens of all documents, one after another.
            documents: where the documents lie.
            images: tiles ``[tiles, 3, height, width]`` in the order of their placeholders, or what `seen` gave of them
                ``[tiles, tokens, features]``, or a sequence of such tensors where sizes differ, or `ShownTiles` where
                some come several times, or ``None``.
            image_positions: where `input_ids` has placeholders, in order, if the caller knows: on an accelerator
                this spares a wait for the device.

        Raises:
            InputError: the counts of tokens, placeholders and image features do not fit together.
        """
        stream = self.decode(input_ids, documents=documents, images=images, image_positions=image_positions)
        return self.language_model.logits(stream)

    def loss(
        self,
        input_ids: Int[Tensor, " tokens"],
        *,
        labels: Int[Tensor, " tokens"],
        documents: Documents,
        images: Images = None,
        image_positions: Int[Tensor, " features"] | None = None,
        token_weights: Float[Tensor, " tokens"] | None = None,
        token_groups: TokenGroups | None = None,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
    ) -> LossSum:
        """The summed cross entropy of the labelled tokens.

        `labels` hold the word after each token, -100 where nothing is learned; the rest is as in `forward` and in
        `omniloom.model.loss.sum_of_losses`.
        """
        stream = self.decode(input_ids, documents=documents, images=images, image_positions=image_positions)
        weight = self.language_model.head_weight
        factors, groups = token_weights, token_groups
        return sum_of_losses(
            stream, weight, labels, token_weights=factors, token_groups=groups, chunk_tokens=chunk_tokens
        )

    def decode(
        self,
        input_ids: Int[Tensor, " tokens"],
        *,
        documents: Documents,
        images: Images = None,
        image_positions: Int[Tensor, " features"] | None = None,
        attend: Attend | None = None,
    ) -> Float[Tensor, "tokens dim"]:
        """The stream after the language model's last norm; `attend` replaces plain packed attention."""
        if documents.tokens != input_ids.numel():
            raise InputError(
                f"documents of {documents.tokens} tokens, but {input_ids.numel()} input ids. "
                "Give Documents.of_lengths the lengths after image placeholders were put in."
            )
        embeddings = self.embed(input_ids, images=images, image_positions=image_positions)
        attend = AttendPacked(documents, embeddings.device) if attend is None else attend
        output: Tensor = self.language_model(embeddings, attend)
        return output

    def embed(
        self,
        input_ids: Int[Tensor, " tokens"],
        *,
        images: Images = None,
        image_positions: Int[Tensor, " features"] | None = None,
        visit_tower: bool = True,
    ) -> Float[Tensor, "tokens dim"]:
        """Token embeddings with image features at their placeholders.

        Without images, a black tile of the smallest size is seen and none of its features is placed: its gradient is
        exactly zero, and the ranks that share the tower's weights all come through the same collectives (if all
        images of a batch are of one size). So it is with features that were made beforehand. Where no rank waits for
        another, `visit_tower=False` spares that.
        """
        if image_positions is None:
            image_positions = (input_ids == self.config.image_token_id).nonzero()[:, 0]
        shown = images.shown if isinstance(images, ShownTiles) else None
        groups = self.groups(images.tiles if isinstance(images, ShownTiles) else images)
        if not groups and not visit_tower and not len(image_positions):
            return self.language_model.embed(input_ids)
        features = self.image_features(groups or [self._black_tile()])
        if groups and visit_tower and all(_made_beforehand(group) for group in groups):
            features = features + 0 * self.seen(self._black_tile()).sum()
        if groups and shown is not None:
            features = features.reshape(len(groups[0]), -1, features.shape[-1])[shown].flatten(0, 1)
        if groups and len(features) != len(image_positions):
            raise InputError(
                f"{len(features)} image features for {len(image_positions)} placeholders (id "
                f"{self.config.image_token_id}). Put LlavaConfig.image_tokens(height, width) placeholders for a tile."
            )
        if not groups and len(image_positions):
            raise InputError(
                f"{len(image_positions)} placeholders (id {self.config.image_token_id}), but no images. "
                "Give the images, or leave the placeholders out."
            )
        # The placeholder's id may lie outside of the vocabulary; its embedding is replaced anyway.
        embeddings = self.language_model.embed(input_ids.index_fill(0, image_positions, 0))
        return embeddings.index_put((image_positions,), features[: len(image_positions)].to(embeddings.dtype))

    def image_features(self, images: Sequence[Tensor]) -> Float[Tensor, "features dim"]:
        """What the language model gets of images, or of their features: one row a placeholder, in order."""
        seen = (group if _made_beforehand(group) else self.seen(group) for group in images)
        return torch.cat([self.projector.map(features).flatten(0, 1) for features in seen])

    def groups(self, images: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
        """Tiles by size, or features of tiles, without empty groups.

        Raises:
            InputError: a group is neither ``[tiles, 3, height, width]`` nor ``[tiles, tokens, features]``.
        """
        if images is None:
            return []
        groups = [images] if isinstance(images, Tensor) else list(images)
        width = self.config.projector.reduced_dim
        for group in groups:
            if group.shape[-1] != width if _made_beforehand(group) else group.dim() != 4 or group.shape[1] != CHANNELS:
                raise InputError(
                    f"images of shape {tuple(group.shape)}; expected [tiles, {CHANNELS}, height, width], or features "
                    f"[tiles, tokens, {width}]."
                )
        return [group for group in groups if len(group)]

    def seen(self, tiles: Float[Tensor, "tiles 3 height width"]) -> Float[Tensor, "tiles tokens features"]:
        """What the projector's maps are given of tiles of one size: it changes only where the tower learns."""
        config = self.config
        rows, columns = config.vision.grid(tiles.shape[-2], tiles.shape[-1])
        config.projector.tokens(rows, columns)
        features = self.vision_tower(tiles, feature_layers=config.feature_layers, norm_features=config.norm_features)
        first, patches = features.tensor_split([config.vision.prefix_tokens], dim=1)
        reduced = self.projector.reduce(patches, rows=rows, columns=columns)
        if config.projector.reduction == "summary":
            return torch.cat([first[:, :1], reduced], dim=-1)
        return torch.cat([first, reduced], dim=1) if config.kept_prefix_tokens else reduced

    def _black_tile(self) -> Float[Tensor, "1 3 height width"]:
        reduces = self.config.projector.reduction != "none"
        side = self.config.vision.patch_size * (self.config.projector.factor if reduces else 1)
        weight = self.vision_tower.patch_embed.weight
        # Not new_zeros: where the weight is sharded, that would be sharded as well.
        return torch.zeros(1, CHANNELS, side, side, dtype=weight.dtype, device=weight.device)


def _made_beforehand(images: Tensor) -> bool:
    """Whether they are features of tiles, and not their pixels."""
    return images.dim() == 3
