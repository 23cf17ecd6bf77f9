"""Pipeline parallelism: torch's schedules over the stages of a model, for packs of any length and number of images.

Schedules cut tensors along their first dimension, which packs of several lengths have not; so what they are given is
the numbers of the micro-batches alone, and each stage looks its micro-batch up. Sources: Narayanan et al., PipeDream
(1F1B) and Efficient Large-Scale Language Model Training, section 2.2 (interleaved).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from omniloom.errors import ConfigError
from omniloom.model.documents import Documents
from omniloom.model.loss import IGNORED, LossSum, TokenGroups
from omniloom.parallel.collectives import Group
from omniloom.parallel.sequence import TokenShares
from omniloom.parallel.stages import Given, Stage


class MicroBatch(Protocol):
    """A packed micro-batch on its device; `omniloom.train.batches.PackedMicroBatch`."""

    @property
    def input_ids(self) -> Tensor:
        """Ids, ``(tokens,)``."""

    @property
    def labels(self) -> Tensor:
        """The id after each token, ``(tokens,)``, -100 where nothing is learned."""

    @property
    def documents(self) -> Documents:
        """Where the documents lie."""

    @property
    def images(self) -> Tensor | None:
        """Tiles, or ``None``."""

    @property
    def image_positions(self) -> Tensor:
        """Places of their features."""

    @property
    def groups(self) -> TokenGroups | None:
        """Groups of tokens whose losses are told apart."""


@dataclass(frozen=True)
class _Plan:
    """A schedule for one length; its buffers have that length."""

    tokens: int
    micro_batches: int
    schedule: Schedule1F1B | ScheduleInterleaved1F1B


class Pipeline:
    """The stages of a pipeline seen from one rank.

    Args:
        stages: this rank's spans, by their numbers.
        spans: how many there are over all ranks.
        group: the ranks of the pipeline.
        shares: how tokens are dealt.
        dim: features of the stream.
        dtype: of the stream.
        tied: the words of a tied embedding, on the first and the last rank, and the group of these two.
    """

    def __init__(
        self,
        stages: dict[int, Stage],
        *,
        spans: int,
        group: Group,
        shares: TokenShares,
        dim: int,
        dtype: torch.dtype,
        tied: tuple[Callable[[], Tensor], Group] | None = None,
    ) -> None:
        self._stages, self._spans, self._group, self._shares = stages, spans, group, shares
        self._dim, self._dtype, self._tied = dim, dtype, tied
        self._plan: _Plan | None = None
        self._learned, self._total = 1, torch.zeros(())

    @property
    def stages(self) -> list[Stage]:
        """The spans of this rank, in order."""
        return list(self._stages.values())

    def accumulate(self, micro_batches: Sequence[MicroBatch], *, learned: int) -> Tensor:
        """Add the gradients of the summed loss, divided by `learned`.

        Returns:
            The summed loss, and after it that of each group of tokens, equal on the pipeline's ranks.

        Raises:
            ConfigError: fewer micro-batches than the schedule needs.
        """
        tokens = self._shares.rounded(max(each.documents.tokens for each in micro_batches))
        given = [_given(each, tokens) for each in micro_batches]
        for stage in self.stages:
            stage.micro_batches = given
        device = micro_batches[0].input_ids.device
        self._learned, self._total = learned, torch.zeros((), device=device)
        numbers = torch.arange(len(given))
        first = (numbers,) if 0 in self._stages else ()
        self._schedule(tokens, len(given), device).step(*first, number=numbers, target=numbers, return_outputs=False)
        for stage in self.stages:
            stage.micro_batches = ()
        self._sum_tied_gradients()
        groups = micro_batches[0].groups
        by_group = self._total.new_zeros(0 if groups is None else groups.groups)
        for each in given:
            if each.loss_by_group is not None:
                by_group += each.loss_by_group
        totals = torch.cat([self._total[None], by_group])
        distributed.all_reduce(totals, group=self._group)
        return totals

    def gradient_norm(self, parameters: Sequence[nn.Parameter], norm: Callable[[list[nn.Parameter]], Tensor]) -> Tensor:
        """The norm of the gradients of all stages as one vector.

        Args:
            parameters: trained ones of this rank.
            norm: gives the norm of the gradients of some of these, over the ranks of this stage.
        """
        # Tied words have the same gradient on both ends, and are one parameter.
        copy = self._tied[0]() if self._tied is not None and 0 not in self._stages else None
        # A stage that learns nothing has a norm as well, on the device that the others' are on.
        squared = norm([each for each in parameters if each is not copy]).to(self._total.device) ** 2
        distributed.all_reduce(squared, group=self._group)
        return squared.sqrt()

    def loss(
        self,
        input_ids: Tensor,
        *,
        labels: Tensor,
        documents: Documents,
        images: Any = None,
        image_positions: Tensor | None = None,
    ) -> LossSum:
        """The summed loss of one micro-batch without gradients, equal on the pipeline's ranks, which all call it.

        Raises:
            ConfigError: a gradient is asked for.
        """
        if torch.is_grad_enabled():
            raise ConfigError("the loss of a model in stages has no gradient by itself; Pipeline.accumulate takes it.")
        tokens = self._shares.rounded(documents.tokens)
        given = Given(input_ids, labels, documents, tokens=tokens, images=images, image_positions=image_positions)
        return LossSum(self._through_all(given, nothing=torch.zeros((), device=input_ids.device)), given.learned_tokens)

    @torch.no_grad()
    def next_words(
        self,
        input_ids: Tensor,
        *,
        documents: Documents,
        wanted: Tensor,
        images: Any = None,
        image_positions: Tensor | None = None,
    ) -> Tensor:
        """The likeliest words after the tokens `wanted`, int64, equal on the pipeline's ranks, which all call it."""
        given = Given(
            input_ids,
            torch.full_like(input_ids, IGNORED),
            documents,
            tokens=self._shares.rounded(documents.tokens),
            images=images,
            image_positions=image_positions,
            wanted=wanted,
        )
        return self._through_all(given, nothing=torch.zeros_like(wanted))

    def _through_all(self, given: Given, *, nothing: Tensor) -> Tensor:
        """What the last stage makes of a micro-batch, which all stages see in turn; `nothing` is a zero of its kind."""
        made, ranks, device = nothing, distributed.get_world_size(self._group), given.input_ids.device
        for span, stage in self._stages.items():
            stage.micro_batches = [given]
            stream = torch.empty(self._stream_shape(len(given.input_ids)), dtype=self._dtype, device=device)
            if span:
                distributed.recv(stream, group_src=(span - 1) % ranks, group=self._group)
            stream = stage(stream, torch.zeros(1, dtype=torch.int64))
            if stage.last:
                made = stream.to(nothing.dtype)
            else:
                distributed.send(stream.contiguous(), group_dst=(span + 1) % ranks, group=self._group)
        distributed.all_reduce(made, group=self._group)
        return made

    def _schedule(self, tokens: int, micro_batches: int, device: torch.device) -> Any:
        """The schedule for so many micro-batches of a length; it is kept until another is wanted."""
        known = self._plan
        if known is not None and (known.tokens, known.micro_batches) == (tokens, micro_batches):
            return known.schedule
        self._check(micro_batches)
        stages = [self._torch_stage(span, stage, tokens, device) for span, stage in self._stages.items()]
        schedule: Schedule1F1B | ScheduleInterleaved1F1B
        if len(stages) == 1:
            schedule = Schedule1F1B(stages[0], micro_batches, loss_fn=self._loss, scale_grads=False)
        else:
            schedule = ScheduleInterleaved1F1B(list(stages), micro_batches, loss_fn=self._loss, scale_grads=False)
        self._plan = _Plan(tokens, micro_batches, schedule)
        return schedule

    def _check(self, micro_batches: int) -> None:
        ranks = distributed.get_world_size(self._group)
        if micro_batches < ranks or (len(self._stages) > 1 and micro_batches % ranks):
            wanted = f"a multiple of {ranks}" if len(self._stages) > 1 else f"at least {ranks}"
            raise ConfigError(
                f"loop.micro_batches: {micro_batches} found for a pipeline of {ranks} stages; {wanted} expected."
            )

    def _torch_stage(self, span: int, stage: Stage, tokens: int, device: torch.device) -> PipelineStage:
        """A stage that torch knows the shapes of, so that it need not try them out."""
        stream = torch.empty(self._stream_shape(tokens), dtype=self._dtype, device="meta", requires_grad=True)
        number = torch.empty(1, dtype=torch.int64, device="meta")
        total = torch.empty((), device="meta", requires_grad=True)
        return PipelineStage(
            stage,
            span,
            self._spans,
            device,
            input_args=number if stage.first else stream,
            output_args=total if stage.last else stream,
            group=self._group,
        )

    def _stream_shape(self, tokens: int) -> tuple[int, int]:
        return tokens // self._shares.parts, self._dim

    def _loss(self, total: Tensor, number: Tensor) -> Tensor:
        del number
        self._total += total.detach()
        return total / self._learned

    def _sum_tied_gradients(self) -> None:
        if self._tied is None:
            return
        words, group = self._tied
        gradient = words().grad
        if gradient is not None:
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            distributed.all_reduce(local, group=group)


def _given(batch: MicroBatch, tokens: int) -> Given:
    return Given(
        batch.input_ids,
        batch.labels,
        batch.documents,
        tokens=tokens,
        images=batch.images,
        image_positions=batch.image_positions,
        groups=batch.groups,
    )
