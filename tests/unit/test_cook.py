"""Cookers and marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omniloom.data.cook import Cooker, CookStep, basic_sample_keys, cooker, find_cooker
from omniloom.data.pipeline.faults import tolerance_of
from omniloom.data.sample import SourceInfo
from omniloom.data.stateless import get_failure_tolerance, get_stateless, stateless
from omniloom.data.task import TaskEncoder
from omniloom.errors import ConfigError


def plain(sample: Any) -> Any:
    return sample


@stateless(restore_seeds=True, failure_tolerance=7)
@cooker(need_primary=True)
def marked(sample: Any, primary: Any) -> Any:
    return sample["__key__"], primary


def test_marks_bare_and_with_arguments() -> None:
    @cooker
    @stateless
    def bare(sample: Any) -> Any:
        return sample

    assert (get_stateless(plain), get_stateless(bare), get_stateless(marked)) == (False, True, True)
    assert (get_failure_tolerance(plain), get_failure_tolerance(plain, 5), get_failure_tolerance(marked)) == (100, 5, 7)
    assert (Cooker(marked).need_primary, Cooker(marked).need_cache, Cooker(bare).need_primary) == (True, False, False)


def test_tolerance_of_a_class_a_step_and_off() -> None:
    class ClassWide(TaskEncoder[Any, Any, Any, Any]):
        __default_failure_tolerance__: int | None = 9

        def encode_sample(self, sample: Any) -> Any:
            return sample

        @stateless(failure_tolerance=0)
        def batch(self, samples: list[Any]) -> Any:
            return samples

    class Off(ClassWide):
        __default_failure_tolerance__ = None

    assert tolerance_of(ClassWide().encode_sample) == 9
    assert tolerance_of(ClassWide().batch) == 0
    assert tolerance_of(Off().encode_sample) == 0
    assert tolerance_of(TaskEncoder().encode_sample) is None
    assert tolerance_of(None) is None
    assert tolerance_of(CookStep(ClassWide().cook_crude_sample, Cooker(marked))) == 7
    assert tolerance_of(CookStep(ClassWide().cook_crude_sample, Cooker(plain))) == 9


def test_the_first_that_matches_is_taken() -> None:
    one, two, rest = Cooker(plain, {"kind": "a"}), Cooker(marked, {"kind": "a", "lang": "en"}), Cooker(plain)
    assert find_cooker([two, one, rest], {"kind": "a", "lang": "en"}, where="x") is two
    assert find_cooker([two, one, rest], {"kind": "a"}, where="x") is one
    assert find_cooker([two, one, rest], None, where="x") is rest
    assert find_cooker([], {"kind": "a"}, where="x") is None
    with pytest.raises(ConfigError, match=r"data: no cooker is for subflavors \{\}.*\n  marked: has_subflavors=.*'en'"):
        find_cooker([two], None, where="data")
    assert not Cooker(plain, {"kind": None}).is_match({})

    def many(sample: Any) -> Iterator[Any]:
        yield sample

    with pytest.raises(ConfigError, match="is a generator function; make several samples in encode_sample"):
        find_cooker([Cooker(many)], None, where="data")


def test_basic_keys() -> None:
    source = SourceInfo("data", 3, "s.tar", ("x.txt",))
    more = SourceInfo("images", "x", "images", ("x.jpg",))
    sample = {"__key__": "x", "__restore_key__": (0, 0, 3), "__shard__": "s.tar", "__sources__": (source,), "txt": "t"}
    assert basic_sample_keys(sample) == {"__key__": "x", "__restore_key__": (0, 0, 3), "__sources__": (source,)}
    assert basic_sample_keys(sample, (more,))["__sources__"] == (source, more)
    assert basic_sample_keys({"__key__": "x"}, (more,)) == {"__key__": "x", "__sources__": (more,)}
