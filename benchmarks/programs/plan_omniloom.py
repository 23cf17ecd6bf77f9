"""The plan alone: keys a second of leaves in one of the modes of a mix, and the start over ten billion rows."""

import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from meter import arguments, report, throughput

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.plan.weights import Curve, Share


def planned(leaves: tuple[Leaf, ...], mode: str) -> Plan:
    """A plan of leaves under fixed weights, in epochs of two and a half passes, by a schedule or by tokens."""
    if mode == "epochs":
        passes = Fraction(5, 2)
        ending = (replace(leaf, weight=float(leaf.rows * passes), passes=passes) for leaf in leaves)
        return Plan(tuple(ending), shuffle=shuffle, repeat=True)
    if mode == "schedule":
        curves = tuple(Curve(((0, leaf.weight), (10_000_000, 8.0 - leaf.weight))) for leaf in leaves)
        moving = (replace(leaf, shares=((Share(c, curves),),)) for leaf, c in zip(leaves, curves, strict=True))
        return Plan(tuple(moving), shuffle=shuffle)
    return Plan(leaves, shuffle=shuffle, weights_in="tokens" if mode == "tokens" else "samples")


def told(keys: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Keys whose lengths are reported, as the work does."""
    for key in keys:
        keys.tell(key[0], 100 + key[2] % 50)
        yield key


options = arguments("leaves", "rows", "mode", "window_seconds")
shuffle = Shuffle.from_energon(
    shuffle_buffer_size=1_000, max_samples_per_sequence=100, parallel_shard_iters=None, shuffle_over_epochs_multiplier=1
)
before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
leaves = tuple(
    Leaf(f"leaf-{number:03d}", options.rows // options.leaves, 1.0 + number % 7) for number in range(options.leaves)
)
stream = planned(leaves, options.mode).open(Lane(0, 96))
stream = told(stream) if options.mode == "tokens" else stream
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
