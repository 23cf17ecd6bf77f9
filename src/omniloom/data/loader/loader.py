"""The loader: batches of a rank's lanes in their order, and the state of the lanes at every step."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omniloom.data.loader import collective, state_tensors
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.engine import Engine, make_engine
from omniloom.data.loader.pads import PadMaker
from omniloom.data.loader.pool import PoolSettings
from omniloom.data.loader.runner import EmptyUnit, Produced
from omniloom.data.loader.state import LaneState, RankState, check_fits, deal, put_together, read_states
from omniloom.data.loader.stats import LoaderStats
from omniloom.data.pipeline.make import make_of
from omniloom.data.pipeline.restore import renumbered, restore
from omniloom.data.pipeline.running import Work, at_work
from omniloom.data.pipeline.seeding import caller_random_state
from omniloom.data.plan.counts import check_at_least
from omniloom.data.plan.lane import Lane, rank_lanes
from omniloom.data.plan.plan import Plan
from omniloom.data.plan.rebase import rebase_lane
from omniloom.data.side.lazy import CachePool
from omniloom.errors import ConfigError, StateError

logger = logging.getLogger("omniloom")


class Loader:
    """Iterates a data set. Its state can be saved between any two batches, and restored at any time.

    A ``for`` loop ends with the pass (see `Dataset.virtual_epoch_length`); after a ``break`` the next loop goes on
    exactly where the last one stopped.

    Args:
        dataset: what to load.
        num_workers: worker processes; ``None``: as the data set's `WorkerConfig` says.
        prefetch_factor: batches that each worker is asked for ahead; ``None``: likewise.
        watchdog_timeout_seconds: a worker (without workers: this process) that is at one sample for longer is
            reported with its stack; ``None``: never.
        watchdog_initial_timeout_seconds: the same until a worker has started; ``None``: as long, and at least a minute.
        cache_pool: what `TaskEncoder.cache` is, and cookers with ``need_cache`` are handed; sent to each worker.
        fail_on_timeout: end a worker that hangs; it is dealt with as one that died. Without workers the sample is
            interrupted, and `WorkerError` raised.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        watchdog_timeout_seconds: float | None = 60.0,
        watchdog_initial_timeout_seconds: float | None = None,
        fail_on_timeout: bool = False,
        cache_pool: CachePool | None = None,
    ) -> None:
        config = dataset.worker_config
        check_at_least(0, "num_workers", num_workers)
        check_at_least(1, "prefetch_factor", prefetch_factor)
        self.dataset = dataset
        self.worker_config = config
        self.num_workers = config.num_workers if num_workers is None else num_workers
        self._settings = PoolSettings(
            num_workers=max(1, self.num_workers),
            prefetch_factor=prefetch_factor or config.prefetch_factor,
            start_method=config.start_method,
            on_worker_death=config.on_worker_death,
            watchdog_seconds=watchdog_timeout_seconds,
            watchdog_initial_seconds=watchdog_initial_timeout_seconds,
            fail_on_timeout=fail_on_timeout,
            keep_lanes=dataset.holds_back or make_of(dataset.pipeline).reads_far,
        )
        if dataset.equal_steps and (dataset.plan.endless or not dataset.one_to_one):
            raise ConfigError("equal_steps needs data that ends, without packing or encoders that give several samples")
        self._cache_pool = cache_pool
        self._engine: Engine | None = None
        self._engine_pid = 0
        self._running = False
        self._deaths: list[str] = []  # of workers of engines that were closed
        self._stats = LoaderStats()
        self.is_pad = False
        self._reset(config.run_lanes)

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        if not self._restored:  # a state from the end of a pass goes on with the empty rest of that pass
            self.begin_pass()
        return _Pass(self)

    def __len__(self) -> int:
        """Batches of this rank in a pass. Raises TypeError where it cannot be known."""
        length = self.dataset.length(self._lane_count, lap=self._lap)
        if length is None:
            raise TypeError("this loader has no length: its pipeline packs or groups samples, or makes several of one")
        return length

    def next_batch(self) -> Any:
        """The next batch of the pass. Raises StopIteration at its end; the one after that is of the next pass."""
        if self._refused is not None:  # whoever passed over the error would train on data of two moments
            raise self._refused
        if self._pass_is_over():
            self._end_pass()
            raise StopIteration
        started = time.perf_counter()
        self._in_pass, self._restored, self.is_pad = True, False, False
        produced = self._next_produced()
        self._stats.seconds_waited += time.perf_counter() - started
        if produced is None:
            if self._steps < self._even_steps():
                self.is_pad = True
                self._steps += 1
                return self._pads.make(self._lane_count)
            self._end_pass()
            raise StopIteration
        self._steps += 1
        self._stats.batches += 1
        return produced.batch if self.dataset.finish is None else self.dataset.finish(produced.batch)

    def _next_produced(self) -> Produced | None:
        """What comes from the lane whose turn it is; ``None`` when all lanes have ended."""
        while True:
            waiting = [(lane.batches, index) for index, lane in self._lanes.items() if not lane.ended]
            if not waiting:
                return None
            produced = self._fetch(min(waiting)[1])
            if not produced.ended and produced.batch is not EmptyUnit:
                return produced

    def _fetch(self, index: int) -> Produced:
        """What comes next from a lane, noted in its state."""
        engine, lane = self._started_engine(), self._lanes[index]
        try:
            produced = engine.fetch(index)
            self._lanes[index] = LaneState(lane.batches + (not produced.ended), produced.state, produced.ended)
        except BaseException:  # an interrupt may have come between an answer and its being noted: begin anew
            self._lanes[index] = lane
            self.close()
            raise
        self._stats.add(produced)
        return produced

    def _started_engine(self) -> Engine:
        if self._engine is not None and self._engine_pid != os.getpid():  # workers and threads are a parent's
            self._engine, self._running = None, False
        if self._engine is None:
            self._engine_pid = os.getpid()
            self._engine = make_engine(
                self.dataset, self._settings, num_workers=self.num_workers, cache_pool=self._cache_pool
            )
        if not self._running:
            open_lanes = {i: lane for i, lane in self._lanes.items() if not lane.ended}
            self._engine.start(
                [Lane(i, self._lane_count, self._lap) for i in open_lanes],
                {i: lane.batches for i, lane in open_lanes.items()},
                {i: lane.stream for i, lane in open_lanes.items() if lane.stream is not None},
            )
            self._running = True
        return self._engine

    def begin_pass(self) -> None:
        """Let the next batch be one of the next pass, where all batches of the running one have come."""
        if self._pass_is_over():
            self._end_pass()
        elif (
            self._in_pass
            and not self.dataset.plan.endless
            and self._steps == self.dataset.length(self._lane_count, lap=self._lap)
        ):
            for _ in _Pass(self):
                raise StateError(f"{self._steps} batches were expected of this pass, and there are more")

    def rewind(self) -> None:
        """Begin anew, as if no batch had come. Workers stay."""
        self._reset(self._lane_count)

    def _pass_is_over(self) -> bool:
        length = self.dataset.virtual_epoch_length
        return self._in_pass and (self._limit_is_reached() or (length > 0 and self._steps % length == 0))

    def _limit_is_reached(self) -> bool:
        return self.dataset.limit is not None and self._steps >= self.dataset.limit

    def _end_pass(self) -> None:
        """A pass has ended: the next one goes on, or, where the data has ended, begins the next lap."""
        self._in_pass = self._restored = False
        if self._limit_is_reached() or all(lane.ended for lane in self._lanes.values()):
            self._begin_lap(self._lap + 1)
        if not self.worker_config.persistent_workers:
            self.close()

    # State

    def state(self) -> RankState:
        """The state of this rank between two batches."""
        lanes = {i: LaneState(lane.batches, lane.stream, lane.ended) for i, lane in self._lanes.items()}
        config = self.worker_config
        return RankState(
            lanes=self._lane_count,
            world_size=config.ranks,
            lap=self._lap,
            steps=self._steps,
            in_pass=self._in_pass,
            lane_states=lanes,
            mix=self.dataset.mix(),
            rank=config.number,
        )

    def save_state_rank(self) -> dict[str, Any]:
        """The state of this rank as plain dicts, lists, strings and numbers; JSON or torch can save it."""
        return self.state().to_plain()

    def restore_state_rank(self, state: object) -> None:
        """Go on from a saved state, at any time.

        Args:
            state: what `save_state_rank` gave; or a file it was saved in; or a list of these, or a folder of files,
                for all ranks: then the lanes are dealt again to the ranks of this run. ``None``: nothing happens.

        Raises:
            StateError: the state does not fit this run. Nothing was changed.
        """
        self._refused = collective.disagreement(state, self.worker_config, of=repr(self.dataset.mix().leaves))
        if self._refused is not None:
            raise self._refused
        if state is not None:
            self._restore(read_states(state, where="restore_state_rank"), where="restore_state_rank")

    def save_state_global(
        self, global_dst_rank: int = 0, *, dst_rank: int | None = None
    ) -> list[dict[str, Any]] | None:
        """All ranks' states, on the given global rank; ``None`` on the others."""
        destination = global_dst_rank if dst_rank is None else dst_rank
        return collective.gather_states(self.save_state_rank(), self.worker_config, destination)

    def restore_state_global(self, state: Sequence[Any] | None, *, src_rank: int | None = None) -> None:
        """Go on from the states of all ranks.

        Args:
            state: what `save_state_global` gave, on every rank, or with ``src_rank`` on that rank only.
            src_rank: rank within the data-parallel group that has the states.
        """
        if src_rank is not None and self.worker_config.ranks > 1:
            state = collective.share_states(state, self.worker_config, src_rank)
        if state is not None:
            states = [read_states(one, where="restore_state_global") for one in state]
            self._restore(put_together(states, where="restore_state_global"), where="restore_state_global")

    def state_dict(self) -> dict[str, Any]:
        """The state as uint8 tensors of JSON, one a lane, that torch's distributed checkpoint can deal again."""
        dataset = self.dataset
        return state_tensors.to_tensors(self.state(), lists=dataset.lists_in_state, keys=dataset.keys_in_state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; also from the lanes of all ranks together."""
        state = state_tensors.from_tensors(state_dict, where="load_state_dict", lanes=self._lane_count)
        self._restore(state, where="load_state_dict")

    save_state = save_state_global
    restore_state = restore_state_global

    def _restore(self, state: RankState, *, where: str) -> None:
        config = self.worker_config
        dataset = self._with_saved_buffers(state)
        same = check_fits(state, dataset.mix(), where=where)
        mine = deal(state, rank=config.number, world_size=config.ranks, where=where)
        lanes = {i: LaneState(lane.batches, lane.stream, lane.ended) for i, lane in mine.lane_states.items()}
        for index, lane in () if same else lanes.items():
            lane.stream = self._rebased(lane.stream, state, Lane(index, state.lanes, state.lap))
        if dataset is not self.dataset:
            self.close()
            self.dataset = dataset
        self._reset(state.lanes)
        self._lanes, self._lap, self._steps, self._in_pass = lanes, mine.lap, mine.steps, mine.in_pass
        self._restored = True

    def _rebased(self, stream: dict[str, Any] | None, state: RankState, lane: Lane) -> dict[str, Any] | None:
        """The place of a lane in a changed mix. What waited for its pack or group still waits."""
        if stream is None:
            return None
        if not isinstance(self.dataset.plan, Plan):
            return {name: value for name, value in stream.items() if name not in ("packs", "pack_part")}
        names = [leaf.name for leaf in make_of(self.dataset.pipeline).leaves]
        held = renumbered(stream, [leaf[0] for leaf in state.mix.leaves], names)
        passes = state.mix.settings.get("passes")
        keys = rebase_lane(self.dataset.plan, state.mix.leaves, lane, stream, saved_passes=passes)
        return {**(keys or {}), **held}

    def _with_saved_buffers(self, state: RankState) -> Dataset:
        """The data set with the windows and groups that the state was saved with: packs and batches hang on them."""
        dataset, saved = self.dataset, state.mix.settings
        window, most = saved.get("window_samples", 0), saved.get("most_waiting", dataset.most_waiting)
        if not dataset.window_samples or not window or not isinstance(dataset.plan, Plan):
            window = dataset.window_samples
        if dataset.most_waiting is None:
            most = None
        if (window, most) == (dataset.window_samples, dataset.most_waiting):
            return dataset
        if window != dataset.window_samples:
            held = window * state.lanes // self.worker_config.ranks
            logger.warning(
                "packing goes on with windows of %d samples a lane, as when the state was saved: %d samples on this "
                "rank", window, held,
            )  # fmt: skip
        return dataset.with_buffers(window_samples=window, most_waiting=most)

    def _reset(self, lane_count: int) -> None:
        self._lane_count, self._refused = lane_count, None
        self._begin_lap(0)
        self._pads = PadMaker(self.dataset)

    def _begin_lap(self, lap: int) -> None:
        config = self.worker_config
        self._running = False  # the lanes are elsewhere now; the workers may stay
        self._lanes = {i: LaneState() for i in rank_lanes(self._lane_count, config.number, config.ranks)}
        self._lap, self._steps, self._in_pass, self._restored = lap, 0, False, False

    def _even_steps(self) -> int:
        """Steps that every rank makes at least in a pass, so that all make equally many; 0 where that is not asked."""
        length = self.dataset.length(self._lane_count, lap=self._lap) if self.dataset.equal_steps else 0
        return length or 0

    # Single samples

    def can_restore_sample(self) -> bool:
        """Whether single samples can be made again by their key; always."""
        return True

    def restore_sample(self, restore_key: Sequence[Any], *, batch_index: int | None = None) -> Any:
        """The sample, pack or batch of a ``__restore_key__``, made again in this process, bit for bit.

        A sample comes as it goes into its pack or batch; a list of keys is a batch of them.

        Args:
            restore_key: the key.
            batch_index: number in the whole job of the micro-batch that it came in, for steps that ask for it; no key
                knows it.

        Raises:
            StateError: it is no key of this data set.
            SkipSample: user code leaves it out.
            Exception: what user code raises.
        """
        pipeline = self.dataset.pipeline
        work = Work.of(pipeline)
        work.cache, work.batch = self._cache_pool, batch_index
        with caller_random_state(), at_work(work):
            made = restore(pipeline, restore_key, leaves=len(make_of(pipeline).leaves))
        return made if self.dataset.finish is None else self.dataset.finish(made)

    # Housekeeping

    def stats(self) -> dict[str, Any]:
        """Counts by data set of what the batches so far were made of, skips by reason, and seconds waited."""
        plain = self._stats.to_plain([leaf.name for leaf in self.dataset.plan.leaves])
        batches = [lane.batches for lane in self._lanes.values()]
        plain["lane_skew_batches"] = max(batches) - min(batches)
        plain["worker_deaths"] = [*self._deaths, *(self._engine.deaths if self._engine is not None else ())]
        return plain

    def config(self) -> dict[str, Any]:
        """What this loader is, as plain values."""
        return {
            "type": type(self).__name__,
            "num_workers": self.num_workers,
            "prefetch_factor": self._settings.prefetch_factor,
            "lanes": self._lane_count,
            "rank": self.worker_config.number,
            "world_size": self.worker_config.ranks,
            "dataset": str(self.dataset).splitlines(),
        }

    def close(self) -> None:
        """End the workers. The next batch starts new ones, at the same place."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self._deaths += engine.deaths
            engine.close()
        self._running = False

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Pass(Iterator[Any]):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __next__(self) -> Any:
        return self._loader.next_batch()
