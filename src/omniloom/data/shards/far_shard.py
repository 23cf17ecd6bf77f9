"""What is known of a shard in a store before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from omniloom.data.shards.remote_archive import RemoteArchive


class CheckedShards(Protocol):
    """What this machine found good before (see `ShardStates`)."""

    def was_checked(self, shard: str, state: str) -> bool:
        """Whether a process of this machine found this state of a shard good."""

    def check_once(self, shard: str, state: str, check: Callable[[], None]) -> None:
        """Check a state of a shard, unless another process of this machine is doing so and finds it good."""


class FarShard(NamedTuple):
    """What is known of a shard in a store.

    Attributes:
        checked: what this machine found good before.
        indexed: what the store called its state when it was indexed (`FileMark.state`); empty where that is not known.
        seen: the state in which a listing of this machine found it, where that is one known to be good; else empty.
    """

    checked: CheckedShards
    indexed: str = ""
    seen: str = ""

    def archive(self, url: str, size_bytes: int | None) -> RemoteArchive | None:
        """The archive without a request, where it is known to be good; ``None`` where it has to be looked at."""
        from omniloom.data.shards.remote_archive import RemoteArchive  # noqa: PLC0415 - local sets need no store

        return RemoteArchive(url, known=(size_bytes, self.seen)) if self.seen and size_bytes is not None else None

    def is_good(self, shard: str, state: str) -> bool:
        """Whether a state spares looking at the shard's headers."""
        return bool(state) and (state == self.indexed or self.checked.was_checked(shard, state))
