"""Warnings of what is old, as Energon's modules give them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from omniloom.errors import SkipSample

T_function = TypeVar("T_function", bound=Callable[..., Any])


def warn_deprecated(reason: str, stacklevel: int = 2) -> None:
    """Warn with a ``FutureWarning``.

    Args:
        reason: what is old, and what to use instead.
        stacklevel: whose line is shown.
    """
    warnings.warn(reason, FutureWarning, stacklevel=stacklevel + 1)


def deprecated(reason: str) -> Callable[[T_function], T_function]:
    """A decorator: each call of the function warns.

    Args:
        reason: what to use instead.
    """

    def decorate(function: T_function) -> T_function:
        @functools.wraps(function)
        def warned(*arguments: Any, **keywords: Any) -> Any:
            warn_deprecated(f"{function.__qualname__} is deprecated: {reason}")
            return function(*arguments, **keywords)

        return warned  # type: ignore[return-value]

    return decorate


class OldSkipSample(SkipSample):
    """`SkipSample` as ``megatron.energon.wrappers`` has it; it warns."""

    def __init__(self, *arguments: Any) -> None:
        warn_deprecated("megatron.energon.wrappers.SkipSample is deprecated: use megatron.energon.SkipSample")
        super().__init__(*arguments)
