"""Task encoders and decoder with Energon's default: images are float tensors from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from omniloom.data.collate import fields_of
from omniloom.data.loader.dataset import Dataset
from omniloom.data.media import decoder as decoders
from omniloom.data.task import AugmentTaskEncoder as OmniloomAugmentTaskEncoder
from omniloom.data.task import DefaultTaskEncoder as OmniloomDefaultTaskEncoder
from omniloom.data.task import TaskEncoder as OmniloomTaskEncoder
from omniloom.energon.adapters import building
from omniloom.energon.adapters.collating import generic_batch
from omniloom.energon.adapters.savable import SavableDataset

T_sample = TypeVar("T_sample")
T_encoded_sample = TypeVar("T_encoded_sample")
T_raw_batch = TypeVar("T_raw_batch")
T_batch = TypeVar("T_batch")


class DecodedText(str):
    """Text of a crude sample or of a store, which may be decoded once more, as cookers of Energon's pages do."""

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text that its bytes in the data set stand for: by default the same."""
        return self.encode().decode(encoding, errors)


@dataclass(frozen=True)
class SampleDecoder(decoders.SampleDecoder):
    """Decodes the parts of a sample, images to ``torchrgb`` where nothing else is asked for."""

    image_decode: str = "torchrgb"

    def decode(self, fname: str, raw: bytes) -> Any:
        """The value of a part, by its file name; a text is a `DecodedText`."""
        return _decodable(super().decode(fname, raw))

    def later(self, fname: str, raw: bytes) -> Any:
        """As `decode`, but media may wait until they are looked at."""
        return _decodable(super().later(fname, raw))


class TaskEncoder(OmniloomTaskEncoder[T_sample, T_encoded_sample, T_raw_batch, T_batch]):
    """`omniloom.TaskEncoder`, with Energon's decoder, and its methods that put data sets together."""

    decoder: decoders.SampleDecoder | None = SampleDecoder()
    late_tensors = False
    _ranks = 1

    @property
    def current_batch_index(self) -> int:
        """Number of the batch that is being made, counted on each rank by itself.

        Raises:
            StateError: no loader is making a batch.
        """
        return super().current_batch_index // self._ranks

    def count_by_rank(self, ranks: int) -> None:
        """Say how many ranks share the batches of the job; to a task encoder within this one as well."""
        encoder: Any = self
        while isinstance(encoder, TaskEncoder):
            object.__setattr__(encoder, "_ranks", ranks)  # of a user's class, which may be frozen
            encoder = getattr(encoder, "_task_encoder", None)

    def _batch(
        self,
        samples: list[Any],
        result_type: Any,
        actions: dict[str, Callable[[list[Any]], Any]] | None = None,
        default_action: Callable[[list[Any]], Any] = generic_batch,
    ) -> Any:
        if fields_of(samples[0]) is None and not hasattr(result_type, "from_samples"):
            return generic_batch(samples)
        return super()._batch(samples, result_type, actions, default_action)

    def build_cook_crude_sample(
        self,
        dataset: Dataset,
        *,
        worker_config: Any,
        subflavors: Mapping[str, Any] | None,
        get_primary_aux: Callable[[], Any],
        aux: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """The samples that a cooker makes of a crude data set. Override it to put functions in between.

        Args:
            dataset: the crude samples of one data set of a mix.
            worker_config: rank, world and workers.
            subflavors: what is said of them, by which the cooker is chosen.
            get_primary_aux: gives the data set itself as a store.
            aux: its stores by name.
        """
        return building.cooked(self, dataset, subflavors=subflavors, primary=get_primary_aux, aux=aux or {})

    def build_encode_sample(self, dataset: Any, *, worker_config: Any) -> Any:
        """Encoded samples, of a data set or of a stage of the pipeline."""
        if isinstance(dataset, Dataset | SavableDataset):
            return building.encoded(self, dataset)
        return super().build_encode_sample(dataset, worker_config=worker_config)

    def build_batch(
        self,
        dataset: Any,
        *,
        batch_size: int | None,
        batch_drop_last: bool = False,
        packing_buffer_size: int | None = None,
        group_buffer_size: int | None = None,
        worker_config: Any = None,
    ) -> Any:
        """Packs, groups or batches, of a data set or of a stage of the pipeline; see `omniloom.TaskEncoder`."""
        batching = {
            "batch_size": batch_size,
            "batch_drop_last": batch_drop_last,
            "packing_buffer_size": packing_buffer_size,
        }
        if isinstance(dataset, Dataset | SavableDataset):
            return building.batched(self, dataset, **batching)  # type: ignore[arg-type]
        return super().build_batch(
            dataset,
            group_buffer_size=group_buffer_size,
            worker_config=worker_config,
            **batching,  # type: ignore[arg-type]
        )

    def build_train_datasets(
        self,
        *,
        datasets: Sequence[Any],
        worker_config: Any,
        batch_size: int | None,
        batch_drop_last: bool = False,
        packing_buffer_size: int | None = None,
        virtual_epoch_length: int = 0,
        shuffle_buffer_size: int | None = None,
        blend_mode: Any = "none",
        repeat: bool = True,
    ) -> Dataset:
        """One data set for training of the data sets of a mix. Override it to blend them in another way.

        Args:
            datasets: the data sets: each has ``dataset``, whose ``build`` gives its samples, ``weight`` and
                ``repetitions``, and unpacks to its data set and weight.
            worker_config: rank, world and workers.
            batch_size: as for `get_train_dataset`, and so the others.
            batch_drop_last: likewise.
            packing_buffer_size: that of a worker.
            virtual_epoch_length: likewise.
            shuffle_buffer_size: likewise.
            blend_mode: whether weights or repetitions count.
            repeat: go on for ever.
        """
        return building.training_of(
            self,
            datasets,
            blend_mode=blend_mode,
            shuffle_buffer_size=shuffle_buffer_size,
            virtual_epoch_length=virtual_epoch_length,
            repeat=repeat,
            batch_size=batch_size,
            batch_drop_last=batch_drop_last,
            packing_buffer_size=packing_buffer_size,
            worker_config=worker_config,
        )

    def build_val_datasets(
        self,
        *,
        datasets: Sequence[Any],
        worker_config: Any,
        batch_size: int | None,
        batch_drop_last: bool = False,
        packing_buffer_size: int | None = None,
        limit: int | None = None,
    ) -> Dataset:
        """One data set for evaluation of the data sets of a mix. Arguments as for `build_train_datasets`."""
        return building.evaluation_of(
            self,
            datasets,
            limit=limit,
            batch_size=batch_size,
            batch_drop_last=batch_drop_last,
            packing_buffer_size=packing_buffer_size,
            worker_config=worker_config,
        )

    @classmethod
    def builds(cls, name: str) -> bool:
        """Whether a class has a ``build_`` method of its own."""
        return getattr(cls, name) is not getattr(TaskEncoder, name)


class OnlyCooks(TaskEncoder[Any, Any, Any, Any]):
    """The cookers of another task encoder, and nothing else of it: what a factory builds is cooked, not encoded.

    Args:
        encoder: the other one; ``None``: there are no cookers.
    """

    def __init__(self, encoder: Any = None) -> None:
        self._encoder = encoder
        self.cookers = getattr(encoder, "cookers", ())
        self.decoder = getattr(encoder, "decoder", None) if self.cookers else None

    def cook_crude_sample(self, sample: Any, *arguments: Any, **keywords: Any) -> Any:
        """What the other one's cook makes of a crude sample."""
        return self._encoder.cook_crude_sample(sample, *arguments, **keywords)


def cooks_itself(encoder: Any) -> bool:
    """Whether a task encoder puts cooked data sets together in a way of its own."""
    return isinstance(encoder, TaskEncoder) and encoder.builds("build_cook_crude_sample")


def cooked_by(factory: Any, dataset: Dataset) -> Any:
    """What the own ``build_cook_crude_sample`` of a factory's task encoder makes of its crude samples."""
    return factory.encoder.build_cook_crude_sample(
        dataset,
        worker_config=factory.worker_config,
        subflavors=dict(factory.subflavors or {}),
        get_primary_aux=factory.as_file_store,
        aux=dict(factory.aux) or None,
    )


class DefaultTaskEncoder(TaskEncoder[Any, Any, Any, Any], OmniloomDefaultTaskEncoder):
    """`omniloom.DefaultTaskEncoder`, with Energon's decoder."""

    def __class_getitem__(cls, _types: Any) -> Any:
        return cls


class AugmentTaskEncoder(OmniloomAugmentTaskEncoder, TaskEncoder[Any, Any, Any, Any]):
    """`omniloom.AugmentTaskEncoder`, which hands on every step, not only the three that Energon's does."""

    def __class_getitem__(cls, _types: Any) -> Any:
        return cls


def _decodable(value: Any) -> Any:
    return DecodedText(value) if type(value) is str else value


__all__ = ["AugmentTaskEncoder", "DefaultTaskEncoder", "SampleDecoder", "TaskEncoder"]
