"""`SystemRng`: the random numbers of torch, numpy and Python together, as Energon's users save and seed them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRngState:
    """The states of the three generators."""

    torch: Any
    numpy: Any
    random: Any


class SystemRng:
    """The process's generators of torch, numpy and Python."""

    @staticmethod
    def save_state() -> SystemRngState:
        """Their states."""
        import torch  # noqa: PLC0415 - only who asks for its state needs it

        return SystemRngState(torch=torch.get_rng_state(), numpy=np.random.get_state(), random=random.getstate())

    @staticmethod
    def restore_state(state: SystemRngState) -> None:
        """Go back to states."""
        import torch  # noqa: PLC0415

        torch.set_rng_state(state.torch)
        np.random.set_state(state.numpy)
        random.setstate(state.random)

    @staticmethod
    def get_seed_from_args(*args: Any) -> int:
        """32 bits of the SHA-1 of the values as text, with bars between them: Energon's seed for them."""
        text = "|".join(str(value) for value in args)
        return int.from_bytes(sha1(text.encode(), usedforsecurity=False).digest()[:4], "big")

    @staticmethod
    def seed(seed: int) -> None:
        """Seed all three.

        Args:
            seed: from 0 to 2^32 - 1.
        """
        import torch  # noqa: PLC0415

        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)

    @staticmethod
    def seed_args(*args: Any) -> None:
        """Seed all three by values."""
        SystemRng.seed(SystemRng.get_seed_from_args(*args))
