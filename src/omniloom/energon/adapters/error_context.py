"""`ErrorContext` and its kin: what code around user functions does with their errors, for those who write such code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from omniloom.data.pipeline.faults import DEFAULT_IN_A_ROW, PROGRAM_FAULTS
from omniloom.data.side.store import get_source_info
from omniloom.errors import FatalSampleError, SkipSample

Handler = Callable[[Exception, Any, Any], None]


class ErrorContext:
    """Counts failures in a row, tells a handler of each, and ends the run at too many.

    Args:
        name: what is done, for messages.
        handler: called with the error, the sample and its sources; ``None``: nobody is told.
        tolerance: so many failures in a row are too many; 0: no number is.
    """

    def __init__(self, name: str, handler: Handler | None, tolerance: int = DEFAULT_IN_A_ROW) -> None:
        self.name = name
        self.handler = handler
        self.tolerance = tolerance
        self._in_a_row = 0

    def __repr__(self) -> str:
        return f"ErrorContext(name={self.name!r}, tolerance={self.tolerance}, count={self._in_a_row})"

    def reset(self) -> None:
        """Forget the failures."""
        self._in_a_row = 0

    @contextmanager
    def handle_errors(self, sample: Any) -> Iterator[None]:
        """What is done within may fail, or skip the sample.

        Raises:
            FatalSampleError: the program is at fault, or there were too many failures.
        """
        try:
            yield
            self._in_a_row = 0
        except SkipSample:
            return
        except PROGRAM_FAULTS as error:
            raise FatalSampleError.from_sample(sample, f"{self.name}: the program is at fault: {error}") from error
        except Exception as error:
            if self.handler is not None:
                self.handler(error, sample, get_source_info(sample))
            self._in_a_row += 1
            if 0 < self.tolerance <= self._in_a_row:
                raise FatalSampleError.from_sample(
                    sample, f"{self.name} failed {self._in_a_row} times in a row"
                ) from error


@contextmanager
def handle_restore_errors(error_handler: Handler, sample: Any) -> Iterator[None]:
    """What is done within makes a sample again: the handler is told of what fails, and of one that is skipped.

    Args:
        error_handler: called with the error, the sample and its sources.
        sample: what is made again.

    Raises:
        FatalSampleError: the program is at fault.
    """
    try:
        yield
    except SkipSample as skip:
        error = ValueError(f"{sample!r:.100} was skipped while it was made again")
        error.__cause__ = skip
        error_handler(error, sample, get_source_info(sample))
    except PROGRAM_FAULTS as fault:
        raise FatalSampleError.from_sample(sample, f"the program is at fault: {fault}") from fault
    except Exception as error:
        error_handler(error, sample, get_source_info(sample))


def legacy_handler(handler: Callable[..., None]) -> Handler:
    """A handler of an error, a sample and its sources, of one that may take the first two only."""
    if len(signature(handler).parameters) == 3:
        return handler
    return lambda error, sample, _sources: handler(error, sample)


def add_sample_restore_key(sample: Any, *key: int | str, src: Any, fail_otherwise: bool = False) -> Any:
    """Put a class and numbers before the restore key of a sample. Gives the sample.

    Args:
        sample: a sample, or a dict that has a restore key; another is left alone.
        key: the numbers.
        src: of which the class is named.
        fail_otherwise: a sample without a restore key is an error.
    """
    return _with_key(sample, lambda before: (type(src).__name__, *key, *before), fail_otherwise=fail_otherwise)


def set_sample_restore_key(sample: Any, *key: int | str, src: Any, fail_otherwise: bool = False) -> Any:
    """Put a class and numbers in place of the restore key of a sample. Arguments as for `add_sample_restore_key`."""
    return _with_key(sample, lambda _: (type(src).__name__, *key), fail_otherwise=fail_otherwise)


def _with_key(sample: Any, changed: Callable[[Any], Any], *, fail_otherwise: bool) -> Any:
    if isinstance(sample, dict) and "__restore_key__" in sample:
        sample["__restore_key__"] = changed(sample["__restore_key__"])
    elif hasattr(sample, "__restore_key__"):
        sample.__restore_key__ = changed(sample.__restore_key__)
    elif fail_otherwise:
        raise RuntimeError(f"a {type(sample).__name__} has no restore key, and so cannot be made again")
    return sample
