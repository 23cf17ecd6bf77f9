"""Packs and groups of text records through Energon, with the user code that omniloom is given."""

from typing import Any

from greedy import CAPACITY, greedy_packs, group_of
from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless
from meter import arguments, report, throughput

options = arguments("data", "mode", "workers", "buffer", "batch_size", "warm_up_batches", "window_seconds")


class Packed(DefaultTaskEncoder):
    """Packs by user code."""

    def select_samples_to_pack(self, samples: list[Any]) -> Any:
        """The packs of a buffer."""
        return greedy_packs(samples)

    @stateless
    def pack_selected_samples(self, samples: list[Any]) -> Any:
        """A list of texts."""
        return [sample.text for sample in samples]


class Grouped(DefaultTaskEncoder):
    """Batches of texts of like lengths."""

    @stateless
    def batch_group_criterion(self, sample: Any) -> Any:
        """The group."""
        return group_of(sample), None

    @stateless
    def batch(self, samples: list[Any]) -> Any:
        """A list of texts."""
        return [sample.text for sample in samples]


packs = options.mode != "grouping"
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=None if packs else options.batch_size,
    packing_buffer_size=options.buffer if packs else None,
    shuffle_buffer_size=1_000,
    max_samples_per_sequence=100,
    task_encoder=(Packed if packs else Grouped)(),
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
