"""Which faults of a store pass by themselves, and how long one waits for that. One table."""

from __future__ import annotations

import errno
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from omniloom.errors import OmniloomError, StorageError
from omniloom.storage.messages import missing
from omniloom.storage.urls import redacted

Answer = TypeVar("Answer")


class ShortBodyError(Exception):
    """An answer ended before the bytes that it promised."""


@dataclass(frozen=True)
class Fault:
    """A class of faults.

    Attributes:
        name: short stable word for counting.
        pattern: what the error's type and text match.
        tries: how often it is tried again; ``None``: as long as time allows.
        first_wait_seconds: longest first wait; each next one may take twice as long.
        refresh: credentials are asked for anew first.
        advice: what to do when it does not pass.
    """

    name: str
    pattern: re.Pattern[str]
    tries: int | None
    first_wait_seconds: float = 0.1
    refresh: bool = False
    advice: str = ""


LONGEST_WAIT_SECONDS = 10.0


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


FAULTS = (
    Fault(
        "missing", _words(r"\b404\b", "NotFound", "NoSuchKey", "NoSuchBucket", "FileNotFound"), tries=0,
        advice="Check the name, the bucket and its region.",
    ),
    Fault(
        "expired", _words("Expired ?Token", "TokenRefreshRequired", r"token[^.]{0,40}\bexpired",
                          "Request has expired", "InvalidAuthenticationToken"),
        tries=1, first_wait_seconds=0.0, refresh=True,
        advice="The credentials have run out and asking for new ones did not help; log in again.",
    ),
    Fault("unsigned", _words(r"\b401\b", "Unauthenticated"), tries=1, first_wait_seconds=0.0, refresh=True,
          advice="Check the credentials."),
    Fault("denied", _words(r"\b403\b", "PermissionDenied", "AccessDenied", "Forbidden"), tries=0,
          advice="Check the credentials and what they may do."),
    Fault("throttled", _words(r"\b503\b", r"\b429\b", "SlowDown", "Throttl"), tries=None, first_wait_seconds=0.3),
    Fault("server", _words(r"\b5\d\d\b", "InternalError"), tries=None, first_wait_seconds=0.2),
    Fault("stalled", _words("timed? ?out", "TimedOut", "Timeout"), tries=None),
    Fault(
        "broken", _words("ShortBody", "body error", "reset", "IncompleteMessage", "incomplete", "connection closed",
                         "refused", "error sending request", "broken pipe", "ConnectionError", "Interrupted",
                         "ConnectError", "unreachable", "decoding response"), tries=None,
    ),
    Fault("no-range", _words("RangeNotSupported", "Range request not supported", "non-partial"), tries=2,
          advice="The server gives no ranges; copy the data to one that does."),
    Fault("no-such-range", _words(r"\b416\b", "Range Not Satisfiable", "Wanted range starting at"), tries=0),
)  # fmt: skip
"""Kinds of faults, the first that matches counts. Whatever matches none is not tried again."""
_OTHER = Fault("other", _words(""), tries=0)


def fault_of(error: BaseException) -> Fault:
    """The class of a fault."""
    text = f"{type(error).__name__}: {error}"
    return next((fault for fault in FAULTS if fault.pattern.search(text)), _OTHER)


def retrying(call: Callable[[], Answer], *, where: str, retry_seconds: float, refresh: Callable[[], None]) -> Answer:
    """What a call gives, tried again by the table of faults.

    Args:
        call: one request.
        where: what messages call its object, without secrets.
        retry_seconds: how long faults that may pass are tried again.
        refresh: lets the next request ask for credentials anew.

    Raises:
        StorageError: the fault does not pass; its ``errno`` is ``ENOENT`` where the object is missing.
    """
    started = time.monotonic()
    tries: dict[str, int] = {}
    while True:
        try:
            return call()
        except OmniloomError:
            raise
        except Exception as error:
            fault = fault_of(error)
            done = tries[fault.name] = tries.get(fault.name, 0) + 1
            wait = random.uniform(0.5, 1.0) * min(LONGEST_WAIT_SECONDS, fault.first_wait_seconds * 2 ** (done - 1))
            over = time.monotonic() + wait - started > retry_seconds
            if over or (fault.tries is not None and done > fault.tries):
                raise named_fault(error, where, attempts=sum(tries.values())) from None
        if fault.refresh:
            refresh()
        time.sleep(wait)


def named_fault(error: Exception, where: str, *, attempts: int = 1) -> Exception:
    """The error that users see: what was asked, what came, how often; nothing secret."""
    if isinstance(error, OmniloomError):
        return error
    fault = fault_of(error)
    if fault.name == "missing":
        return missing(where)
    text = redacted(" ".join(str(error).split("Debug source")[0].split()))[:400]
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    found = StorageError(f"{where}: {fault.name}{tried}: {type(error).__name__}: {text} {fault.advice}".rstrip())
    found.errno = errno.EACCES if fault.name in ("denied", "expired", "unsigned") else errno.EIO
    return found
