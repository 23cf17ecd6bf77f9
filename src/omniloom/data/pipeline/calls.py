"""Calls: what user code does with a value, one function after the other; generator functions give several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from omniloom.data.pipeline.faults import tolerance_of
from omniloom.data.pipeline.seeding import KeySeeds
from omniloom.data.sample import SampleKey
from omniloom.errors import FatalSampleError

Call = tuple[str, int, Callable[[Any], Any]]
"""Name of a call for messages, its number for seeds (0: it draws nothing), the function."""


class CallError(Exception):
    """A call failed: its name, and what it was given; the cause is the error's cause."""

    def __init__(self, call: str, value: Any) -> None:
        super().__init__(call)
        self.call = call
        self.value = value


def gives_many(calls: tuple[Call, ...]) -> bool:
    """Whether some call is a generator function."""
    return any(inspect.isgeneratorfunction(function) for _, _, function in calls)


def whole(value: Any, *, call: str) -> Any:
    """What a function gave that is no generator function.

    Raises:
        FatalSampleError: it is a generator, whose values would never be made.
    """
    if type(value) is GeneratorType:
        raise FatalSampleError(
            f"{call} gave a generator, and is no generator function: a decorator or another function hides that it "
            "gives several values. Write it with `yield` or `yield from` of its own.",
            reason="generator",
        )
    return value


def tolerances(calls: tuple[Call, ...]) -> dict[str, int | None]:
    """By name, the failures in a row that each call is allowed."""
    return {name: tolerance_of(function) for name, _, function in calls}


def results(calls: tuple[Call, ...], seeds: KeySeeds, key: SampleKey, value: Any, path: int = 0) -> Iterator[Any]:
    """What the calls make of a value: random numbers are seeded before each, by the key and the way to the value.

    Args:
        calls: the calls; generator functions among them.
        seeds: seeds of keys.
        key: key of the (first) sample of the value.
        value: what the first call is given.
        path: numbers, in base 1,000 or so, of the parts that led to the value.

    Raises:
        CallError: a call failed; also `SkipSample`, as the cause.
    """
    if not calls:
        yield value
        return
    (name, number, function), rest = calls[0], calls[1:]
    call = number + path * _STEP
    try:
        if number:
            seeds.plant(key, call)
        made = function(value)
    except Exception as error:
        raise CallError(name, value) from error
    if not inspect.isgeneratorfunction(function):
        yield from results(rest, seeds, key, whole(made, call=name), path)
        return
    parts = seeds.parts(key, call, made) if number else made
    for part in _guarded(parts, name, value):
        yield from results(rest, seeds, key, part[1], path * 1_000 + part[0] + 1)


_STEP = 1 << 20


def _guarded(parts: Iterator[Any], name: str, value: Any) -> Iterator[tuple[int, Any]]:
    """Parts with their numbers; what the generator raises comes as a `CallError`."""
    number = 0
    while True:
        try:
            part = next(parts)
        except StopIteration:
            return
        except Exception as error:
            raise CallError(name, value) from error
        yield number, part
        number += 1
