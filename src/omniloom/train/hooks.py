"""What looks on while a run goes, without the loop's knowing of it: each hook is told of batches and of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class Hook:
    """Looks on. Each rank has the same hooks in the same order, so a hook may use collectives after a step."""

    def begins(self, step: int) -> None:
        """So many steps were taken before this process takes its first."""
        del step

    def waiting(self) -> None:
        """A batch of the loader is waited for from now on."""

    def batch(self, batch: Any) -> None:
        """A batch has come; it is still on the host."""

    def after_step(self, step: int) -> Mapping[str, float]:
        """So many steps have been taken. What is given back is told with the step."""
        del step
        return {}

    def close(self) -> None:
        """The run has ended, well or not."""


class HookedLoader:
    """A loader whose batches hooks are told of. Closing it closes them as well.

    Args:
        loader: of this rank.
        hooks: in the order in which they are told.
    """

    def __init__(self, loader: Any, hooks: Sequence[Hook]) -> None:
        self._loader, self._hooks = loader, tuple(hooks)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            for hook in self._hooks:
                hook.waiting()
            try:
                batch = next(batches)
            except StopIteration:
                return
            for hook in self._hooks:
                hook.batch(batch)
            yield batch

    def save_state_rank(self) -> Any:
        """The loader's state."""
        return self._loader.save_state_rank()

    def restore_state_rank(self, states: Any) -> None:
        """Put the loader in a saved place."""
        self._loader.restore_state_rank(states)

    def close(self) -> None:
        """Close hooks, the last one first, and the loader, where they can be closed."""
        for hook in reversed(self._hooks):
            hook.close()
        if hasattr(self._loader, "close"):
            self._loader.close()


def before_first_step(hooks: Sequence[Hook]) -> Callable[[int], None]:
    """What tells hooks where a run begins, or goes on."""

    def begins(step: int) -> None:
        for hook in hooks:
            hook.begins(step)

    return begins


def after_each_step(hooks: Sequence[Hook]) -> Callable[[int], Mapping[str, float]]:
    """What tells hooks of a step, in their order, and gathers what they give."""

    def after_step(step: int) -> Mapping[str, float]:
        told: dict[str, float] = {}
        for hook in hooks:
            told.update(hook.after_step(step))
        return told

    return after_step
