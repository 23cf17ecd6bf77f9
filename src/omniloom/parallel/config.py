"""How a model is laid over ranks, as a recipe says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from omniloom.errors import ConfigError
from omniloom.parallel.data import DataParallelConfig

ContextForm = Literal["ulysses", "gather"]
TowerForm = Literal["whole", "dealt"]
TowerWeights = Literal["sharded", "replicated"]
Balance = Literal["none", "steps", "ranks"]


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(DataParallelConfig):
    """How a model is laid over ranks, and what its layers keep.

    Attributes:
        tensor: ranks that share each matrix of the language model, and are given the same batches.
        sequence: tokens between the cut matrices are dealt over the ranks of ``tensor`` as well, norms and all.
        context: ranks that share the tokens of a batch, with all matrices.
        context_form: how attention finds tokens of other ranks: ``ulysses`` exchanges heads for tokens (``context``
            times ``tensor`` divides the heads), ``gather`` gathers keys and values.
        pipeline: stages that share the layers of the language model; tower and projector are of the first.
        pipeline_chunks: spans of layers of each stage; above 1 the schedule is interleaved.
        pipeline_layers: layers of each span, in order; empty: as equal as can be.
        tower: ``dealt``: tiles are dealt over the ranks of ``tensor`` and ``context``; ``whole``: each computes all.
        tower_weights: ``sharded``: the tower's weights are cut over all ranks of a stage, or of each replica of it, and
            gathered layer by layer; ``replicated``: each rank has them all, and what is learned of them twice more.
        pad_tokens: tokens of a batch are filled up to a multiple of this, beyond what the axes need; 16 for FP8.
        balance: what is done for ranks to have equal work: ``steps``: each orders its micro-batches by cost, so that
            those that come together are alike; ``ranks``: whole packs are exchanged as well; ``none``.
        recompute: by part, such as ``{language_model: 1}``: layers whose activations are computed again for their
            gradients. 1: each layer; ``n``: each ``n``-th; 0, or a part that is not named: none.
        compile: compile each layer with ``torch.compile``; not together with ``tensor``.
    """

    tensor: int = 1
    sequence: bool = False
    context: int = 1
    context_form: ContextForm = "ulysses"
    pipeline: int = 1
    pipeline_chunks: int = 1
    pipeline_layers: tuple[int, ...] = ()
    tower: TowerForm = "whole"
    tower_weights: TowerWeights = "sharded"
    pad_tokens: int = 1
    balance: Balance = "steps"
    recompute: Mapping[str, int] = field(default_factory=dict)
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor", "context", "pipeline", "pipeline_chunks", "pad_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"parallel.{name}: {getattr(self, name)} found; at least 1 expected.")
        if self.compile and self.tensor > 1:
            raise ConfigError(
                f"parallel: compile together with tensor {self.tensor} found. Leave out one: layers whose matrices are "
                "cut share no compiled program, and torch compiles no more than eight of them."
            )
        if self.sequence and self.tensor == 1:
            raise ConfigError("parallel: sequence without tensor found. Its ranks are those of tensor; give tensor.")
        if self.pipeline_chunks > 1 and self.pipeline == 1:
            raise ConfigError(f"parallel.pipeline_chunks: {self.pipeline_chunks} found for one stage; give pipeline.")
        if self.gradients == "sharded" and self.pipeline > 1:
            raise ConfigError(
                "parallel.gradients: sharded found together with pipeline. Stages sum gradients once a step; leave it "
                "out, or give more stages."
            )
        spans = self.pipeline * self.pipeline_chunks
        if self.pipeline_layers and len(self.pipeline_layers) != spans:
            raise ConfigError(
                f"parallel.pipeline_layers: {len(self.pipeline_layers)} numbers found; {spans} expected, for "
                f"{self.pipeline} stages of {self.pipeline_chunks} spans."
            )

    @property
    def axes(self) -> dict[str, int]:
        """The axes of a replica of the model, over whose ranks there is one loader."""
        return {"pipeline": self.pipeline, "context": self.context, "tensor": self.tensor}

    @property
    def ranks_of_a_replica(self) -> int:
        """Ranks that are given the same batches."""
        return math.prod(self.axes.values())

    @property
    def token_multiple(self) -> int:
        """What the number of tokens of a batch has to be a multiple of."""
        parts = self.context * (2 if self.context > 1 and self.context_form == "gather" else 1)
        return math.lcm(parts * (self.tensor if self.sequence else 1), self.pad_tokens)
