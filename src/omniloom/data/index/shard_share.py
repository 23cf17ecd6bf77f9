"""Which share of the shards a process takes, as text and number."""

from __future__ import annotations

from typing import NamedTuple

from omniloom.errors import ConfigError


class ShardRange(NamedTuple):
    """Which share of the shards.

    Attributes:
        number: the share, from 0 on.
        shares: how many shares there are.
    """

    number: int
    shares: int


ALL_SHARDS = ShardRange(0, 1)


def parse_shard_range(text: str) -> ShardRange:
    """A share from a text such as ``3/16``: the fourth of sixteen.

    Raises:
        ConfigError: it is none.
    """
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise ConfigError(f"shard range {text!r}: expected i/n with i from 0 to n - 1, such as 0/16 or 15/16.")
    return ShardRange(int(number), int(count))
