"""Every exception that omniloom raises on purpose.

    OmniloomError
    ├── ConfigError (ValueError)      a recipe, a YAML file, a flag, an argument
    ├── StorageError (OSError)        bytes could not be had: url, range, last cause
    │   ├── StoreAwayError            a store did not answer properly for as long as one waits for it
    │   └── ObjectChangedError        an object is another one than when it was first looked at
    ├── DatasetError (ValueError)
    │   ├── ShardError                a shard is not what its index says, or not a sound archive
    │   ├── BadShardsError            several such shards, listed
    │   └── SampleError               one sample: its key and origin; counted by the fault policy
    │       ├── MissingKeyError (KeyError)  a store beside the data set holds nothing under a key
    │       └── FatalSampleError      the error budget is used up, or the program itself is at fault
    ├── StateError (ValueError)       a saved state does not fit this run
    ├── InputError (ValueError)       what a model was given does not fit together
    ├── WeightsError (ValueError)     weights: names or shapes left over on either side, or a file that is unsound
    ├── WorkerError (RuntimeError)    a worker process died or hung: pid, signal, key in hand
    └── (SkipSample)                  not an error: leave this sample out

A message says, in this order: what is wrong, where (file, line or byte), what was found and
what was expected, and what to do.
"""

from __future__ import annotations

from typing import Any, Self


class OmniloomError(Exception):
    """Base of all errors below."""


class ConfigError(OmniloomError, ValueError):
    """A recipe, a YAML file, a command-line flag or an argument is wrong."""


class StorageError(OmniloomError, OSError):
    """Bytes could not be read or written."""


class StoreAwayError(StorageError):
    """A store did not answer properly for as long as one waits for it: no fault of a sample, the run must end."""


class ObjectChangedError(StorageError):
    """An object of a store is not the one any more that was looked at before.

    Attributes:
        url: the object, without secrets.
        expected: its ETag when it was first looked at.
        found: its ETag now.
    """

    def __init__(self, url: str, *, expected: str, found: str | None) -> None:
        super().__init__(
            f"{url}: changed while it was in use: ETag {found} found, {expected} expected. "
            "Run `omniloom prepare` on its data set again, and start the run anew."
        )
        self.url, self.expected, self.found = url, expected, found

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_object_changed_error, (self.url, self.expected, self.found)


class DatasetError(OmniloomError, ValueError):
    """A data set is not usable as it is."""


class ShardError(DatasetError):
    """A shard is not a sound archive, or not what its index says.

    Attributes:
        shard: name of the shard, relative to its data set where that is known.
        reason: short stable word for counting, such as ``bad-checksum`` or ``truncated``.
        offset_bytes: byte in the shard where the fault was seen; ``None`` where no byte is to blame.
    """

    def __init__(self, message: str, *, shard: str, reason: str, offset_bytes: int | None = None) -> None:
        super().__init__(message)
        self.shard = shard
        self.reason = reason
        self.offset_bytes = offset_bytes

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_shard_error, (self.args[0], self.shard, self.reason, self.offset_bytes)


class BadShardsError(DatasetError):
    """Shards of a data set cannot be used.

    Attributes:
        faults: one entry per shard, with its ``shard``, ``reason``, ``offset_bytes`` and ``message``.
    """

    def __init__(self, message: str, *, faults: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.faults = faults

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_bad_shards_error, (self.args[0], self.faults)


class SampleError(DatasetError):
    """One sample cannot be read, decoded or encoded.

    Attributes:
        reason: short stable word for counting, such as ``truncated-image`` or ``empty-member``.
    """

    def __init__(self, message: str = "", *, reason: str = "sample") -> None:
        super().__init__(message)
        self.reason = reason

    @classmethod
    def from_sample_key(cls, sample_key: str) -> Self:
        """The error of a sample of which only the key is known."""
        return cls(f"sample {sample_key!r} cannot be used")

    @classmethod
    def from_sample(cls, sample: Any, message: str = "") -> Self:
        """The error of a sample, with its key and, where they are known, its sources."""
        names = ("__key__", "__sources__")
        known = sample if isinstance(sample, dict) else {name: getattr(sample, name, None) for name in names}
        places = ", ".join(map(str, known.get("__sources__") or ()))
        return cls(f"sample {known.get('__key__')!r}: {message}" + (f" ({places})" if places else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_sample_error, (type(self), self.args[0], self.reason)


class MissingKeyError(SampleError, KeyError):
    """A store beside the data set holds nothing under a key."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


class FatalSampleError(SampleError):
    """The run must end: the error budget is used up, or the program itself is at fault."""


class StateError(OmniloomError, ValueError):
    """A saved state does not fit this run."""


class WeightsError(OmniloomError, ValueError):
    """Weights do not fit: names or shapes are left over on either side, or a file is unsound."""


class InputError(OmniloomError, ValueError):
    """What a model was given does not fit together: lengths, counts or shapes."""


class WorkerError(OmniloomError, RuntimeError):
    """A worker process died or hung."""


class SkipSample(Exception):  # noqa: N818 - the name that Energon's users know; it is not an error
    """Raised by user code to leave a sample out; counted, never logged as a fault."""


IgnoreSample = SkipSample
"""The same, under the name that Energon's documentation uses in places."""


def _rebuild_shard_error(message: str, shard: str, reason: str, offset_bytes: int | None) -> ShardError:
    return ShardError(message, shard=shard, reason=reason, offset_bytes=offset_bytes)


def _rebuild_bad_shards_error(message: str, faults: tuple[Any, ...]) -> BadShardsError:
    return BadShardsError(message, faults=faults)


def _rebuild_sample_error(kind: type[SampleError], message: str, reason: str) -> SampleError:
    return kind(message, reason=reason)


def _rebuild_object_changed_error(url: str, expected: str, found: str | None) -> ObjectChangedError:
    return ObjectChangedError(url, expected=expected, found=found)
