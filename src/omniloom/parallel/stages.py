"""A model cut into spans of layers: what is not of this rank's spans passes on what it is given.

Names of parameters stay those of the whole model, so a checkpoint knows nothing of stages. The tower, the projector and
the embedding are of the first span; the last norm and the head, of the last. Tied words are in both, and the ends of a
pipeline sum their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.attention import Attend
from omniloom.model.decoder import Decoder
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from omniloom.model.loss import IGNORED, TokenGroups
from omniloom.model.rope import rope_table
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.sequence import Score, TokenShares, filled_up, filled_up_groups, score_own, with_filling


class Passed(nn.Module):
    """In the place of a part that another stage has."""

    def forward(self, stream: Tensor, *_: Any) -> Tensor:
        """The stream as it is."""
        return stream


def spans_of_layers(layers: int, config: ParallelConfig) -> list[range]:
    """The layers of each span, in order; span ``n`` is of stage ``n`` modulo the stages.

    Layers that cannot be dealt equally go to spans from the second on: the first has the tower.

    Raises:
        ConfigError: fewer layers than spans, or given numbers that do not add up.
    """
    spans = config.pipeline * config.pipeline_chunks
    numbers: Sequence[int] = config.pipeline_layers
    if not numbers:
        each, more = divmod(layers, spans)
        numbers = [each + (0 < span <= more) for span in range(spans)]
    if sum(numbers) != layers or min(numbers) < 1:
        raise ConfigError(
            f"parallel.pipeline_layers: {', '.join(map(str, numbers))} found for a language model of {layers} layers; "
            f"{spans} numbers of at least 1 that add up to it expected."
        )
    return [range(*borders) for borders in pairwise((0, *accumulate(numbers)))]


def keep_spans(model: Llava, decoder: Decoder, spans: Sequence[range], own: Sequence[int]) -> None:
    """Take out of a model what is not of this rank's spans.

    Args:
        model: whole.
        decoder: in it.
        spans: layers of all spans.
        own: numbers of this rank's.
    """
    kept = {layer for span in own for layer in spans[span]}
    for layer in range(len(decoder.layers)):
        if layer not in kept:
            decoder.layers[layer] = Passed()
    first, last = 0 in own, len(spans) - 1 in own
    if not first:
        model.vision_tower, model.projector = Passed(), Passed()  # type: ignore[assignment]
    if not first and not (last and decoder.head is None):
        decoder.embed_tokens = Passed()  # type: ignore[assignment]
    if not last:
        decoder.norm = Passed()  # type: ignore[assignment]
        decoder.head = None if decoder.head is None else Passed()  # type: ignore[assignment]


class Given:
    """A micro-batch as all stages see it, filled up to a number of tokens.

    Where `wanted` names tokens, the last stage gives the likeliest words after them in place of the loss. Where tokens
    have groups, it notes the loss of each in `loss_by_group`.
    """

    def __init__(
        self,
        input_ids: Int[Tensor, " tokens"],
        labels: Int[Tensor, " tokens"],
        documents: Documents,
        *,
        tokens: int,
        images: Tensor | None = None,
        image_positions: Tensor | None = None,
        wanted: Int[Tensor, " rows"] | None = None,
        groups: TokenGroups | None = None,
    ) -> None:
        self.input_ids = filled_up(input_ids, tokens)
        self.labels = filled_up(labels, tokens, value=IGNORED)
        self.documents = with_filling(documents, tokens)
        self.images, self.image_positions, self.wanted = images, image_positions, wanted
        self.groups = filled_up_groups(groups, tokens)
        self.loss_by_group: Tensor | None = None
        self._attend: Attend | None = None

    @property
    def learned_tokens(self) -> int:
        """Labelled tokens."""
        return int((self.labels != IGNORED).sum())

    def attend(self, shares: TokenShares) -> Attend:
        """Attention of this rank's tokens, made once for all spans."""
        if self._attend is None:
            self._attend = shares.attend(self.documents, self.input_ids.device)
        return self._attend


class Stage(nn.Module):
    """One span of a model, from the stream of the span before to that of the next, or to the loss.

    Args:
        model: with this rank's spans in it.
        decoder: in it.
        layers: of this span.
        first, last: whether the span is.
        shares: how tokens are dealt.
        score: takes the loss of rows of the stream.
    """

    def __init__(
        self,
        model: Llava,
        decoder: Decoder,
        layers: range,
        *,
        first: bool,
        last: bool,
        shares: TokenShares,
        score: Score,
    ) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.micro_batches: Sequence[Given] = ()
        self.layers = nn.ModuleList(decoder.layers[layer] for layer in layers)
        # Only what is computed here: sharding gathers what a module has.
        own: list[nn.Module | None] = [model.vision_tower, model.projector, decoder.embed_tokens] if first else []
        own += [decoder.norm, decoder.head or decoder.embed_tokens] if last else []
        self.others = nn.ModuleList([part for part in own if part is not None])
        self._model, self._decoder = (model,), (decoder,)
        self._shares, self._score = shares, score

    def forward(
        self, stream: Tensor, number: Int[Tensor, " one"]
    ) -> Float[Tensor, "own dim"] | Float[Tensor, ""] | Int[Tensor, " wanted"]:
        """The stream after this span; after the last, the summed loss, or the words that are wanted.

        Args:
            stream: of this rank's tokens, ``(own, dim)``; the first span looks at none.
            number: which of the micro-batches.
        """
        given = self.micro_batches[int(number)]
        attend = given.attend(self._shares)
        if self.first:
            embeddings = self._model[0].embed(
                given.input_ids, images=given.images, image_positions=given.image_positions
            )
            stream = self._shares.enter(embeddings)
        config = self._decoder[0].config
        rope = rope_table(config.rope, attend.positions, head_dim=config.head_dim, dtype=stream.dtype)
        for layer in self.layers:
            stream = layer(stream, rope, attend)
        if not self.last:
            # Of a span that learns nothing as well, gradients are asked for by the one before it.
            alone = torch.is_grad_enabled() and not stream.requires_grad
            return stream.detach().requires_grad_() if alone else stream
        stream = self._shares.leave(self._decoder[0].norm(stream))
        if given.wanted is not None:
            return self._decoder[0].logits(self._shares.whole(stream)[given.wanted]).argmax(dim=-1)
        found = score_own(self._shares, self._score, stream, given.labels, token_groups=given.groups)
        given.loss_by_group = found.by_group
        return found.total
