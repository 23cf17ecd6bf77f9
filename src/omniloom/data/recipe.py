"""How a pipeline is put together from a task encoder's steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omniloom.data.cook import CookStep, find_cooker
from omniloom.data.leaf import Leaf
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset, Pipeline
from omniloom.data.loader.finish import finisher
from omniloom.data.media.own_decoder import as_decoder
from omniloom.data.mixed_cook import CookByWay, WaysCook
from omniloom.data.pipeline import running
from omniloom.data.pipeline.make import Make
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Plan
from omniloom.data.row_cook import ColumnCook, CrudeCook, RowCook
from omniloom.data.side.open import open_side_store
from omniloom.data.side.store import DecodeFileStore, FileStore, PrimaryFileStore
from omniloom.data.task import STEPS, TaskEncoder
from omniloom.errors import ConfigError

GROUPED_UNITS = 64
"""An evaluation in groups goes in units of so many batches: its last batches of each group are not full."""


@dataclass(frozen=True)
class Recipe:
    """How a pipeline is put together.

    Attributes:
        encoder: what a sample and a batch are.
        config: rank, world and workers.
        batch_size: values in a batch; ``None``: they come one by one, or the groups say how many.
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
        user_code = has_user_code(self.encoder) or any(leaf.cook_row.calls_users for leaf in leaves)
        late = makes_tensors_late(self.encoder) and not any(leaf.keeps_arrays() for leaf in leaves)
        leaves = leaves if late else [leaf.eager() for leaf in leaves]
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
        encoder = self.encoder
        encoder.check(packing=self.window is not None)
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} found; at least 1, or None for single samples, expected")
        make = Make(
            plan,
            tuple(leaves),
            seed=self.config.seed_offset,
            ahead=_rows_ahead(leaves),
            decode_ahead=self.window is None and getattr(encoder.decoder, "lazy", False) is None,
            cooks=_cooks(encoder, leaves),
            tokens=encoder.token_count if getattr(plan, "counts_tokens", False) else None,
        )
        pipeline: Pipeline = encoder.build_batch(
            encoder.build_encode_sample(make, worker_config=self.config),
            batch_size=self.batch_size,
            batch_drop_last=self.drop_last,
            packing_buffer_size=self.window,
            group_buffer_size=lane_share(encoder.group_buffer_size, self.config),
            worker_config=self.config,
        )
        return pipeline


def _cooks(encoder: TaskEncoder[Any, Any, Any, Any], leaves: list[Leaf]) -> tuple[CookStep | CookByWay | None, ...]:
    """The cook step of each leaf; empty where no leaf has one."""
    cooks = tuple(_cook_of(encoder, leaf) for leaf in leaves)
    return cooks if any(cooks) else ()


def _cook_of(encoder: TaskEncoder[Any, Any, Any, Any], leaf: Leaf) -> CookStep | CookByWay | None:
    """The cook step of a leaf; ``None`` where its samples are not crude."""
    if not isinstance(leaf.cook_row, WaysCook):
        return _cook(encoder, leaf) if is_crude(leaf.cook_row) else None
    ways = [way for way in leaf.cook_row.ways if is_crude(way)]
    cooks = tuple(_cook(encoder, replace(leaf, cook_row=way)) for way in ways)
    return CookByWay(tuple(_subflavors(way) for way in ways), cooks) if any(cooks) else None


def _cook(encoder: TaskEncoder[Any, Any, Any, Any], leaf: Leaf) -> CookStep | None:
    cooker = find_cooker(encoder.cookers, _subflavors(leaf.cook_row), where=leaf.path)
    if cooker is None:
        return None
    stores = {name: _decoded(store, encoder) for name, store in leaf.aux.items() if name != "primary"}
    primary = None
    if cooker.need_primary:
        store = leaf.primary if leaf.primary is not None else open_side_store(leaf.path)
        primary = partial(PrimaryFileStore, _decoded(store, encoder))
    cache = running.current_cache if cooker.need_cache else None
    return CookStep(encoder.step("cook_crude_sample"), cooker, stores, primary, cache)


def is_crude(cook: RowCook) -> bool:
    """Whether samples are the dicts that an undescribed data set gives."""
    return isinstance(cook, CrudeCook) or (isinstance(cook, ColumnCook) and cook.sample_type is None)


def _subflavors(cook: RowCook) -> dict[str, Any] | None:
    return cook.subflavors if isinstance(cook, CrudeCook | ColumnCook) else None


def _decoded(store: FileStore[Any], encoder: TaskEncoder[Any, Any, Any, Any]) -> FileStore[Any]:
    """The store as cookers see it: with its values decoded."""
    decoder = encoder.decoder
    return store if decoder is None or isinstance(store, DecodeFileStore) else DecodeFileStore(store, decoder=decoder)


def _rows_ahead(leaves: list[Leaf]) -> int:
    """Rows to decode ahead: a few where images are decoded, none where a thread costs more than it saves."""
    return 4 if any(leaf.decodes_images() for leaf in leaves) else 0


def lane_window(packing_buffer_size: int | None, config: WorkerConfig) -> int | None:
    """A lane's share of the rank's packing buffer."""
    return lane_share(packing_buffer_size, config)


def lane_share(rank_budget: int | None, config: WorkerConfig) -> int | None:
    """A lane's share of what a rank may hold."""
    if rank_budget is None:
        return None
    return max(1, rank_budget * config.ranks // config.run_lanes)


def evaluation_unit(
    encoder: TaskEncoder[Any, Any, Any, Any], *, batch_size: int | None, packing_buffer_size: int | None
) -> int:
    """Rows that an evaluation works at together: those of a batch, of a packing window, or of some groups."""
    if packing_buffer_size is not None:
        return packing_buffer_size
    if encoder.overrides("batch_group_criterion"):
        return GROUPED_UNITS * (batch_size or 1)
    return batch_size or 1


def makes_tensors_late(encoder: TaskEncoder[Any, Any, Any, Any]) -> bool:
    """Whether the caller's process can make the tensors, so that nothing else needs torch: no step looks at them."""
    ready = encoder.decoder is not None and as_decoder(encoder.decoder) is encoder.decoder
    return ready and encoder.late_tensors and not has_user_code(encoder)


def has_user_code(encoder: TaskEncoder[Any, Any, Any, Any]) -> bool:
    """Whether any step of a task encoder is a user's own."""
    return bool(encoder.cookers) or encoder.packer is not None or any(encoder.overrides(name) for name in STEPS)
