"""What a tower would make of photos that nobody has, told from their captions alone.

Captions without photos are many, captioned photos are few. Both together say more than the photos: how captions read
and what comes together in them is learned from all of them, and the photos are left with what only they can tell,
which features mean which words.

1. *Meaning*: the words of a photo's captions, weighted by how rare they are, in the directions in which captions of
   photos differ most (latent semantic analysis, Deerwester et al. 1990).
2. *Head*: a linear map that tells a photo's meaning from the tower's features, by ridge regression; it becomes the
   first map of the projector, and stays as it is. What it tells of a photo that it was fitted to is too good, so each
   tenth of the photos is told by a head that was fitted to the others.
3. *Likely photos*: how what is told hangs on what is meant, and how far it is off, is known from the photos. So for
   captions without a photo it is drawn what the head would tell of theirs: noise included, as in CapDec (Nukrai et al.
   2022).

What the head tells becomes features again: those that a photo of which it tells so has on average.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DIRECTIONS = 128  # of meaning
LEAST_PHOTOS, MOST_PHOTOS = 8, 0.6  # words of fewer photos, or of a greater share, mean nothing here
PENALTY_OF_HEAD = 2000 / 768  # a feature, in units of its variance
PENALTY_OF_LIKENESS = 10.0
PARTS = 10


def meaning(captions: Sequence[Sequence[str]], *, seed: int) -> Tensor:
    """What the captions of each photo mean, as far as `DIRECTIONS` numbers can say it.

    Args:
        captions: of each photo, in plain words.
        seed: of the random projection by which the directions are found.

    Returns:
        float32 (photos, directions).
    """
    of_photos = Counter(word for each in captions for word in {word for text in each for word in text.split()})
    words = sorted(word for word, n in of_photos.items() if LEAST_PHOTOS <= n < MOST_PHOTOS * len(captions))
    column = {word: number for number, word in enumerate(words)}
    shares = torch.zeros(len(captions), len(words))
    for row, texts in zip(shares, captions, strict=True):
        for text in texts:
            for word in set(text.split()) & column.keys():
                row[column[word]] += 1 / len(texts)
    rarity = torch.tensor([math.log(len(captions) / of_photos[word]) for word in words])
    weighted = (shares - shares.mean(0)) * rarity
    directions = min(DIRECTIONS, *weighted.shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _, _, principal = torch.svd_lowrank(weighted, q=min(directions + 20, *weighted.shape), niter=6)
    return weighted @ principal[:, :directions]


@dataclass(frozen=True)
class Head:
    """A linear map from features to meaning; what it tells of the photos has mean 0 and deviation 1.

    Attributes:
        weight: float32 (directions, features).
        bias: float32 (directions,).
        likeliest: float32 (features, directions), from what is told to features that have it on average.
        usual: float32 (features,), the mean of all photos.
    """

    weight: Tensor
    bias: Tensor
    likeliest: Tensor
    usual: Tensor

    def features(self, told: Tensor) -> Tensor:
        """The features that a photo has on average of which this is told; the head tells the same of them again.

        Args:
            told: (..., directions).

        Returns:
            (..., features).
        """
        return told @ self.likeliest.T + self.usual


def fit_head(features: Tensor, meant: Tensor, *, seed: int) -> tuple[Head, Tensor]:
    """The head, and what heads tell of each photo that were fitted to other photos.

    Args:
        features: (photos, views, features), what the tower makes of views of each photo.
        meant: (photos, directions), what its captions mean.
        seed: of how the photos are dealt into parts.

    Returns:
        the head, and what is told of the photos: (photos, views, directions).
    """
    usual, deviation = features.mean((0, 1)), features.std((0, 1)) + 1e-6
    scaled = (features - usual) / deviation
    centred = meant - meant.mean(0)
    others = torch.empty(*features.shape[:2], meant.shape[1])
    parts = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed)) % PARTS
    for part in range(PARTS):
        chosen = parts == part
        others[chosen] = scaled[chosen] @ _ridge(scaled[~chosen], centred[~chosen])
    spread = others.std((0, 1)) + 1e-6
    weight = _ridge(scaled, centred) / deviation[:, None] / spread
    flat = (features - usual).flatten(0, 1)
    told = flat @ weight
    likeliest = torch.linalg.solve(told.T @ told + 1e-4 * len(told) * torch.eye(told.shape[1]), told.T @ flat).T
    return Head(weight.T.contiguous(), -(usual @ weight), likeliest, usual), others / spread


def likely(
    told: Tensor,
    meant: Tensor,
    *,
    of: Tensor,
    draws: int,
    seed: int,
) -> Tensor:
    """What heads would tell of photos that nobody has.

    Args:
        told: (photos, views, directions), what heads tell of photos that were fitted to others.
        meant: (photos, directions), what the captions of these mean.
        of: (captioned, directions), what the captions of the others mean.
        draws: how many each; they differ by how far heads are off.
        seed: of the draws.

    Returns:
        (captioned, draws, directions).
    """
    centre, centred = told.mean((0, 1)), meant - meant.mean(0)
    penalty = PENALTY_OF_LIKENESS * centred.std(0).mean() ** 2 * torch.eye(centred.shape[1])
    hangs = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ (told[:, 0] - told[:, 0].mean(0)))
    off = (told - centre - (centred @ hangs)[:, None]).flatten(0, 1)
    drawn = torch.randint(len(off), (len(of), draws), generator=torch.Generator().manual_seed(seed))
    return centre + ((of - meant.mean(0)) @ hangs)[:, None] + off[drawn]


def _ridge(features: Tensor, meant: Tensor) -> Tensor:
    """The map whose squared error, and squared weights, are least: in its dual form where that is the smaller one."""
    views, size = features.shape[1:]
    rows, wanted = features.flatten(0, 1), meant.repeat_interleave(views, 0)
    penalty = PENALTY_OF_HEAD * size * views
    if len(rows) < size:
        return rows.T @ torch.linalg.solve(rows @ rows.T + penalty * torch.eye(len(rows)), wanted)
    return torch.linalg.solve(rows.T @ rows + penalty * torch.eye(size), rows.T @ wanted)
