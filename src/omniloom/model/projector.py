"""The projector: image features become token embeddings, fewer of them where a reduction is chosen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from omniloom.model.activation import activation
from omniloom.model.config import ProjectorConfig
from omniloom.model.norm import make_norm


class Projector(nn.Module):
    """Reduction, norm, and linear maps ``fc1``, ``fc2``, ... with an activation between them."""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.reduced_dim
        self.norm = nn.Identity() if config.norm is None else make_norm(config.norm, dim, eps=config.norm_eps)
        widths = (dim, *config.hidden_dims, config.output_dim)
        self.map_names = [f"fc{number}" for number in range(1, len(widths))]
        for name, (width, next_width) in zip(self.map_names, pairwise(widths), strict=True):
            self.add_module(name, nn.Linear(width, next_width, bias=config.bias))
        self.activation = activation(config.activation)

    def forward(
        self, features: Float[Tensor, "images tokens features"], *, rows: int, columns: int
    ) -> Float[Tensor, "images fewer dim"]:
        """Token embeddings; `rows` x `columns` is the grid of the features, used by reductions only."""
        return self.map(self.reduce(features, rows=rows, columns=columns))

    def reduce(
        self, features: Float[Tensor, "images tokens features"], *, rows: int, columns: int
    ) -> Float[Tensor, "images fewer reduced"]:
        """What the maps are given: fewer features, in which nothing is learned."""
        return REDUCTIONS[self.config.reduction](features, (rows, columns), self.config.factor)

    def map(self, reduced: Float[Tensor, "images fewer reduced"]) -> Float[Tensor, "images fewer dim"]:
        """Token embeddings of features that `reduce` gave."""
        first, *others = self.map_names
        outputs: Tensor = self.get_submodule(first)(self.norm(reduced))
        for name in others:
            outputs = self.get_submodule(name)(self.activation(outputs))
        return outputs


def pixel_shuffle(
    features: Float[Tensor, "images tokens features"], grid: tuple[int, int], factor: int
) -> Float[Tensor, "images fewer folded"]:
    """Fold neighbours into one token, in InternVL's order: row by row within the square, features innermost."""
    rows, columns = grid
    cells = features.reshape(len(features), rows // factor, factor, columns // factor, factor, -1)
    return cells.transpose(2, 3).flatten(3).flatten(1, 2)


def pool(
    features: Float[Tensor, "images tokens features"], grid: tuple[int, int], factor: int
) -> Float[Tensor, "images fewer features"]:
    """The mean of neighbours."""
    image = features.reshape(len(features), *grid, -1).movedim(-1, 1)
    return functional.avg_pool2d(image, factor).flatten(2).transpose(1, 2)


def keep_all(features: Tensor, grid: tuple[int, int], factor: int) -> Tensor:
    """Every token stays."""
    return features


def mean_of_all(
    features: Float[Tensor, "images tokens features"], grid: tuple[int, int], factor: int
) -> Float[Tensor, "images 1 features"]:
    """The mean of all patches: the half of a summary that is made of them."""
    return features.mean(dim=1, keepdim=True)


REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, int], int], Tensor]] = {
    "none": keep_all,
    "pixel_shuffle": pixel_shuffle,
    "pool": pool,
    "summary": mean_of_all,
}
