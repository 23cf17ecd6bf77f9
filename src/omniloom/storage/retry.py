"""Which faults of a store pass by themselves, and how long one waits for that. One table."""

from __future__ import annotations

import errno
import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from omniloom.errors import OmniloomError, StorageError, StoreAwayError
from omniloom.storage.counts import COUNTS
from omniloom.storage.messages import missing
from omniloom.storage.urls import redacted

Answer = TypeVar("Answer")
logger = logging.getLogger("omniloom")


class ShortBodyError(Exception):
    """An answer ended before the bytes that it promised."""


class NoRangesError(StorageError):
    """A server gives whole objects where ranges are asked for."""


@dataclass(frozen=True)
class Fault:
    """A class of faults.

    Attributes:
        name: short stable word for counting.
        pattern: what `said_by` of an error matches.
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
TOLD_AFTER_SECONDS = 5.0
"""A fault that has not passed after so long is logged, once."""


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


FAULTS = (
    Fault(
        "expired",
        _words("Expired ?Token", "TokenRefreshRequired", r"token[^.]{0,40}\bexpired", "Request has expired",
               "InvalidAuthenticationToken"),
        tries=1, first_wait_seconds=0.0, refresh=True,
        advice="The credentials have run out and asking for new ones did not help; log in again.",
    ),
    Fault("missing", _words("status=404", "^(NotFound|FileNotFound)Error", "NoSuchKey", "NoSuchBucket"), tries=0),
    Fault("unsigned", _words("status=401", "^UnauthenticatedError"), tries=1, first_wait_seconds=0.0, refresh=True,
          advice="Check the credentials."),
    Fault("denied", _words("status=403", "^Permission(Denied)?Error", "AccessDenied"), tries=0,
          advice="Check the credentials and what they may do."),
    Fault("no-such-range", _words("status=416", "Wanted range starting at"), tries=0),
    Fault("no-range", _words("Range request not supported", "non-partial"), tries=2,
          advice="The server gives no ranges; copy the data to one that does."),
    Fault("no-listing", _words("status=(405|501) listing"), tries=0,
          advice="The web server does not tell what lies in a folder. Name the files (`omniloom prepare --shards`), or "
          "use a store that lists."),
    Fault("unsupported", _words("status=(405|501)"), tries=0, advice="The server cannot do this."),
    Fault("throttled", _words("status=(503|429)", "SlowDown", "Throttl"), tries=None, first_wait_seconds=0.3),
    Fault("server", _words(r"status=5\d\d", "status=408", "InternalError"), tries=None, first_wait_seconds=0.2),
    Fault("stalled", _words("timed? ?out", "Timeout"), tries=None),
    Fault(
        "broken", _words("^ShortBodyError", "body error", "reset", "incomplete", "connection closed", "refused",
                         "error sending request", "broken pipe", "^Connection", "interrupted", "unreachable"),
        tries=None,
    ),
)  # fmt: skip
"""Kinds of faults, the first that matches counts. Whatever matches none is not tried again."""
_OTHER = Fault("other", _words(""), tries=0)

_STATUS = re.compile(r"status(?: code)?:? ?(\d{3})", re.IGNORECASE)
_ANSWER = re.compile(r"<(?:Code|Message)>([^<]*)<")
_URL = re.compile(r"\w+://\S+")
_LISTING = re.compile(r"\bPROPFIND\b")  # how object_store lists a web server
_PAGE = re.compile(r"<!DOCTYPE.*|<html.*", re.IGNORECASE | re.DOTALL)


def said_by(error: BaseException) -> str:
    """Type, status and words of an error, without the names of objects, which may hold any word."""
    text = str(error).split("Debug source")[0]
    status = getattr(error, "status", None) or getattr(error, "status_code", None)
    found = _STATUS.search(text)
    number = status if isinstance(status, int) else int(found[1]) if found else 0
    words = " ".join(_ANSWER.findall(text)) or _URL.sub("", text.rpartition(" - ")[2])
    return f"{type(error).__name__} status={number}{' listing' if _LISTING.search(text) else ''} {words}"


def fault_of(error: BaseException) -> Fault:
    """The class of a fault."""
    said = said_by(error)
    return next((fault for fault in FAULTS if fault.pattern.search(said)), _OTHER)


def retrying(call: Callable[[], Answer], *, where: str, retry_seconds: float, refresh: Callable[[], None]) -> Answer:
    """What a call gives, tried again by the table of faults.

    Args:
        call: one request.
        where: what messages call its object, without secrets.
        retry_seconds: how long faults that may pass are tried again.
        refresh: lets the next request ask for credentials anew.

    Raises:
        StoreAwayError: a fault that may pass did not in all that time.
        StorageError: the fault does not pass; its ``errno`` is ``ENOENT`` where the object is missing.
    """
    started = time.monotonic()
    tries: dict[str, int] = {}
    told = False
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
            if not told and time.monotonic() - started > TOLD_AFTER_SECONDS:
                told = True
                logger.warning("%s: %s; tried again for up to %.0f s", where, fault.name, retry_seconds)
        COUNTS.add(f"retries_{fault.name}", 1)
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
    text = redacted(" ".join(_PAGE.sub("", str(error).split("Debug source")[0]).split()))[:400]
    if fault.name == "no-listing":
        found = StorageError(f"{where}: cannot be listed. {fault.advice}")
        found.errno = errno.ENOTSUP
        return found
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    kind = StoreAwayError if fault.tries is None else NoRangesError if fault.name == "no-range" else StorageError
    found = kind(f"{where}: {fault.name}{tried}: {type(error).__name__}: {text} {fault.advice}".rstrip())
    found.errno = errno.EACCES if fault.name in ("denied", "expired", "unsigned") else errno.EIO
    return found
