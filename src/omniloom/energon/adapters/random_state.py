"""The random numbers of torch, numpy and Python together, and those of a worker, as Energon's users have them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

import numpy as np

from omniloom.energon.adapters.savable import Savable


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRngState:
    """The states of the three generators."""

    torch: Any
    numpy: Any
    random: Any


class WorkerRng(Savable):
    """Random numbers of one worker, the same on every run: for code that draws some. omniloom's order does not.

    Args:
        worker_config: rank, world and workers; its seed is Energon's.
    """

    def __init__(self, worker_config: Any) -> None:
        self.worker_config = worker_config
        self._generator: Any = None

    @property
    def rng(self) -> Any:
        """The generator, a `torch.Generator`."""
        import torch  # noqa: PLC0415

        if self._generator is None:
            self._generator = torch.Generator()
            self._generator.manual_seed(self.worker_config.worker_seed(self.worker_config.rank_worker_id()))
        return self._generator

    def randbelow(self, n: int) -> int:
        """A number from 0 to below ``n``."""
        import torch  # noqa: PLC0415

        return int(torch.randint(0, n, (), generator=self.rng).item())

    def choice_idx(self, probs: Any) -> int:
        """An index, drawn by weights, a tensor (n,)."""
        import torch  # noqa: PLC0415

        if len(probs) == 1:
            return 0
        borders = torch.cumsum(probs, dim=0)
        return int(torch.searchsorted(borders, torch.rand(1, generator=self.rng) * borders[-1]).item())

    def choice(self, values: list[Any], probs: Any = None) -> Any:
        """One of some values; all alike, or by weights."""
        return values[self.randbelow(len(values)) if probs is None else self.choice_idx(probs)]

    def shuffle(self, values: list[Any]) -> list[Any]:
        """A new list of the values in another order."""
        import torch  # noqa: PLC0415

        return [values[place] for place in torch.randperm(len(values), generator=self.rng).tolist()]

    def rand_pop(self, values: list[Any]) -> Any:
        """One of some values, which is taken out of them."""
        return values.pop(self.randbelow(len(values)))

    def save_state(self) -> dict[str, Any]:
        """Where it is."""
        return {"rng": bytes(self.rng.get_state().tolist())}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go to where it was."""
        import torch  # noqa: PLC0415

        self.rng.set_state(torch.frombuffer(bytearray(state["rng"]), dtype=torch.uint8).clone())


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
