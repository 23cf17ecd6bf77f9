"""Shards are indexed by whoever is there: the sidecar is the same to the byte, and nobody's death loses a shard."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.index.executors import open_executor
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.prepare import Progress, prepare_dataset
from omniloom.data.index.scanning import ScanRequest
from omniloom.errors import ConfigError, WorkerError
from tests.contract.remote_sets import write_tar

pytestmark = pytest.mark.slow


def _shards(root: Path, count: int = 12) -> Path:
    for shard in range(count):
        members = [(f"{shard}-{row:03d}.{part}", b"x" * row) for row in range(200) for part in ("jpg", "json")]
        write_tar(root / f"s{shard:02d}.tar", members)
    return root


def _sidecar(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".tar"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set that this process prepared alone."""
    root = _shards(tmp_path_factory.mktemp("whole"))
    prepare_dataset(root, num_workers=1)
    return root


@pytest.fixture
def other(whole: Path, tmp_path: Path) -> Path:
    """The same shards, not prepared; with their times, which the tables note."""
    root = tmp_path / "set"
    root.mkdir()
    for path in whole.glob("*.tar"):
        shutil.copy2(path, root)
    return root


@pytest.fixture
def dask_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{root}/src", root, os.environ.get("PYTHONPATH", "")]))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster


def test_a_dask_worker_that_is_killed_loses_nothing(whole: Path, other: Path, dask_cluster: Any) -> None:
    address = dask_cluster.scheduler_address.removeprefix("tcp://")
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.shards == 1 and not killed:
            killed.append(dask_cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    with open_executor(f"dask://{address}") as executor:
        prepared = prepare_dataset(other, executor=executor, progress=kill)
    assert killed
    assert prepared.samples == 12 * 200
    assert _sidecar(other) == _sidecar(whole)


@pytest.mark.parametrize("text", ["processes://2", "threads://3", "ray://"])
def test_every_executor_makes_the_same_sidecar(text: str, whole: Path, other: Path) -> None:
    if text.startswith("ray"):
        pytest.importorskip("ray", reason="ray is not installed here")
    with open_executor(text) as executor:
        prepare_dataset(other, executor=executor)
    assert _sidecar(other) == _sidecar(whole)


def test_ranks_of_mpi_make_the_same_sidecar(whole: Path, other: Path) -> None:
    pytest.importorskip("mpi4py")
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if launcher is None:
        pytest.skip("there is no mpiexec")
    arguments = ["prepare", str(other), "--non-interactive", "--split-ratio", "1,0,0", "--executor", "mpi://"]
    program = [sys.executable, "-m", "mpi4py.futures", "-m", "omniloom", *arguments]
    done = subprocess.run([launcher, "-n", "3", *program], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert _sidecar(other) == _sidecar(whole)


def _die_once(request: ScanRequest) -> str:
    """The end of its process the first time that anybody looks at the third shard."""
    mark = Path(request.new_table)
    if request.shard == "s02.tar" and not mark.exists():
        mark.write_text("died here")
        os.kill(os.getpid(), signal.SIGKILL)
    return request.shard


def _die(request: ScanRequest) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return request.shard


def _request(shard: int, folder: Path) -> ScanRequest:
    return ScanRequest(f"s{shard:02d}.tar", "", "first-dot", "error", str(folder / "mark"), (), "")


def test_a_process_of_this_machine_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    requests = [_request(shard, tmp_path) for shard in range(8)]
    found = list(in_order(_die_once, requests, executor=None, num_workers=2))
    assert found == [request.shard for request in requests]


def test_work_that_kills_every_process_ends(tmp_path: Path) -> None:
    requests = [_request(shard, tmp_path) for shard in range(4)]
    with pytest.raises(WorkerError, match=r"died while it read s00\.tar"):
        list(in_order(_die, requests, executor=None, num_workers=2))


def test_an_executor_of_ones_own_will_do(whole: Path, other: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        prepare_dataset(other, executor=executor)
    assert _sidecar(other) == _sidecar(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slurm://x", "expected one of dask://, ray://"),
        ("processes://many", "how many there are, such as processes://8"),
    ],
)
def test_what_is_no_executor_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message), open_executor(text):
        pass
