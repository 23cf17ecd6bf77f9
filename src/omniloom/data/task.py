"""`TaskEncoder`: what users override to say what a sample and a batch are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from omniloom.data.collate import batch_by_field, fields_of, generic_batch
from omniloom.data.media.decoder import SampleDecoder

T_sample = TypeVar("T_sample")
T_encoded_sample = TypeVar("T_encoded_sample")
T_raw_batch = TypeVar("T_raw_batch")
T_batch = TypeVar("T_batch")


class TaskEncoder(Generic[T_sample, T_encoded_sample, T_raw_batch, T_batch]):
    """The overridable steps from a sample to a batch, in the order in which they are called.

    Before each call of an overridden method, `random`, `numpy.random` and torch are seeded from the
    sample's key: the same sample is augmented alike on any rank and after any restart.

    Attributes:
        decoder: decodes the parts of samples; ``None`` leaves them bytes.
    """

    decoder: SampleDecoder | None = SampleDecoder()

    def encode_sample(self, sample: T_sample) -> Any:
        """The encoded sample. May be a generator function and give several, or raise `SkipSample`."""
        return sample

    def select_samples_to_pack(self, samples: list[Any]) -> list[list[Any]]:
        """Lists of samples that belong together, out of a window of them (with ``packing_buffer_size``)."""
        raise NotImplementedError("packing_buffer_size needs a task encoder with select_samples_to_pack")

    def postencode_sample(self, sample: Any) -> Any:
        """The sample as it goes into its pack or batch; called when its turn comes."""
        return sample

    def pack_selected_samples(self, samples: list[Any]) -> Any:
        """One value of the samples of a pack."""
        raise NotImplementedError("packing_buffer_size needs a task encoder with pack_selected_samples")

    def batch(self, samples: list[Any]) -> Any:
        """The batch of a list of encoded samples."""
        return self._batch(samples, type(samples[0]))

    def encode_batch(self, batch: Any) -> Any:
        """The batch as it goes to the caller."""
        return batch

    def overrides(self, name: str) -> bool:
        """Whether a user's class has a method of its own in place of the ready-made one."""
        method = getattr(type(self), name)
        return method not in (getattr(TaskEncoder, name), getattr(DefaultTaskEncoder, name))

    def _batch(
        self,
        samples: list[Any],
        result_type: Any,
        actions: dict[str, Callable[[list[Any]], Any]] | None = None,
        default_action: Callable[[list[Any]], Any] = generic_batch,
    ) -> Any:
        """A ``result_type`` of the samples: by its ``from_samples`` if it has one, else field by field."""
        if hasattr(result_type, "from_samples"):
            return result_type.from_samples(samples)
        if fields_of(samples[0]) is None:
            return generic_batch(samples)
        listed = dict.fromkeys(("__key__", "__restore_key__", "__subflavors__", "__sources__"), list)
        return batch_by_field(samples, result_type, {**listed, **(actions or {})}, default_action)


class DefaultTaskEncoder(TaskEncoder[Any, Any, Any, Any]):
    """A ready task encoder: samples pass as they are, or by equal field names into other types.

    Args:
        encoded_sample_type: type that each sample is made, or ``None``.
        raw_batch_type: type of the batch; ``None``: that of the samples, with fields stacked or listed.
        batch_type: type that each batch is made, or ``None``.
    """

    def __init__(self, *, encoded_sample_type: Any = None, raw_batch_type: Any = None, batch_type: Any = None) -> None:
        self._encoded_sample_type = encoded_sample_type
        self._raw_batch_type = raw_batch_type
        self._batch_type = batch_type

    def encode_sample(self, sample: Any) -> Any:
        """The sample, as the encoded sample type where one is given."""
        return _converted(sample, self._encoded_sample_type)

    def batch(self, samples: list[Any]) -> Any:
        """The batch of a list of samples."""
        return self._batch(samples, self._raw_batch_type or type(samples[0]))

    def encode_batch(self, batch: Any) -> Any:
        """The batch, as the batch type where one is given."""
        return _converted(batch, self._batch_type)

    @property
    def converts(self) -> tuple[bool, bool]:
        """Whether samples, and whether batches, are made another type."""
        return self._encoded_sample_type is not None, self._batch_type is not None


def _converted(value: Any, kind: Any) -> Any:
    if kind is None:
        return value
    names = fields_of(value) or []
    fields = {name: value[name] if isinstance(value, dict) else getattr(value, name) for name in names}
    if kind is dict:
        return fields
    known = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "_fields", fields)
    return kind(**{name: one for name, one in fields.items() if name in known})
