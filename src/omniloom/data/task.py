"""`TaskEncoder`: what users override to say what a sample and a batch are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MethodType
from typing import Any, Generic, TypeVar

from omniloom.data import stages
from omniloom.data.collate import batch_by_field, concat_samples, fields_of, generic_batch
from omniloom.data.cook import Cooker
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.pipeline import running
from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.selection import Selection
from omniloom.errors import ConfigError, DatasetError, SampleError

T_sample = TypeVar("T_sample")
T_encoded_sample = TypeVar("T_encoded_sample")
T_raw_batch = TypeVar("T_raw_batch")
T_batch = TypeVar("T_batch")

STEPS = (
    "cook_crude_sample",
    "preencode_sample",
    "encode_sample",
    "select_samples_to_pack",
    "postencode_sample",
    "pack_selected_samples",
    "batch_group_criterion",
    "batch",
    "encode_batch",
)
"""The overridable steps, in the order of the pipeline."""


class TaskEncoder(Generic[T_sample, T_encoded_sample, T_raw_batch, T_batch]):
    """The overridable steps from a sample to a batch, in the order in which they are called.

    Before each call of an overridden method, `random`, `numpy.random` and torch are seeded from the
    sample's key: the same sample is augmented alike on any rank and after any restart.

    Attributes:
        decoder: decodes the parts of samples; ``None`` leaves them bytes.
        cookers: make samples of the dicts that crude data sets give; the first that matches a data set is its own.
            Without any, the dicts go on as they are.
        packer: chooses packs where ``select_samples_to_pack`` is not overridden.
        group_buffer_size: values of a rank that wait in groups at most, shared by its lanes; then the group of the
            oldest becomes a batch as it is. ``None``: any number.
        late_tensors: where no step is overridden, workers give arrays, of which the caller's process makes tensors.
    """

    decoder: SampleDecoder | None = SampleDecoder()
    cookers: Sequence[Cooker[Any]] = ()
    packer: BestFitPacker | None = None
    group_buffer_size: int | None = None
    late_tensors: bool = True

    def cook_crude_sample(self, sample: Any, cooker: Cooker[T_sample], aux: dict[str, Any]) -> T_sample:
        """The sample of a crude one, by its data set's cooker.

        Args:
            sample: the crude sample.
            cooker: the cooker.
            aux: what it is called with, by name: the stores, and ``primary`` and ``cache`` where it needs them.
        """
        return cooker.cook(sample, **aux)

    def preencode_sample(self, sample: T_sample) -> Any:
        """In place of ``encode_sample``, with ``postencode_sample``: what packs are chosen by, without pixels."""
        return sample

    def encode_sample(self, sample: T_sample) -> Any:
        """The encoded sample. May be a generator function and give several, or raise `SkipSample`."""
        return sample

    def packing_cost(self, sample: Any) -> int | Mapping[str, int]:
        """What a sample takes of each capacity of `packer`, or just of the first one.

        Ready-made: the sample's fields of those names; a number, or something with a length.
        """
        names = self.packer.names if self.packer is not None else ("tokens",)
        costs = {name: _amount(sample, name) for name in names}
        found = {name: amount for name, amount in costs.items() if amount is not None}
        if names[0] not in found:
            raise DatasetError(
                f"a {type(sample).__name__} has no field {names[0]!r} to measure it by; override packing_cost"
            )
        return found

    def select_samples_to_pack(self, samples: list[Any], *, last: bool = False) -> list[list[Any]] | Selection:
        """Lists of samples that belong together, out of a window of them (with ``packing_buffer_size``).

        What is in no list is left out and counted; a `Selection` says more: also which samples wait for the next
        window. Ready-made: what `packer` says. An override needs no ``last``.

        Args:
            samples: the window; those that waited come first.
            last: nothing more will come to pack them with.
        """
        if self.packer is None:
            raise NotImplementedError("packing_buffer_size needs a packer, or select_samples_to_pack")
        return self.packer.select(samples, [self._cost_or_error(sample) for sample in samples], last=last)

    def postencode_sample(self, sample: Any) -> Any:
        """The sample as it goes into its pack or batch; called when its turn comes."""
        return sample

    def pack_selected_samples(self, samples: list[Any]) -> Any:
        """One value of the samples of a pack. May be a generator function and give several.

        Ready-made, with a `packer`: a dict of their fields, concatenated, see `concat_samples`.
        """
        return concat_samples(samples, [self.token_count(sample) for sample in samples])

    def batch_group_criterion(self, sample: Any) -> tuple[Hashable, int | None]:
        """The group of a sample or pack, and the size of that group's batches where ``batch_size`` is ``None``.

        Overridden, it makes batches of values of one group only.
        """
        return None, None

    def batch(self, samples: list[Any]) -> Any:
        """The batch of a list of encoded samples. May be a generator function, but not with groups."""
        return self._batch(samples, type(samples[0]))

    def encode_batch(self, batch: Any) -> Any:
        """The batch as it goes to the caller. May be a generator function, but not with groups."""
        return batch

    def build_encode_sample(self, dataset: Make, *, worker_config: Any) -> Any:
        """The stage of encoded samples, over that of samples. Override it to put stages of your own in between.

        Args:
            dataset: the stage that makes samples of keys.
            worker_config: rank, world and workers.
        """
        return stages.encoded(self, dataset)

    def build_batch(
        self,
        dataset: Any,
        *,
        batch_size: int | None,
        batch_drop_last: bool = False,
        packing_buffer_size: int | None = None,
        group_buffer_size: int | None = None,
        worker_config: Any,
    ) -> Any:
        """The pipeline, over the stage of encoded samples: packs, groups, batches. Override it to add stages.

        Args:
            dataset: the stage of encoded samples.
            batch_size: values in a batch; ``None``: they come one by one, or the groups say how many.
            batch_drop_last: leave out a batch that is not full.
            packing_buffer_size: samples among which packs are chosen in a lane.
            group_buffer_size: values of a lane that wait in groups at most.
            worker_config: rank, world and workers.
        """
        source = stages.packed(self, dataset, window_samples=packing_buffer_size)
        return stages.batched(
            self, source, batch_size=batch_size, drop_last=batch_drop_last, most_waiting=group_buffer_size
        )

    @property
    def current_batch_index(self) -> int:
        """Number of the micro-batch in the whole job that is being made: the same on any number of workers and ranks.

        Raises:
            StateError: no loader is making a batch.
        """
        return running.current_batch_index()

    @property
    def current_sample_index(self) -> int:
        """A number that belongs to the sample in hand for ever: ``epoch * rows + row`` in its data set.

        It does not count what came before, as Energon's does: so a sample that is made again has it again. Of a pack
        or a batch it is that of the first sample.
        """
        return running.current_sample_index()

    @property
    def cache(self) -> Any:
        """The cache pool of the running loader; without one, a pool that keeps nothing."""
        return running.current_cache()

    def token_count(self, sample: Any) -> int:
        """Length of an encoded sample, where weights or schedules of the mix count tokens.

        Ready-made: its cost in the first capacity of `packer`, or the length of its field ``tokens``.
        """
        cost = self.packing_cost(sample)
        return cost if isinstance(cost, int) else next(iter(cost.values()))

    def overrides(self, name: str) -> bool:
        """Whether a user's class has a method of its own in place of the ready-made one."""
        method = getattr(type(self), name)
        return method not in (getattr(TaskEncoder, name), getattr(DefaultTaskEncoder, name))

    def step(self, name: str) -> Callable[..., Any]:
        """The function that does a step."""
        method: Callable[..., Any] = getattr(self, name)
        return method

    def converts(self, name: str) -> bool:
        """Whether there is something to do in a step, overridden or ready-made."""
        return self.overrides(name)

    def check(self, *, packing: bool) -> None:
        """Raise ConfigError where steps do not go together.

        Args:
            packing: samples are packed.
        """
        if self.overrides("encode_sample") and self.overrides("preencode_sample"):
            raise ConfigError(
                f"{type(self).__name__} has both encode_sample and preencode_sample; have encode_sample, or "
                "preencode_sample and postencode_sample"
            )
        if not packing:
            return
        names = () if self.packer is not None else ("select_samples_to_pack", "pack_selected_samples")
        missing = [name for name in names if not self.overrides(name)]
        if missing:
            raise ConfigError(
                f"packing_buffer_size needs a task encoder that says how to pack: {type(self).__name__} has no "
                f"{' and no '.join(missing)}" + (" (nor a `packer`)" if "select_samples_to_pack" in missing else "")
            )

    def _cost_or_error(self, sample: Any) -> int | Mapping[str, int] | Exception:
        try:
            return self.packing_cost(sample)
        except Exception as error:
            return error

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

    def converts(self, name: str) -> bool:
        """Whether there is something to do in a step, overridden or by a type that was given."""
        types = {"encode_sample": self._encoded_sample_type, "encode_batch": self._batch_type}
        return self.overrides(name) or types.get(name) is not None


class AugmentTaskEncoder(TaskEncoder[Any, Any, Any, Any]):
    """Another task encoder with some steps changed: derive from it, and override those.

    All other steps, the cookers, the decoder and the packer are the other one's. An overridden step calls
    ``super()`` for what the other one does.

    Args:
        task_encoder: the other one.
    """

    def __init__(self, task_encoder: TaskEncoder[Any, Any, Any, Any]) -> None:
        self._task_encoder = task_encoder

    def overrides(self, name: str) -> bool:
        """Whether this class or the other task encoder has a method of its own in place of the ready-made one."""
        return name in _own_names(type(self)) or self._task_encoder.overrides(name)

    def step(self, name: str) -> Callable[..., Any]:
        """The function that does a step: the other task encoder's where this class has none, generators included."""
        own = _own_names(type(self))
        if name in own:
            method: Callable[..., Any] = getattr(self, name)
            return method
        if name == "select_samples_to_pack" and own & {"packer", "packing_cost"} and not self.overrides(name):
            return MethodType(TaskEncoder.select_samples_to_pack, self)
        return self._task_encoder.step(name)

    def converts(self, name: str) -> bool:
        """Whether there is something to do in a step."""
        return name in _own_names(type(self)) or self._task_encoder.converts(name)


class _Forwarded:
    """An attribute that is the other task encoder's, unless a class or an object has one of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: AugmentTaskEncoder | None, owner: type) -> Any:
        return self if instance is None else getattr(instance._task_encoder, self._name)


for _name in (
    *STEPS,
    "packing_cost",
    "token_count",
    "decoder",
    "cookers",
    "packer",
    "group_buffer_size",
    "late_tensors",
):
    setattr(AugmentTaskEncoder, _name, _Forwarded(_name))


def _own_names(kind: type) -> set[str]:
    """What classes below `AugmentTaskEncoder` define."""
    below = kind.__mro__[: kind.__mro__.index(AugmentTaskEncoder)]
    return {name for one in below for name in vars(one)}


def _amount(sample: Any, name: str) -> int | None:
    """How much of a capacity a sample's field of that name takes: a number, or the length of what it holds."""
    value = sample.get(name) if isinstance(sample, dict) else getattr(sample, name, None)
    if value is None or isinstance(value, int):
        return value
    try:
        return len(value)
    except TypeError:
        raise SampleError(
            f"field {name!r} is a {type(value).__name__}; a number or a length expected", reason="cost"
        ) from None


def _converted(value: Any, kind: Any) -> Any:
    if kind is None:
        return value
    names = fields_of(value) or []
    fields = {name: value[name] if isinstance(value, dict) else getattr(value, name) for name in names}
    if kind is dict:
        return fields
    known = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "_fields", fields)
    return kind(**{name: one for name, one in fields.items() if name in known})
