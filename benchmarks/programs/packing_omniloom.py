"""Packs and groups of text records through omniloom: by Energon's user code, or the built-in packer."""

from typing import Any

from greedy import CAPACITY, greedy_packs, group_of, length_of
from meter import arguments, report, throughput

from omniloom import BestFitPacker, TaskEncoder, WorkerConfig, get_loader, get_train_dataset

options = arguments("data", "mode", "workers", "buffer", "batch_size", "warm_up_batches", "window_seconds")


class Packed(TaskEncoder[Any, Any, Any, Any]):
    """Packs by the built-in packer."""

    packer = BestFitPacker(CAPACITY)

    def packing_cost(self, sample: Any) -> int:
        """The sample's length."""
        return length_of(sample)

    def pack_selected_samples(self, samples: list[Any]) -> Any:
        """A list of texts."""
        return [sample.text for sample in samples]


class PackedByUserCode(Packed):
    """Packs by the code that the other side has as well."""

    packer = None

    def select_samples_to_pack(self, samples: list[Any]) -> Any:  # type: ignore[override]
        """The packs of a window."""
        return greedy_packs(samples)


class Grouped(TaskEncoder[Any, Any, Any, Any]):
    """Batches of texts of like lengths."""

    def batch_group_criterion(self, sample: Any) -> Any:
        """The group."""
        return group_of(sample), None

    def batch(self, samples: list[Any]) -> Any:
        """A list of texts."""
        return [sample.text for sample in samples]


encoders = {"built-in packer": Packed, "packing": PackedByUserCode, "grouping": Grouped}
packs = options.mode != "grouping"
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=None if packs else options.batch_size,
    packing_buffer_size=options.buffer if packs else None,
    shuffle_buffer_size=1_000,
    max_samples_per_sequence=100,
    task_encoder=encoders[options.mode](),
)
given, used = [0], [0]


def size(value: list[str]) -> int:
    """Samples of a pack or batch; how full it is is noted."""
    given[0] += 1
    used[0] += sum(map(len, value))
    return len(value)


figures = throughput(
    iter(get_loader(dataset)),
    size=size,
    warm_up_batches=options.warm_up_batches,
    window_seconds=options.window_seconds,
)
report(**figures, fill=used[0] / given[0] / CAPACITY)
