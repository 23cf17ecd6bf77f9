"""What becomes of a sample that cannot be read, decoded or encoded: raised, skipped or quarantined; always counted."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omniloom.data.sample import SampleKey
from omniloom.errors import ConfigError, FatalSampleError, SampleError, ShardError, StoreAwayError

logger = logging.getLogger("omniloom")

DEFAULT_IN_A_ROW = 100
"""Energon's tolerance: this many failures with no success between them end the run."""

PROGRAM_FAULTS: tuple[type[BaseException], ...] = (
    SystemError,
    SyntaxError,
    ImportError,
    StopIteration,
    StopAsyncIteration,
    MemoryError,
    ReferenceError,
    NameError,
    FatalSampleError,
)
"""The program is at fault, not the sample: never skipped. (A `RecursionError` can be the sample's doing.)"""


@dataclass(frozen=True)
class FaultPolicy:
    """What becomes of samples that cannot be used.

    Attributes:
        action: ``raise`` the first one, ``skip`` and count them, or ``quarantine``: skip, and write
            each to a JSONL file with its key, place and cause.
        in_a_row: so many without a success between them in a lane end the run; 0 for no limit.
        share: largest share of a lane's samples that may fail (looked at after the first 100); ``None`` for no limit.
        quarantine_path: the JSONL file. Processes append whole lines to it.
        handler: called as ``handler(error, sample, sources)`` for each, as Energon does; what it raises goes to
            the caller.
    """

    action: Literal["raise", "skip", "quarantine"] = "skip"
    in_a_row: int = DEFAULT_IN_A_ROW
    share: float | None = None
    quarantine_path: str | None = None
    handler: Callable[[Exception, Any, Any], None] | None = None

    def __post_init__(self) -> None:
        if self.action not in ("raise", "skip", "quarantine"):
            raise ConfigError(f"fault action {self.action!r} found; 'raise', 'skip' or 'quarantine' expected")
        if (self.action == "quarantine") != (self.quarantine_path is not None):
            raise ConfigError("`quarantine_path` goes with the fault action 'quarantine', and only with it")
        if self.in_a_row < 0 or (self.share is not None and not 0 <= self.share <= 1):
            raise ConfigError(
                f"fault policy: in_a_row={self.in_a_row}, share={self.share} found; at least 0, and a share from 0 to "
                "1 or None expected"
            )


@dataclass(frozen=True)
class Origin:
    """Where a faulty sample lies, as far as it is known.

    Attributes:
        leaf: name of the leaf in the mix.
        name: the sample's key in its shard.
        shard: the shard.
        byte_range: its bytes in the shard.
    """

    leaf: str
    name: str | None = None
    shard: str | None = None
    byte_range: tuple[int, int] | None = None

    def __str__(self) -> str:
        text = f"data set {self.leaf!r}"
        if self.shard is not None:
            text += f", {self.shard}"
        if self.name is not None:
            text += f", sample {self.name!r}"
        if self.byte_range is not None:
            text += f", bytes {self.byte_range[0]}-{self.byte_range[1]}"
        return text


def tolerance_of(function: Callable[..., Any] | None) -> int | None:
    """Failures in a row that a user's function is allowed: as `stateless` says of it, or its class; 0: any number.

    Returns:
        the number; ``None`` where nothing is said, and the policy holds.
    """
    named = getattr(function, "__failure_tolerance__", _UNSAID)
    if named is _UNSAID:
        named = getattr(getattr(function, "__self__", None), "__default_failure_tolerance__", _UNSAID)
    return None if named is _UNSAID else named or 0


_UNSAID: Any = object()


class FaultLine:
    """Applies a policy to the samples of one lane, one after the other.

    Args:
        policy: the policy.
        tolerances: by the name of a call, what `tolerance_of` its function says; such calls are counted apart.
    """

    def __init__(self, policy: FaultPolicy, tolerances: Mapping[str, int | None] | None = None) -> None:
        self._policy = policy
        self._tolerances = {call: most for call, most in (tolerances or {}).items() if most is not None}
        self._failures_in_a_row: dict[str, int] = {}
        self._failed = 0
        self._seen = 0

    def in_a_row(self, call: str) -> int:
        """Failures of a call in a row that end the run; 0 for no number."""
        return self._tolerances.get(call, self._policy.in_a_row)

    def success(self) -> None:
        """A sample went through."""
        if self._failures_in_a_row:
            self._failures_in_a_row = {}
        self._seen += 1

    def failure(self, error: Exception, *, key: SampleKey, call: str, origin: Origin, sample: Any = None) -> str:
        """Deal with a sample that failed.

        Returns:
            the reason to count it by.

        Raises:
            SampleError: the policy is to raise.
            FatalSampleError: the budget is used up, or the program is at fault.
        """
        reason = reason_of(error)
        text = f"{call} failed: {type(error).__name__}: {error}\n  at {origin}, row {key.row}, epoch {key.epoch}"
        text = text.encode("utf-8", "backslashreplace").decode()  # names that are no UTF-8 would break a log's file
        if isinstance(error, StoreAwayError):
            raise FatalSampleError(f"{text}\n  The store is at fault, not the sample.", reason=reason) from error
        if isinstance(error, PROGRAM_FAULTS):
            raise FatalSampleError(f"{text}\n  The program is at fault, not the sample.", reason=reason) from error
        if self._policy.handler is not None:
            self._policy.handler(error, sample, getattr(sample, "__sources__", None))
        if self._policy.action == "raise":
            raise SampleError(text, reason=reason) from error
        self._log(reason, text)
        if self._policy.quarantine_path is not None:
            _append_line(Path(self._policy.quarantine_path), _record(error, key, call, origin, reason))
        self._spend(call, text, reason, error)
        return reason

    def _log(self, reason: str, text: str) -> None:
        """Tell of the first ten, then of every tenth, hundredth and so on: bad data shall not fill the disk."""
        number = self._failed + 1
        if number <= 10 or number % 10 ** (len(str(number)) - 1) == 0:
            more = f", the {number}th of this lane" if number > 10 else ""
            logger.warning("sample left out (%s%s): %s", reason, more, text)

    def _spend(self, call: str, text: str, reason: str, error: Exception) -> None:
        counted_as = call if call in self._tolerances else ""
        in_a_row = self._failures_in_a_row[counted_as] = self._failures_in_a_row.get(counted_as, 0) + 1
        self._failed += 1
        self._seen += 1
        if 0 < self.in_a_row(call) <= in_a_row:
            raise FatalSampleError(
                f"{in_a_row} samples failed in a row; the last one:\n  {text}", reason=reason
            ) from error
        share = self._policy.share
        if share is not None and self._seen >= 100 and self._failed > share * self._seen:
            raise FatalSampleError(
                f"{self._failed} of {self._seen} samples of a lane failed, more than the share of {share} that the "
                f"fault policy allows; the last one:\n  {text}",
                reason=reason,
            ) from error


def reason_of(error: BaseException) -> str:
    """The short stable word that an error is counted by."""
    if isinstance(error, SampleError | ShardError):
        return error.reason
    return "encoding" if isinstance(error, UnicodeDecodeError) else type(error).__name__


def _record(error: Exception, key: SampleKey, call: str, origin: Origin, reason: str) -> dict[str, Any]:
    return {
        "leaf": origin.leaf,
        "epoch": key.epoch,
        "row": key.row,
        "key": origin.name,
        "shard": origin.shard,
        "bytes": origin.byte_range,
        "call": call,
        "reason": reason,
        "error": f"{type(error).__name__}: {error}",
    }


def _append_line(path: Path, record: dict[str, Any]) -> None:
    """One write of one line: lines of several processes do not mix (POSIX: O_APPEND)."""
    # Names that are no UTF-8 have lone surrogates, which are written as JSON's escapes.
    line = (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
