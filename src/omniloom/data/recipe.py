"""How a pipeline is put together from a task encoder's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omniloom.data.leaf import Leaf
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset, Pipeline
from omniloom.data.loader.finish import finisher
from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.batch import Batch, Call, Map
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Plan
from omniloom.data.task import DefaultTaskEncoder, TaskEncoder
from omniloom.errors import ConfigError


@dataclass(frozen=True)
class Recipe:
    """How a pipeline is put together.

    Attributes:
        encoder: what a sample and a batch are.
        config: rank, world and workers.
        batch_size: values in a batch; ``None``: they come one by one.
        drop_last: leave out a batch that is not full.
        window: samples of a lane among which packs are chosen; ``None``: no packing.
    """

    encoder: TaskEncoder[Any, Any, Any, Any]
    config: WorkerConfig
    batch_size: int | None
    drop_last: bool
    window: int | None

    def dataset(
        self, plan: Plan | InOrder, leaves: list[Leaf], *, virtual_epoch_length: int, equal_steps: bool
    ) -> Dataset:
        """The data set whose pipeline gives the samples of a plan over these leaves."""
        user_code = has_user_code(self.encoder)
        late = self.encoder.decoder is not None and not user_code
        return Dataset(
            self._pipeline(plan, leaves),
            plan,
            self.config,
            self.batch_size,
            virtual_epoch_length=virtual_epoch_length,
            equal_steps=equal_steps,
            finish=finisher(late=late, pin=bool(self.config.pin_memory)),
            user_code=user_code,
            paths=tuple(leaf.path for leaf in leaves),
        )

    def _pipeline(self, plan: Plan | InOrder, leaves: list[Leaf]) -> Pipeline:
        stage = self._samples(plan, leaves)
        if self.batch_size is None:
            return stage
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} found; at least 1, or None for single samples, expected")
        encoder = self.encoder
        calls: list[Call] = [("batch", seeding.BATCH if encoder.overrides("batch") else 0, encoder.batch)]
        if _steps(encoder)[1]:
            number = seeding.ENCODE_BATCH if encoder.overrides("encode_batch") else 0
            calls.append(("encode_batch", number, encoder.encode_batch))
        return Batch(stage, self.batch_size, tuple(calls), drop_last=self.drop_last)

    def _samples(self, plan: Plan | InOrder, leaves: list[Leaf]) -> Make | Map | Pack:
        encoder = self.encoder
        encode = encoder.encode_sample if _steps(encoder)[0] else None
        make = Make(plan, tuple(leaves), encode=encode, seed=self.config.seed_offset, ahead=_rows_ahead(leaves))
        postencode = encoder.postencode_sample if encoder.overrides("postencode_sample") else None
        if self.window is not None:
            missing = [n for n in ("select_samples_to_pack", "pack_selected_samples") if not encoder.overrides(n)]
            if missing:
                raise ConfigError(
                    f"packing_buffer_size needs a task encoder that says how to pack: {type(encoder).__name__} has no "
                    f"{' and no '.join(missing)}"
                )
            return Pack(
                make,
                window_samples=self.window,
                select=encoder.select_samples_to_pack,
                pack=encoder.pack_selected_samples,
                postencode=postencode,
            )
        return make if postencode is None else Map(make, ("postencode_sample", seeding.POSTENCODE, postencode))


def _rows_ahead(leaves: list[Leaf]) -> int:
    """Rows to decode ahead: a few where images are decoded, none where a thread costs more than it saves."""
    return 4 if any(leaf.decodes_images() for leaf in leaves) else 0


def _steps(encoder: TaskEncoder[Any, Any, Any, Any]) -> tuple[bool, bool]:
    """Whether there is something to do in encode_sample and in encode_batch."""
    encodes, converts = encoder.overrides("encode_sample"), encoder.overrides("encode_batch")
    if isinstance(encoder, DefaultTaskEncoder):
        encodes, converts = encodes or encoder.converts[0], converts or encoder.converts[1]
    return encodes, converts


def lane_window(packing_buffer_size: int | None, config: WorkerConfig) -> int | None:
    """A lane's share of the rank's packing buffer."""
    if packing_buffer_size is None:
        return None
    return max(1, packing_buffer_size * config.ranks // config.run_lanes)


def has_user_code(encoder: TaskEncoder[Any, Any, Any, Any]) -> bool:
    """Whether any step of a task encoder is a user's own."""
    names = ("encode_sample", "postencode_sample", "batch", "encode_batch", "select_samples_to_pack")
    return any(encoder.overrides(name) for name in (*names, "pack_selected_samples"))
