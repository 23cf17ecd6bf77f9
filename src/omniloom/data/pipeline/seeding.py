"""Random numbers for user code: seeded from the sample's key before every call that may draw.

So the same key gives the same augmentation on any rank, in any worker, after any restart, and no
stream of random numbers is part of any state. numpy and torch are seeded only where loaded.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from omniloom.data.plan.permute import derive_key, mix_key
from omniloom.data.sample import SampleKey

ENCODE, POSTENCODE, SELECT, PACK, BATCH, ENCODE_BATCH, COOK, GROUP, ITER_MAP = range(1, 10)
"""Numbers of the calls, so that no two draw the same numbers for one key."""

CALLS = 64
"""What a generator function draws for its part ``n`` is seeded as call ``n * CALLS`` further on."""


class KeySeeds:
    """Seeds of sample keys, by the stable names of the leaves.

    Attributes:
        planted: the key that was seeded last: what user code is at work on.
    """

    def __init__(self, leaf_names: tuple[str, ...], seed: int) -> None:
        self._leaf_keys = [derive_key("work", seed, name) for name in leaf_names]
        self.planted: SampleKey | None = None

    def of(self, key: SampleKey, call: int) -> int:
        """The 64-bit seed of one call of user code for one sample."""
        value = mix_key(mix_key(self._leaf_keys[key[0]], key[1]), key[2])
        return mix_key(mix_key(value, key[3]), call)

    def plant(self, key: SampleKey, call: int) -> None:
        """Seed `random`, `numpy.random` and torch's CPU generator for one call of user code."""
        self.planted = key
        seed = self.of(key, call)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)

    def parts(self, key: SampleKey, call: int, made: Iterator[Any]) -> Iterator[Any]:
        """What a generator of user code gives, seeded anew before each value, whatever else runs between them."""
        for part in count():
            self.plant(key, call + part * CALLS)
            try:
                value = next(made)
            except StopIteration:
                return
            yield value


@contextmanager
def caller_random_state() -> Iterator[None]:
    """Put the caller's own random numbers back, where user code runs in the caller's process."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    torch_state = torch.default_generator.get_state() if torch is not None else None
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if torch is not None and torch_state is not None:
            torch.default_generator.set_state(torch_state)
