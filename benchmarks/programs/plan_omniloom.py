"""The plan alone: keys a second of one leaf and of a blend, and the start of a blend over ten billion rows."""

import resource
import time

from meter import arguments, report, throughput

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan

options = arguments("leaves", "rows", "window_seconds")
shuffle = Shuffle.from_energon(
    shuffle_buffer_size=1_000, max_samples_per_sequence=100, parallel_shard_iters=None, shuffle_over_epochs_multiplier=1
)
before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
leaves = tuple(
    Leaf(f"leaf-{number:03d}", options.rows // options.leaves, 1.0 + number % 7) for number in range(options.leaves)
)
stream = Plan(leaves, shuffle=shuffle).open(Lane(0, 96))
next(stream)
start_seconds = time.perf_counter() - started
figures = throughput(stream, size=lambda _: 1, warm_up_batches=10_000, window_seconds=options.window_seconds)
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report(
    keys_per_second=figures["samples_per_second"],
    start_seconds=start_seconds,
    peak_rss_mb=peak_kib * 1_024 / 1e6,
    rss_before_mb=before_kib * 1_024 / 1e6,
)
