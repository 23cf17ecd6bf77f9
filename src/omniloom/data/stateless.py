"""`stateless`: marks that users put on their functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from omniloom.data.pipeline.faults import DEFAULT_IN_A_ROW, tolerance_of

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def stateless(fn: Function, *, restore_seeds: bool = ..., failure_tolerance: int | None = ...) -> Function: ...
@overload
def stateless(
    fn: None = None, *, restore_seeds: bool = ..., failure_tolerance: int | None = ...
) -> Callable[[Function], Function]: ...
def stateless(
    fn: Function | None = None, *, restore_seeds: bool = False, failure_tolerance: int | None = None
) -> Function | Callable[[Function], Function]:
    """Mark a function as one whose result hangs on its arguments and on seeded random numbers alone.

    Here every step of a task encoder has to be so, marked or not: samples are made again from their keys. And random
    numbers are seeded by the sample's key before each step, so that ``restore_seeds`` asks for what is done anyway.

    Args:
        fn: the function; left out where the mark has arguments.
        restore_seeds: accepted for Energon's sake.
        failure_tolerance: so many failures of this step in a row, with no success between them, end the run; 0: no
            number does. ``None``: as the fault policy says.
    """

    def mark(function: Function) -> Function:
        function.__stateless__ = True  # type: ignore[attr-defined]
        if failure_tolerance is not None:
            function.__failure_tolerance__ = failure_tolerance  # type: ignore[attr-defined]
        return function

    return mark if fn is None else mark(fn)


def get_stateless(fn: Callable[..., Any]) -> bool:
    """Whether a function is marked."""
    return bool(getattr(fn, "__stateless__", False))


def get_failure_tolerance(fn: Callable[..., Any], default: int | None = None) -> int:
    """Failures in a row that a function is allowed; 0: any number."""
    said = tolerance_of(fn)
    if said is not None:
        return said
    return DEFAULT_IN_A_ROW if default is None else default
