"""Ready criteria for grouping."""

from __future__ import annotations

import pytest

from omniloom.data.pipeline.buckets import AspectBuckets, LengthBuckets
from omniloom.errors import ConfigError, SkipSample


def test_a_length_belongs_to_the_first_bound_that_holds_it() -> None:
    buckets = LengthBuckets((64, 128, 512))
    assert [buckets(n) for n in (1, 64, 65, 128, 129, 512)] == [
        (64, None), (64, None), (128, None), (128, None), (512, None), (512, None),
    ]  # fmt: skip
    with pytest.raises(SkipSample, match="oversize"):
        buckets(513)


def test_batches_hold_as_many_as_their_tokens_allow() -> None:
    buckets = LengthBuckets((100, 256, 1_000), per_batch=1_024)
    assert [buckets(n)[1] for n in (10, 101, 1_000)] == [10, 4, 1]


def test_spaced_bounds_bound_the_padding() -> None:
    buckets = LengthBuckets.spaced(32, 4_096, ratio=1.25)
    assert (buckets.bounds[0], buckets.bounds[-1]) == (32, 4_096)
    for length in range(33, 4_097, 7):
        bound = buckets(length)[0]
        assert length <= bound <= 1.25 * length
    assert LengthBuckets.spaced(2, 4, ratio=1.01).bounds == (2, 3, 4)


def test_aspects_are_near_in_shape_and_equal_in_size() -> None:
    # The sizes that the public bucketing of NovelAI for 512 x 512 has are among these: 512 x 512, 384 x 640, 448 x 576.
    buckets = AspectBuckets.of(512 * 512, step=64, most_extreme=2.0)
    assert {(512, 512), (384, 640), (640, 384), (448, 576), (576, 448)} <= set(buckets.sizes)
    assert all(h % 64 == 0 and w % 64 == 0 and h * w <= 512 * 512 and max(h / w, w / h) <= 2 for h, w in buckets.sizes)
    assert buckets(480, 480) == ((512, 512), None)
    assert buckets(1_000, 1_666)[0] == (384, 640)
    assert buckets(3_000, 10)[0] == max(buckets.sizes, key=lambda size: size[0] / size[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LengthBuckets(()), r"bounds \[\] found"),
        (lambda: LengthBuckets((5, 5)), r"bounds \[5, 5\] found; ascending"),
        (lambda: LengthBuckets((5, 50), per_batch=40), "per_batch=40 does not hold a value of 50"),
        (lambda: LengthBuckets.spaced(9, 3), "9 to 3 by 1.25 found"),
        (lambda: AspectBuckets(()), r"sizes \[\] found"),
        (lambda: AspectBuckets.of(100, step=64), "no sides in steps of 64 make 100 pixels"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
