"""Loading under Accelerate: batches on the device, gradient accumulation that knows the last one, and the place in
`Accelerator.save_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.errors import ConfigError
from omniloom.integrations.handed_on import HandedOn

try:
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState
    from accelerate.utils import send_to_device
except ImportError as error:
    raise ImportError(
        "omniloom.integrations.accelerate needs accelerate. Run `pip install omniloom[accelerate]`."
    ) from (error)

_END = object()


class AcceleratedLoader(DataLoaderStateMixin):  # type: ignore[misc]
    """What stands in place of a prepared ``DataLoader``.

    Args:
        loader: the loader.
        accelerator: whose device batches go to.
    """

    def __init__(self, loader: Loader, accelerator: Accelerator) -> None:
        self._handed_on = HandedOn(loader)
        self._device = accelerator.device
        self.gradient_state = GradientState()

    @property
    def loader(self) -> Loader:
        """The loader itself; with its ``stats()`` and ``is_pad``. It is a batch ahead of what was given out."""
        return self._handed_on.loader

    def __len__(self) -> int:
        """Batches of this rank in a pass. Raises TypeError where it cannot be known."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        try:
            coming = self._handed_on.batches()
            ahead = next(coming, _END)
            while ahead is not _END:
                batch, ahead = ahead, next(coming, _END)
                self.end_of_dataloader = ahead is _END
                self._handed_on.use(1)
                yield send_to_device(batch, self._device)
        finally:
            self.end()

    def state_dict(self) -> dict[str, Any]:
        """The places of all ranks after the batch that came last. Every rank has to call it."""
        return self._handed_on.job_state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave on the main process, also on another number of ranks."""
        self._handed_on.restore(state_dict)


def prepare_loader(accelerator: Accelerator, dataset: Dataset, **settings: Any) -> AcceleratedLoader:
    """A loader for a loop under Accelerate, whose place ``accelerator.save_state`` and ``load_state`` keep.

    Args:
        accelerator: made before the data set, so that the ranks are known.
        dataset: what to load: that of this rank.
        settings: as for `Loader`.

    Raises:
        ConfigError: the data set is for another number of processes.
    """
    config = dataset.worker_config
    if config.ranks != accelerator.num_processes:
        raise ConfigError(
            f"the data set is for {config.ranks} ranks, and Accelerate runs {accelerator.num_processes} processes.\n"
            "  Make the Accelerator first and then WorkerConfig() without rank, or give rank and world_size."
        )
    prepared = AcceleratedLoader(Loader(dataset, **settings), accelerator)
    accelerator.register_for_checkpointing(prepared)
    return prepared
