"""What preparing a data set promises: nothing twice, nothing half, nothing lost, everything named."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.index import layout
from omniloom.data.index.database import look_up
from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.prepare import Progress, prepare_dataset
from omniloom.data.index.sidecar import write_sidecar
from omniloom.data.index.split_plan import SplitPlan
from omniloom.data.index.work_folder import open_work_folder
from omniloom.data.shards.parts_table import PartsTable
from omniloom.data.shards.scan import scan_shard
from omniloom.errors import (
    BadShardsError,
    ConfigError,
    DatasetError,
    ShardError,
    StorageError,
    WorkerError,
)

Member = tuple[str, bytes]


def _tar(path: Path, *members: Member | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for each in members:
            name, data = (each, b"x") if isinstance(each, str) else each
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = 0 if name.endswith("/") else len(data)
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def _set(root: Path, shards: Iterable[int] = range(4)) -> Path:
    for number in shards:
        _tar(root / f"s{number}.tar", *(f"{number}{row}.{part}" for row in range(3) for part in ("jpg", "txt")))
    return root


def _files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def _content(root: Path) -> dict[str, Any]:
    """Everything but what is random."""
    found: dict[str, Any] = {}
    for name in sorted(_files(root)):
        path = root / name
        if name.endswith(("index.uuid", ".tar")):
            continue
        if name.endswith("omniloom.json"):
            found[name] = json.loads(path.read_text()) | {"index_uuid": ""}
        elif name.endswith(".sqlite"):
            with sqlite3.connect(path) as db:
                tables = ("samples", "sample_parts")
                found[name] = {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall()) for table in tables}
                found[name]["schema"] = sorted(db.execute("SELECT name, sql FROM sqlite_master").fetchall(), key=str)
        else:
            found[name] = path.read_bytes()
    return found


def _index(root: Path) -> dict[str, int]:
    return json.loads((root / ".nv-meta/.info.json").read_text())["shard_counts"]


# --- once, and again


def test_a_second_run_scans_nothing_and_changes_nothing(tmp_path: Path) -> None:
    root = _set(tmp_path)
    first = prepare_dataset(root, num_workers=1)
    before = _content(root)
    times = {path: path.stat().st_mtime_ns for path in root.glob("*.idx")}
    second = prepare_dataset(root, num_workers=1)
    assert (first.reused, second.reused) == (0, 4)
    assert _content(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.glob("*.idx")} == times
    assert _files(root) == {
        *(f"s{n}.tar" for n in range(4)),
        *(f"s{n}.tar.idx" for n in range(4)),
        *(f".nv-meta/parts/s{n}.tar.parts" for n in range(4)),
        *(f".nv-meta/{name}" for name in (".info.json", "split.yaml", "index.sqlite", "index.uuid", "omniloom.json")),
    }


@pytest.mark.parametrize("sqlite", [True, False])
def test_appended_shards_are_scanned_alone(sqlite: bool, tmp_path: Path) -> None:
    root = _set(tmp_path / "grown", range(1, 4))
    prepare_dataset(root, num_workers=1, sqlite=sqlite)
    _set(root, [0, 4])  # one before the others, so that all numbers of shards shift
    prepared = prepare_dataset(root, num_workers=1, sqlite=sqlite)
    assert (prepared.reused, len(prepared.shard_counts)) == (3, 5)
    fresh = _set(tmp_path / "fresh", range(5))
    for path in root.glob("*.tar"):
        os.utime(fresh / path.name, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    prepare_dataset(fresh, num_workers=1, sqlite=sqlite)
    assert _content(root) == _content(fresh)


def test_a_changed_shard_is_scanned_again(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    _tar(root / "s2.tar", "new.txt")
    prepared = prepare_dataset(root, num_workers=1)
    assert (prepared.reused, prepared.shard_counts["s2.tar"]) == (3, 1)
    # Same size, same name, other content: the time of change tells.
    status = (root / "s1.tar").stat()
    _tar(root / "s1.tar", *(f"9{row}.{part}" for row in range(3) for part in ("jpg", "txt")))
    assert (root / "s1.tar").stat().st_size == status.st_size
    os.utime(root / "s1.tar", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert prepare_dataset(root, num_workers=1).reused == 3
    assert look_up(root, "90").shard == "s1.tar"


def test_other_rules_scan_again(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    assert prepare_dataset(root, num_workers=1, rule="last-dot").reused == 0
    assert prepare_dataset(root, num_workers=1, rule="last-dot", on_duplicate="first").reused == 4


def test_removed_shards_leave_nothing_behind(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    (root / "s3.tar").unlink()
    prepared = prepare_dataset(root, num_workers=1, sqlite=False)
    assert list(prepared.shard_counts) == ["s0.tar", "s1.tar", "s2.tar"]
    assert not (root / ".nv-meta/parts/s3.tar.parts").exists()
    assert not (root / ".nv-meta/index.sqlite").exists()  # it would tell of a shard that is gone


# --- interrupted


class _StoppedError(Exception):
    pass


def _stop_after(shards: int) -> Any:
    def callback(progress: Progress) -> None:
        if progress.shards == shards:
            raise _StoppedError

    return callback


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    root = _set(tmp_path)
    with pytest.raises(_StoppedError):
        prepare_dataset(root, num_workers=1, progress=_stop_after(2))
    assert {name for name in _files(root) if not name.endswith(".tar")} == {
        ".nv-meta/.partial/parts/s0.tar.parts",
        ".nv-meta/.partial/parts/s1.tar.parts",
    }
    with pytest.raises(DatasetError, match="is not prepared"):
        open_dataset(root)
    assert prepare_dataset(root, num_workers=1).reused == 2
    assert not (root / ".nv-meta/.partial").exists()


def test_nothing_is_left_when_nothing_was_finished(tmp_path: Path) -> None:
    root = _set(tmp_path)
    with pytest.raises(_StoppedError):
        prepare_dataset(root, num_workers=1, progress=_stop_after(0))
    assert not (root / ".nv-meta").exists()


_KILLED = """
import os, signal, sys
from omniloom.data.index.prepare import prepare_dataset

def callback(progress):
    if progress.shards == 3:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    prepare_dataset(sys.argv[1], num_workers=int(sys.argv[2]), progress=callback)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_run_does_not_block_the_next(workers: str, tmp_path: Path) -> None:
    root = _set(tmp_path / "set")
    (tmp_path / "killed.py").write_text(_KILLED)
    done = subprocess.run([sys.executable, tmp_path / "killed.py", root, workers], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert ".nv-meta/.partial/index.sqlite" in _files(root)
    prepared = prepare_dataset(root, num_workers=1)
    assert prepared.reused >= 3
    assert not (root / ".nv-meta/.partial").exists()
    assert open_dataset(root).samples == 12


def test_a_crash_while_files_are_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    _set(root, [5])
    moved = []

    def crash(source: Any, target: Any, **_: Any) -> None:
        moved.append(str(target))
        if len(moved) == 3:
            raise _StoppedError
        Path(source).replace(target)

    with monkeypatch.context() as patch:
        patch.setattr("omniloom.data.index.sidecar.move_file", crash)
        with pytest.raises(_StoppedError):
            prepare_dataset(root, num_workers=1)
    with pytest.raises(DatasetError, match="was interrupted while it put its files in place"):
        open_dataset(root)
    assert prepare_dataset(root, num_workers=1).reused == 5
    assert open_dataset(root).samples == 15
    assert not (root / ".nv-meta/.partial").exists()


def test_leftovers_of_an_aborted_energon_run_do_not_block(tmp_path: Path) -> None:
    root = _set(tmp_path)
    (root / ".nv-meta").mkdir()
    (root / ".nv-meta/index.sqlite").write_bytes(b"half")
    (root / "s0.tar.idx.tmp").write_bytes(b"half")
    prepare_dataset(root, num_workers=1)
    assert look_up(root, "31").shard == "s3.tar"


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    root = _set(tmp_path)
    with open_work_folder(root), pytest.raises(DatasetError, match="another process is preparing this data set"):
        prepare_dataset(root, num_workers=1)
    prepare_dataset(root, num_workers=1)


# --- shards that cannot be used


def _break(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1024 + 148] ^= 1  # the checksum of the second header
    path.write_bytes(data)


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_shards_are_all_listed_after_the_others_were_scanned(workers: int, tmp_path: Path) -> None:
    root = _set(tmp_path)
    _break(root / "s1.tar")
    (root / "s2.tar").write_bytes(b"")
    with pytest.raises(BadShardsError) as error:
        prepare_dataset(root, num_workers=workers)
    faults = {fault.shard: (fault.reason, fault.offset_bytes) for fault in error.value.faults}
    assert faults == {"s1.tar": ("bad-checksum", 1024), "s2.tar": ("empty-file", 0)}
    assert "2 of 4 shards cannot be used" in str(error.value)
    assert "--skip-bad-shards" in str(error.value)
    assert {name for name in _files(root) if not name.endswith(".tar")} == {
        ".nv-meta/.partial/parts/s0.tar.parts",
        ".nv-meta/.partial/parts/s3.tar.parts",
    }
    _set(root, [1, 2])
    assert prepare_dataset(root, num_workers=workers).reused == 2
    assert open_dataset(root).samples == 12


def test_a_failing_run_leaves_the_old_preparation_whole(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    before = _content(root)
    (root / "s9.tar").write_bytes(b"")
    with pytest.raises(BadShardsError):
        prepare_dataset(root, num_workers=1)
    assert _content(root) == before
    assert open_dataset(root).samples == 12


def test_bad_shards_can_be_left_out(tmp_path: Path) -> None:
    root = _set(tmp_path)
    _break(root / "s1.tar")
    prepared = prepare_dataset(root, num_workers=1, skip_bad_shards=True, split_ratio="2,1,0")
    assert [fault.shard for fault in prepared.faults] == ["s1.tar"]
    assert list(_index(root)) == ["s0.tar", "s2.tar", "s3.tar"]
    assert prepared.split_parts == {"train": ["s0.tar", "s2.tar"], "val": ["s3.tar"], "test": []}
    assert json.loads((root / ".nv-meta/omniloom.json").read_text())["bad_shards"] == {"s1.tar": "bad-checksum"}
    assert not (root / "s1.tar.idx").exists()


def test_all_shards_bad(tmp_path: Path) -> None:
    _tar(tmp_path / "s0.tar").write_bytes(b"")
    with pytest.raises(DatasetError, match="there is not one sample"):
        prepare_dataset(tmp_path, num_workers=1, skip_bad_shards=True)
    assert _files(tmp_path) == {"s0.tar"}


def test_empty_shards_are_listed_and_left_out(tmp_path: Path) -> None:  # C13
    root = _set(tmp_path, [1])
    (root / "a-zeros.tar").write_bytes(bytes(10_240))
    _tar(root / "b-folders.tar", "d/", "d/e/")
    prepared = prepare_dataset(root, num_workers=1)
    assert prepared.facts.empty_shards == ["a-zeros.tar", "b-folders.tar"]
    assert _index(root) == {"s1.tar": 3}
    (root / "c-nothing.tar").write_bytes(b"")
    with pytest.raises(BadShardsError, match="empty-file"):
        prepare_dataset(root, num_workers=1)


def test_zero_samples_in_total_is_an_error(tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", "d/")
    with pytest.raises(DatasetError, match=r"there is not one sample; shards without samples: a\.tar"):
        prepare_dataset(tmp_path, num_workers=1)
    assert not (tmp_path / ".nv-meta/.info.json").exists()


def test_an_empty_part_is_refused_before_anything_is_scanned(tmp_path: Path) -> None:
    root = _set(tmp_path, [0])
    with pytest.raises(DatasetError, match="split part 'train' would be empty"):
        prepare_dataset(root, split_ratio="9,1,0")
    assert not (root / ".nv-meta").exists()
    (root / "z.tar").write_bytes(bytes(10_240))  # two shards, but only one has samples
    with pytest.raises(DatasetError, match="split part 'train' would be empty"):
        prepare_dataset(root, split_ratio="1,1,0", num_workers=1)
    assert not (root / ".nv-meta/.info.json").exists()


def test_a_shard_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path)

    def scan_and_touch(path: str, **options: Any) -> Any:
        found = scan_shard(path, **options)
        if path.endswith("s1.tar"):
            os.utime(path, ns=(0, 0))
        return found

    monkeypatch.setattr("omniloom.data.index.scanning.scan_shard", scan_and_touch)
    with pytest.raises(BadShardsError, match=r"\[changed\] s1\.tar: changed while it was read"):
        prepare_dataset(root, num_workers=1)


# --- what is no shard


@pytest.mark.parametrize("name", ["x.tgz", "deep/x.tar.gz", "x.tar.zst"])
def test_compressed_archives_are_refused_with_the_command(name: str, tmp_path: Path) -> None:
    root = _set(tmp_path)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(b"\x1f\x8b")
    with pytest.raises(DatasetError) as error:
        prepare_dataset(root)
    assert f"omniloom convert tar {root}/{name} --out {root}/{name.split('.', maxsplit=1)[0]}.tar" in str(error.value)
    assert len(prepare_dataset(root, exclude=r"x\.t", num_workers=1).shard_counts) == 4
    assert len(prepare_dataset(root, skip_bad_shards=True, num_workers=1).shard_counts) == 4


def test_where_shards_are_looked_for(tmp_path: Path) -> None:
    for name in ("b.tar", "a-b/x.tar", "a/x.tar", "A.tar", "a/deep/er.tar"):
        _tar(tmp_path / "set" / name, f"{name.replace('.', '_')}.txt")
    _tar(tmp_path / "set/.hidden/x.tar", "h.txt")
    _tar(tmp_path / "set/._b.tar", "h.txt")
    _tar(tmp_path / "elsewhere/l.tar", "l.txt")
    (tmp_path / "set/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/loop").symlink_to(tmp_path / "set")
    prepared = prepare_dataset(tmp_path / "set", num_workers=1)
    assert list(prepared.shard_counts) == ["A.tar", "a/deep/er.tar", "a/x.tar", "a-b/x.tar", "b.tar", "link/l.tar"]


def test_named_shards_keep_their_order(tmp_path: Path) -> None:
    root = _set(tmp_path)
    assert list(prepare_dataset(root, shards=["s{3..2}.tar", "s0.tar"], num_workers=1).shard_counts) == [
        "s3.tar", "s2.tar", "s0.tar",
    ]  # fmt: skip
    with pytest.raises(BadShardsError, match=r"\[missing-shard\] s7\.tar"):
        prepare_dataset(root, shards=["s7.tar"], num_workers=1)
    for names, told in ((["s0.tar", "s0.tar"], "named twice"), (["../x.tar"], "outside the data set")):
        with pytest.raises(DatasetError, match=told):
            prepare_dataset(root, shards=names)


def test_a_folder_without_shards_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no \*\.tar file below this folder"):
        prepare_dataset(tmp_path)
    (tmp_path / "file.yaml").touch()
    with pytest.raises(DatasetError, match="expected a folder of shards, found a file"):
        prepare_dataset(tmp_path / "file.yaml")
    with pytest.raises(DatasetError, match="found nothing"):
        prepare_dataset(tmp_path / "missing")
    assert not (tmp_path / ".nv-meta").exists()


def test_unusable_arguments(tmp_path: Path) -> None:
    root = _set(tmp_path)
    for words, told in (
        ({"exclude": "("}, "no regular expression"),
        ({"rule": "middle-dot"}, "expected one of"),
        ({"split_config": "split.toml"}, "ends in"),
        ({"split_ratio": {"train": 0.0}}, "sum above 0"),
        ({"split_parts": ["a:b"], "keep_split": True}, "contradict"),
    ):
        with pytest.raises(ConfigError, match=told):
            prepare_dataset(root, **words)  # type: ignore[arg-type]


def test_an_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path)
    (root / "locked").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError, match=r"cannot list .*locked: Permission denied"):
        prepare_dataset(root)


# --- a full disk


def _full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("suffix", [".parts", ".idx", ".info.json", "omniloom.json", "split.yaml"])
def test_a_full_disk_is_named_and_leaves_nothing_half(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _set(tmp_path)
    real_open = Path.open

    def open_unless_full(path: Path, mode: str = "r", *args: Any, **words: Any) -> Any:
        if "w" in mode and f"{suffix}." in path.name:
            file = real_open(path, mode, *args, **words)
            file.close()
            _full()
        return real_open(path, mode, *args, **words)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_unless_full)
        with pytest.raises(StorageError, match="No space left on device") as error:
            prepare_dataset(root, num_workers=1)
    assert error.value.errno == errno.ENOSPC
    left = {name for name in _files(root) if not name.endswith(".tar")}
    assert all(name.startswith(".nv-meta/.partial/parts/") and name.endswith(".parts") for name in left), left
    prepare_dataset(root, num_workers=1)
    assert open_dataset(root).samples == 12


def test_a_full_disk_under_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path
    for number in range(3):
        _tar(root / f"s{number}.tar", *(f"{number}-{row:04}-{'k' * 60}.txt" for row in range(300)))

    class SmallDatabase(sqlite3.Connection):
        def executemany(self, *words: Any) -> Any:
            self.execute("PRAGMA main.max_page_count=12")
            return super().executemany(*words)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", SmallDatabase)
        with pytest.raises(StorageError, match=r"cannot write the key database .*index\.sqlite: the disk is full"):
            prepare_dataset(root, num_workers=1)
    assert {name for name in _files(root) if not name.endswith(".tar")} <= {
        f".nv-meta/.partial/parts/s{number}.tar.parts" for number in range(3)
    }
    prepare_dataset(root, num_workers=1)


# --- where it runs


class _Recorder(Executor):
    """Runs in this thread and remembers what it was given."""

    def __init__(self) -> None:
        self.shards: list[str] = []

    def submit(self, work: Any, /, *words: Any, **named: Any) -> Future[Any]:
        self.shards.append(words[0].shard)
        future: Future[Any] = Future()
        try:
            future.set_result(work(*words, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def test_any_executor_will_do(tmp_path: Path) -> None:
    root = _set(tmp_path)
    recorder = _Recorder()
    prepare_dataset(root, executor=recorder)
    assert recorder.shards == [f"s{number}.tar" for number in range(4)]
    reference = _content(root)
    for executor in (ThreadPoolExecutor(3), ProcessPoolExecutor(2, mp_context=get_context("spawn"))):
        with executor:
            for path in (root / ".nv-meta/parts").iterdir():
                path.unlink()
            assert prepare_dataset(root, executor=executor).reused == 0
        assert _content(root) == reference


def _die(_request: Any) -> None:
    os._exit(9)


def test_a_scanning_process_that_dies_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path)
    monkeypatch.setattr("omniloom.data.index.scanning.scan_apart", _die)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as executor,
        pytest.raises(WorkerError, match=r"died while it read s0\.tar or a shard near it"),
    ):
        prepare_dataset(root, executor=executor)


def test_progress_counts_up_to_everything(tmp_path: Path) -> None:
    root = _set(tmp_path)
    (root / "s9.tar").write_bytes(b"")
    seen: list[Progress] = []
    prepare_dataset(root, num_workers=1, skip_bad_shards=True, progress=seen.append)
    size = sum(path.stat().st_size for path in root.glob("*.tar"))
    assert [each.shards for each in seen] == [0, 1, 2, 3, 4, 5, 5]
    assert seen[0] == Progress(0, 5, 0, 0, size, 0, 0, "scan")
    assert seen[-1] == Progress(5, 5, 12, size, size, 0, 1, "write")


# --- keys


def test_key_rules(tmp_path: Path) -> None:  # C01
    root = tmp_path
    _tar(root / "a.tar", "22.05.png", "22.06.png")
    prepared = prepare_dataset(root, num_workers=1)
    assert (prepared.samples, prepared.facts.dotted_keys) == (1, 2)
    assert prepared.facts.dotted_names == ["22.05.png", "22.06.png"]
    assert open_dataset(root).rule == "first-dot"
    prepared = prepare_dataset(root, num_workers=1, rule="last-dot")
    assert prepared.samples == 2
    index = open_dataset(root)
    assert index.rule == "last-dot"
    assert not prepared.facts.readable_by_energon
    table = PartsTable(index.shards[0].parts_path or "")
    assert [(key, [part[0] for part in parts]) for key, parts in map(table.row, range(2))] == [
        ("22.05", ["png"]),
        ("22.06", ["png"]),
    ]


def test_what_an_operating_system_left_is_ignored(tmp_path: Path) -> None:  # C03
    names = ("d/._a.jpg", "d/a.jpg", "d/._a.txt", "d/a.txt", ".DS_Store", "__MACOSX/d/._a.jpg")
    _tar(tmp_path / "a.tar", *names)
    prepared = prepare_dataset(tmp_path, num_workers=1)
    assert (prepared.samples, sum(prepared.facts.ignored.values())) == (1, 4)
    assert prepared.facts.part_counts == {"jpg": 1, "txt": 1}
    assert not prepared.facts.readable_by_energon  # to Energon, ._a.txt lies between the parts of another sample


@pytest.mark.parametrize("names", [("a.jpg", "a.jpg"), ("a.JPG", "a.jpg")])
def test_a_part_twice(names: tuple[str, str], tmp_path: Path) -> None:  # C14 a, b
    _tar(tmp_path / "a.tar", (names[0], b"1"), (names[1], b"22"), ("a.txt", b"t"))
    with pytest.raises(BadShardsError, match="bytes 0 and 1,024"):
        prepare_dataset(tmp_path, num_workers=1)
    for policy, size in (("first", 1), ("last", 2)):
        prepared = prepare_dataset(tmp_path, num_workers=1, on_duplicate=policy)  # type: ignore[arg-type]
        assert (prepared.samples, prepared.facts.dropped_duplicates) == (1, 1)
        parts = PartsTable(open_dataset(tmp_path).shards[0].parts_path or "").row(0)[1]
        assert [stop - start for _, start, stop in parts] == [size, 1]


@pytest.mark.parametrize("sqlite", [True, False])
def test_a_key_in_two_shards(sqlite: bool, tmp_path: Path) -> None:  # C14 c
    root = tmp_path
    for name in ("x.tar", "y.tar"):
        _tar(root / name, "a.txt", f"{name[0]}.txt")
    prepared = prepare_dataset(root, num_workers=1, sqlite=sqlite)
    assert (prepared.samples, prepared.facts.repeated_keys) == (4, 1)
    assert not prepared.facts.readable_by_energon
    if sqlite:
        with pytest.raises(DatasetError, match=r"'a' is ambiguous: it is in x\.tar \(row 0\) and y\.tar \(row 0\)"):
            look_up(root, "a")
    before = _content(root)
    with pytest.raises(DatasetError, match=r"'a' is in x\.tar \(row 0\) and y\.tar \(row 0\).*--fix-duplicates"):
        prepare_dataset(root, num_workers=1, sqlite=sqlite, duplicate_keys="error")
    assert _content(root) == before


def test_scattered_parts_are_put_together(tmp_path: Path) -> None:  # C15
    _tar(tmp_path / "a.tar", "a.jpg", "b.jpg", "a.txt", "b.txt")
    prepared = prepare_dataset(tmp_path, num_workers=1)
    assert (prepared.samples, prepared.facts.interleaved) == (2, 2)
    assert not prepared.facts.readable_by_energon
    (shard,) = open_dataset(tmp_path).shards
    assert shard.parts_path is not None
    table = PartsTable(shard.parts_path)
    assert [[part[0] for part in table.row(row)[1]] for row in range(2)] == [["jpg", "txt"], ["jpg", "txt"]]


# --- parts of the sidecar alone


def test_index_only(tmp_path: Path) -> None:
    root = _set(tmp_path)
    with pytest.raises(DatasetError, match="is not prepared"):
        prepare_dataset(root, tar_index_only=True)
    prepare_dataset(root, split_ratio="3,1,0", num_workers=1)
    before = _content(root)
    for path in (*root.glob("*.idx"), root / ".nv-meta/index.sqlite", root / ".nv-meta/omniloom.json"):
        path.unlink()
    info = json.loads((root / ".nv-meta/.info.json").read_text())
    (root / ".nv-meta/.info.json").rename(root / ".nv-meta/.info.yaml")  # JSON is YAML, and the old form is read
    _set(root, [7])  # not in the list of shards, so not indexed
    prepare_dataset(root, tar_index_only=True, num_workers=1)
    assert not (root / "s7.tar.idx").exists()
    after = _content(root)
    assert json.loads(after.pop(".nv-meta/.info.json"))["shard_counts"] == info["shard_counts"]
    after.pop(".nv-meta/.info.yaml")
    before.pop(".nv-meta/.info.json")
    assert after == before
    _tar(root / "s0.tar", "other.txt")
    with pytest.raises(DatasetError, match=r"s0\.tar: holds 1 samples, but \.info\.json says 3"):
        prepare_dataset(root, tar_index_only=True, num_workers=1)


def test_the_old_info_file_is_kept_in_step(tmp_path: Path) -> None:
    root = _set(tmp_path)
    (root / ".nv-meta").mkdir()
    (root / ".nv-meta/.info.yaml").write_text("shard_counts: {old.tar: 1}\n")
    prepare_dataset(root, num_workers=1)
    text = (root / ".nv-meta/.info.yaml").read_text()
    assert text == "energon_version: 7.4.1\nshard_counts:\n" + "".join(f"  s{number}.tar: 3\n" for number in range(4))


def test_a_sidecar_from_scans_at_hand_is_the_same(tmp_path: Path) -> None:
    root = _set(tmp_path / "a")
    prepare_dataset(root, split_ratio="1,1,0", num_workers=1)
    other = tmp_path / "b"
    other.mkdir()
    for path in root.glob("*.tar"):
        (other / path.name).hardlink_to(path)
    scans = (scan_shard(path, shard=path.name) for path in sorted(other.glob("*.tar")))
    write_sidecar(other, scans, plan=SplitPlan(ratio={"train": 1, "val": 1, "test": 0}))
    assert _content(other) == _content(root)
    assert prepare_dataset(other, num_workers=1).reused == 4


def test_split_parts_by_name_and_kept_splits(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepared = prepare_dataset(root, split_parts=["train:s[01]", "val:s3"], num_workers=1)
    assert prepared.split_parts == {"train": ["s0.tar", "s1.tar"], "val": ["s3.tar"]}
    _set(root, [4])
    prepared = prepare_dataset(root, keep_split=True, num_workers=1)
    # s2 was in no part: to a split that is kept it is as new as s4.
    assert prepared.split_parts == {"train": ["s0.tar", "s1.tar", "s2.tar", "s4.tar"], "val": ["s3.tar"]}
    assert prepare_dataset(root, split_ratio="3,2,0", num_workers=1).split_parts["val"] == ["s3.tar", "s4.tar"]


def test_permissions_follow_the_data(tmp_path: Path) -> None:
    root = _set(tmp_path / "set")
    root.chmod(0o750)
    for path in root.glob("*.tar"):
        path.chmod(0o640)
    prepare_dataset(root, num_workers=1)
    assert (root / ".nv-meta").stat().st_mode & 0o777 == 0o750
    for name in (".info.json", "split.yaml", "index.sqlite", "omniloom.json", "index.uuid"):
        assert (root / ".nv-meta" / name).stat().st_mode & 0o777 == 0o640, name
    assert (root / "s0.tar.idx").stat().st_mode & 0o777 == 0o640


def test_another_disk_for_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path / "set")
    real = Path.replace

    def other_disk(source: Path, target: Any) -> Any:
        if source.is_relative_to(tmp_path / "scratch"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return real(source, target)

    monkeypatch.setattr(Path, "replace", other_disk)
    prepare_dataset(root, num_workers=1, tmp_path=tmp_path / "scratch")
    assert look_up(root, "20").shard == "s2.tar"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_media_metadata_of_energon_is_kept(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    with sqlite3.connect(root / ".nv-meta/index.sqlite") as db:
        db.execute(
            "CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_type TEXT NOT NULL, "
            "metadata_json TEXT NOT NULL)"
        )
        db.execute("INSERT INTO media_metadata VALUES ('a.png', 'image', '{}')")
    db.close()
    with pytest.raises(DatasetError, match="holds media metadata, which would be lost"):
        prepare_dataset(root, num_workers=1, sqlite=False)
    prepare_dataset(root, num_workers=1)
    with sqlite3.connect(root / ".nv-meta/index.sqlite") as db:
        assert db.execute("SELECT * FROM media_metadata").fetchall() == [("a.png", "image", "{}")]
        assert len(db.execute("SELECT * FROM samples").fetchall()) == 12
    db.close()


def test_names_of_shards_that_no_list_can_hold(tmp_path: Path) -> None:
    root = _set(tmp_path)
    _tar(root / os.fsdecode(b"caf\xe9.tar"), "a.txt")
    with pytest.raises(DatasetError, match=r"caf\\udce9\.tar' is not UTF-8"):
        prepare_dataset(root)


def test_folders_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _set(tmp_path)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(root) and real(path, mode))
    with pytest.raises(StorageError, match=r"cannot write an index into .*: Permission denied"):
        prepare_dataset(root, num_workers=1)
    assert not (root / ".nv-meta/.info.json").exists()
    assert not list(root.glob("*.idx"))


def test_damaged_tables_are_made_again(tmp_path: Path) -> None:
    root = _set(tmp_path)
    prepare_dataset(root, num_workers=1)
    table = root / ".nv-meta/parts/s1.tar.parts"
    table.write_bytes(table.read_bytes()[:-5])
    with pytest.raises(ShardError):
        PartsTable(table).row(0)
    assert prepare_dataset(root, num_workers=1).reused == 3
    assert PartsTable(table).row(0)[0] == "10"


def test_replacing_a_file_is_one_step(tmp_path: Path) -> None:
    layout.replace_file(tmp_path / "a/b.txt", "new", mode=0o600)
    assert (tmp_path / "a/b.txt").read_text() == "new"
    assert _files(tmp_path) == {"a/b.txt"}
