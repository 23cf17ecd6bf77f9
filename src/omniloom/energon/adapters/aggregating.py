"""`AggregatorPool`: tasks dealt to processes, whose results one object collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from omniloom.errors import ConfigError


class BaseAggregator:
    """Collects results. Derive from it."""

    def on_start(self, aggregator_pool: AggregatorPool) -> None:
        """Called once before any results come."""

    def on_item(self, items: list[Any], aggregator_pool: AggregatorPool) -> None:
        """Called with results, as they come."""
        raise NotImplementedError(f"{type(self).__name__} has no on_item")

    def on_finish(self, aggregator_pool: AggregatorPool) -> None:
        """Called once when all have come."""

    def get_final_result_data(self) -> Any:
        """What `AggregatorPool.process` gives."""
        return None


class AggregatorPool:
    """Deals tasks to processes; the results of one task stay together, and tasks come in their order.

    Args:
        num_workers: processes.
        user_produce_data: gives results for a task; it and tasks and results are pickled.
        aggregator: collects them, in this process.
        batch_size: results that it is given at once at most.
    """

    def __init__(
        self,
        num_workers: int,
        user_produce_data: Callable[[Any], Iterable[Any]],
        aggregator: BaseAggregator,
        *,
        batch_size: int = 1,
    ) -> None:
        if batch_size <= 0:
            raise ConfigError(f"batch_size={batch_size} found, at least 1 expected")
        self.num_workers, self.batch_size = num_workers, batch_size
        self.user_produce_data, self.aggregator = user_produce_data, aggregator
        self._tasks: list[Any] = []

    def submit_task(self, task: Any) -> None:
        """Add a task."""
        self._tasks.append(task)

    def process(self) -> Any:
        """Do all tasks, and give what the aggregator has made of their results."""
        self.aggregator.on_start(self)
        with ProcessPoolExecutor(max(1, self.num_workers)) as executor:
            for items in executor.map(_Produced(self.user_produce_data), self._tasks):
                for start in range(0, len(items), self.batch_size):
                    self.aggregator.on_item(items[start : start + self.batch_size], self)
        self._tasks = []
        self.aggregator.on_finish(self)
        return self.aggregator.get_final_result_data()


class _Produced:
    """The results of a task as a list."""

    def __init__(self, produce: Callable[[Any], Iterable[Any]]) -> None:
        self._produce = produce

    def __call__(self, task: Any) -> list[Any]:
        return list(self._produce(task))
