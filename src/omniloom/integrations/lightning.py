"""A Lightning data module: data sets for training and evaluation, dealt to the trainer's ranks, their place in its
checkpoints.

Lightning may fetch a batch ahead, and saves checkpoints in the middle of a pass. What is saved is the place after the
last batch that the trainer has worked off, so that a run that goes on sees exactly the batches that would have come.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.mix.values import Source
from omniloom.data.open import get_train_dataset, get_val_dataset
from omniloom.data.task import TaskEncoder
from omniloom.errors import ConfigError
from omniloom.integrations.handed_on import HandedOn

try:
    from lightning.pytorch import LightningDataModule
except ImportError as error:
    raise ImportError(
        "omniloom.integrations.lightning needs Lightning. Run `pip install omniloom[lightning]`."
    ) from error


class OmniloomDataModule(LightningDataModule):
    """Loads one data set or mix for a `Trainer`.

    Args:
        path: a data set of any kind, a metadataset or a mix, as for `get_train_dataset`; for evaluation too.
        micro_batch_size: samples (or packs) in a batch of a rank; ``None``: one by one, or as many as groups say.
        global_batch_size: samples in a step of the optimizer, of all ranks; it has to be what
            ``accumulate_grad_batches`` of the trainer makes of it. ``None``: whatever that is.
        num_workers: worker processes of a rank.
        task_encoder: what a sample and a batch are.
        val_path: data set or mix for evaluation, where it is another one.
        val_task_encoder: what they are in evaluation; ``None``: as in training.
        val_batch_size: samples in a batch of evaluation; ``None``: as in training.
        val_workers: worker processes of a rank in evaluation; ``None``: as in training.
        worker_config: seed, lanes and all else of how workers run; rank, world and workers are filled in.
        train: further arguments of `get_train_dataset`: ``packing_buffer_size``, ``shuffle_buffer_size``,
            ``virtual_epoch_length``, ``split_part``, ...
        val: further arguments of `get_val_dataset`: ``limit``, ``split_part``, ... ``None``: there is no evaluation.
        loader: arguments of `Loader`: ``watchdog_timeout_seconds``, ``cache_pool``, ...
    """

    def __init__(
        self,
        path: Source,
        *,
        micro_batch_size: int | None,
        global_batch_size: int | None = None,
        num_workers: int = 4,
        task_encoder: TaskEncoder[Any, Any, Any, Any] | None = None,
        val_path: Source | None = None,
        val_task_encoder: TaskEncoder[Any, Any, Any, Any] | None = None,
        val_batch_size: int | None = None,
        val_workers: int | None = None,
        worker_config: WorkerConfig | None = None,
        train: Mapping[str, Any] | None = None,
        val: Mapping[str, Any] | None = None,
        loader: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.path, self.val_path = path, path if val_path is None else val_path
        self.micro_batch_size, self.global_batch_size = micro_batch_size, global_batch_size
        self.val_batch_size = micro_batch_size if val_batch_size is None else val_batch_size
        self.num_workers, self.val_workers = num_workers, num_workers if val_workers is None else val_workers
        self.task_encoder, self.val_task_encoder = task_encoder, val_task_encoder or task_encoder
        self.worker_config = worker_config
        self._train_settings, self._val_settings = dict(train or {}), None if val is None else dict(val)
        self._loader_settings = dict(loader or {})
        self._batches: TrainBatches | None = None
        self._saved: Mapping[str, Any] | None = None

    def train_dataset(self) -> Dataset:
        """The data set for training, of this rank. Override it to make another one."""
        return get_train_dataset(
            self.path,
            worker_config=self.rank_config(self.num_workers),
            batch_size=self.micro_batch_size,
            task_encoder=self.task_encoder,
            **self._train_settings,
        )

    def val_dataset(self) -> Dataset | None:
        """The data set for evaluation, of this rank; ``None`` without evaluation. Override it to make another one."""
        if self._val_settings is None:
            return None
        return get_val_dataset(
            self.val_path,
            worker_config=self.rank_config(self.val_workers),
            batch_size=self.val_batch_size,
            task_encoder=self.val_task_encoder,
            **self._val_settings,
        )

    def rank_config(self, num_workers: int) -> WorkerConfig:
        """Rank and world as the trainer's strategy deals data, and so many workers."""
        base = self.worker_config or WorkerConfig(rank=0, world_size=1)
        dealt = (self.trainer.distributed_sampler_kwargs if self.trainer is not None else None) or {}
        rank, world_size = dealt.get("rank", 0), dealt.get("num_replicas", 1)
        group = base.data_parallel_group or self._data_parallel_group(world_size)
        return replace(base, rank=rank, world_size=world_size, num_workers=num_workers, data_parallel_group=group)

    def train_dataloader(self) -> Any:
        """The batches for training. It is one loader for as long as the module lives."""
        self._check_global_batch()
        if self._batches is None:
            self._batches = TrainBatches(Loader(self.train_dataset(), **self._loader_settings))
        self._batches.serve(self.trainer)
        if self._saved is not None:
            self._batches.restore(self._saved)
            self._saved = None
        return self._batches

    def val_dataloader(self) -> Any:
        """The batches for evaluation: from the beginning in each pass."""
        dataset = self.val_dataset()
        return [] if dataset is None else ValBatches(Loader(dataset, **self._loader_settings))

    @property
    def train_loader(self) -> Loader | None:
        """The loader for training, with its ``stats()``; ``None`` until the trainer has asked for it."""
        return None if self._batches is None else self._batches.loader

    def state_dict(self) -> dict[str, Any]:
        """The place of all ranks after the last batch that was worked off, for the trainer's checkpoint.

        Every rank calls it; the states come together on the first.
        """
        return {} if self._batches is None else self._batches.job_state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a place in a checkpoint, also on another number of ranks and workers."""
        self._saved = state_dict

    def teardown(self, stage: str) -> None:
        """End the workers; a later fit begins where this one stopped."""
        if self._batches is not None:
            self._batches.loader.close()

    def _data_parallel_group(self, world_size: int) -> Any:
        """The strategy's group of ranks that are dealt data, where these are not all ranks."""
        mesh = getattr(self.trainer.strategy, "device_mesh", None) if self.trainer is not None else None
        if world_size == 1 or mesh is None or "data_parallel" not in (mesh.mesh_dim_names or ()):
            return None
        return mesh["data_parallel"].get_group()

    def _check_global_batch(self) -> None:
        if self.global_batch_size is None or self.trainer is None:
            return
        ranks, size = self.rank_config(0).ranks, self.micro_batch_size or 1
        micro_batches, left = divmod(self.global_batch_size, ranks * size)
        if left:
            raise ConfigError(
                f"global_batch_size={self.global_batch_size} is no multiple of micro_batch_size={size} x {ranks} ranks"
            )
        if self.trainer.accumulate_grad_batches != micro_batches:
            raise ConfigError(
                f"global_batch_size={self.global_batch_size} is {micro_batches} micro-batches of {size} on {ranks} "
                f"ranks, but the trainer accumulates {self.trainer.accumulate_grad_batches}.\n"
                f"  Use Trainer(accumulate_grad_batches={micro_batches}), or another global_batch_size."
            )


class TrainBatches:
    """What the trainer iterates: the batches of a loader, and how many of them it has worked off.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: Loader) -> None:
        self._handed_on = HandedOn(loader)
        self._trainer: Any = None
        self._worked_off = 0

    @property
    def loader(self) -> Loader:
        """The loader itself."""
        return self._handed_on.loader

    def serve(self, trainer: Any) -> None:
        """Give batches to a trainer from now on."""
        self._take_note()
        self._trainer = trainer
        self._worked_off = self._count()

    def restore(self, job_state: Mapping[str, Any]) -> None:
        """Go on from a saved place."""
        self._handed_on.restore(job_state)

    def job_state(self) -> dict[str, Any]:
        """The place of all ranks after the last batch that was worked off."""
        self._take_note()
        return self._handed_on.job_state()

    def __iter__(self) -> Iterator[Any]:
        self._take_note()
        return self._handed_on.batches()

    def __len__(self) -> int:
        """Batches of this rank in a pass. Raises TypeError where a pass has no end, or one that is not known."""
        dataset = self.loader.dataset
        if dataset.plan.endless and not dataset.virtual_epoch_length:
            raise TypeError("a pass has no end; give virtual_epoch_length, or max_steps to the trainer")
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: its place is in the state of the data module. Lightning asks whether it has one."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Nothing: its place is in the state of the data module."""

    def _count(self) -> int:
        """Batches that the trainer has worked off in all."""
        return self._trainer.fit_loop.epoch_loop.batch_progress.total.processed if self._trainer is not None else 0

    def _take_note(self) -> None:
        if self._trainer is None:
            return
        step = getattr(self._trainer.lightning_module, "training_step", None)
        if step is not None and "dataloader_iter" in inspect.signature(step).parameters:
            self._handed_on.use()  # the step draws as many batches as it needs, and none ahead
            return
        count = self._count()
        self._handed_on.use(count - self._worked_off)
        self._worked_off = count


class ValBatches:
    """What the trainer iterates in evaluation: all batches, from the first one in each pass.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        self.loader.rewind()
        return iter(self.loader)

    def __len__(self) -> int:
        """Batches of this rank. Raises TypeError where it cannot be known."""
        return len(self.loader)
