"""Where the work on shards is done, by a short text: a table of schemes, each giving an executor.

    ====================== ============================================================================
    ``dask://host:port``   workers of a dask.distributed cluster; dask does a lost worker's shards again
    ``ray://host:port``    a Ray cluster; ``ray://`` alone is one on this machine
    ``mpi://``             the ranks of ``mpiexec -n 8 python -m mpi4py.futures -m omniloom ...``
    ``processes://8``      processes of this machine
    ``threads://32``       threads of this process, for work that waits for a network
    ====================== ============================================================================

Anything else that is a ``concurrent.futures.Executor`` goes to the functions themselves. Workers need omniloom, the
credentials of the store, and the same paths where shards lie on a disk; they need no disk in common.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from typing import Any

from omniloom.data.index.parallel_work import begin_worker, start_method
from omniloom.errors import ConfigError

_RAY_RETRIES = 3


@contextlib.contextmanager
def open_executor(text: str | None) -> Iterator[Executor | None]:
    """The executor that a text names; ``None`` for ``None``, which means processes as the work itself makes them.

    Raises:
        ConfigError: the text names none, its library is not installed, or nobody answers.
    """
    if text is None:
        yield None
        return
    scheme, found, address = text.partition("://")
    if not found or scheme not in EXECUTORS:
        known = ", ".join(f"{name}://" for name in EXECUTORS)
        raise ConfigError(f"executor {text!r}: expected one of {known}, such as dask://scheduler:8786.")
    with EXECUTORS[scheme](address.rstrip("/")) as executor:
        yield executor


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        import distributed  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("dask://", "'omniloom[dask]'", error) from error
    try:
        make_client: Any = distributed.Client
        client = make_client(f"tcp://{address}" if address else None, timeout="30s")
    except (OSError, ValueError) as error:
        raise ConfigError(f"executor dask://{address}: no scheduler answers: {error}. Check host and port.") from error
    with client, client.get_executor(pure=False) as executor:
        yield executor


@contextlib.contextmanager
def _ray(address: str) -> Iterator[Executor]:
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("ray://", "ray", error) from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=f"ray://{address}" if address else None, log_to_driver=False)
    try:
        yield RayExecutor(ray)
    finally:
        if started:
            ray.shutdown()


class RayExecutor(Executor):
    """Tasks of a Ray cluster as futures; Ray does a lost worker's tasks again.

    Args:
        ray: the module, initialized.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._run = ray.remote(max_retries=_RAY_RETRIES)(_call)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task."""
        future: Future[Any] = self._run.remote(fn, args, kwargs).future()
        return future


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


@contextlib.contextmanager
def _mpi(address: str) -> Iterator[Executor]:
    try:
        from mpi4py.futures import MPIPoolExecutor  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("mpi://", "mpi4py", error) from error
    with MPIPoolExecutor(int(address) if address else None) as executor:
        yield executor


def _processes(address: str) -> AbstractContextManager[Executor]:
    return ProcessPoolExecutor(
        _count("processes", address),
        mp_context=get_context(start_method()),
        initializer=begin_worker,
        initargs=(dict(os.environ),),
    )


def _threads(address: str) -> AbstractContextManager[Executor]:
    return ThreadPoolExecutor(_count("threads", address), "omniloom-shards")


def _count(scheme: str, address: str) -> int:
    if not address.isdecimal() or int(address) < 1:
        raise ConfigError(f"executor {scheme}://{address}: expected how many there are, such as {scheme}://8.")
    return int(address)


def _missing(scheme: str, package: str, error: ImportError) -> ConfigError:
    return ConfigError(f"executor {scheme}: {error}. Install it: pip install {package}")


EXECUTORS: dict[str, Callable[[str], AbstractContextManager[Executor]]] = {
    "dask": _dask,
    "ray": _ray,
    "mpi": _mpi,
    "processes": _processes,
    "threads": _threads,
}
