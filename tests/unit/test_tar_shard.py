"""Reading by row: what was written comes back; a shard or index that changed, and a row that cannot be read, say so."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from omniloom.data.shards import tar_shard
from omniloom.data.shards.pool import OpenFile, Pool
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError, SampleError, ShardError
from tests.contract.archive_blocks import (
    END,
    header,
    long_name,
    member,
    open_indexed,
    pax,
    rows_of,
    write,
    write_index,
)

ROOT = Path(__file__).resolve().parents[2]


def foreign(path: Path, offsets: list[int]) -> TarShard:
    """A shard that only Energon indexed."""
    write_index(path, offsets)
    return TarShard(path, name=path.name, samples=len(offsets) - 1)


def stale(shard: TarShard, row: int, told: str) -> None:
    with pytest.raises(ShardError, match=told) as caught:
        shard.read(row)
    assert caught.value.reason == "index-stale"
    assert caught.value.shard == shard.name
    assert "omniloom prepare" in str(caught.value)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    pieces = [member(f"{row}.{part}", f"{row}{part}".encode()) for row in range(3) for part in ("jpg", "txt")]
    return write(tmp_path / "s.tar", *pieces, END)


def test_rows_parts_and_places(three: Path) -> None:
    shard = open_indexed(three)
    assert len(shard) == 3
    assert shard.read(1) == ("1", {"jpg": b"1jpg", "txt": b"1txt"})
    assert shard.read(1, frozenset({"txt", "none"})) == ("1", {"txt": b"1txt"})
    assert shard.read(1, frozenset()) == ("1", {})
    assert shard.byte_range(0) == (0, 2048)
    assert shard.byte_range(2) == (4096, 6144)
    key, spans = shard.spans(2)
    assert (key, spans["txt"]) == ("2", (str(three), 5632, 5636))
    assert three.read_bytes()[slice(*spans["jpg"][1:])] == b"2jpg"
    for row in (3, -1, 1 << 40):
        with pytest.raises(IndexError, match=r"s\.tar.*3 samples"):
            shard.read(row)


def test_the_first_sample_begins_at_zero_whatever_the_index_says(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", header("d/", kind=b"5"), member("a.x", b"a"), member("b.x", b"b"), END)
    shard = open_indexed(path)
    assert (tmp_path / "s.tar.idx").read_bytes()[:8] == (512).to_bytes(8, "little")
    assert shard.byte_range(0) == (0, 1536)
    assert rows_of(shard) == {"a": {"x": b"a"}, "b": {"x": b"b"}}


def test_headers_of_every_dialect(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar",
        pax(mtime="1.5"), member("a.x", b"1"), pax(mtime="1.5", atime="2", ctime="3"), member("a.y", b"2"),
        long_name("n" * 150 + ".x"), member("n", b"3"), pax(path="p" * 300 + ".x", mtime="5"), member("p", b"4"),
        member("c.x", b"5", prefix=b"some/folder"), member("v.x", b"6", b"\0", magic=b""), END,
    )  # fmt: skip
    assert rows_of(open_indexed(path)) == {
        "a": {"x": b"1", "y": b"2"}, "n" * 150: {"x": b"3"}, "p" * 300: {"x": b"4"}, "some/folder/c": {"x": b"5"},
        "v": {"x": b"6"},
    }  # fmt: skip


def test_the_last_dot_without_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", member("1.5.x", b"a"), member("1.6.x", b"b"), END)
    write_index(path, [0, 1024, 2048])
    assert rows_of(TarShard(path, name="s", samples=2, rule="last-dot")) == {"1.5": {"x": b"a"}, "1.6": {"x": b"b"}}


# Rows of an index that Energon wrote


def test_parts_twice_in_a_row(tmp_path: Path) -> None:
    shard = foreign(write(tmp_path / "s.tar", member("a.x", b"1"), member("a.x", b"2"), END), [0, 2048])
    with pytest.raises(SampleError, match=r"s\.tar: row 0.*'x', at bytes 0 and 1,024") as caught:
        shard.read(0)
    assert caught.value.reason == "duplicate"


@pytest.mark.parametrize("kind", [b"1", b"2"])
def test_links_in_a_row_are_never_left_out_in_silence(tmp_path: Path, kind: bytes) -> None:
    path = write(
        tmp_path / "s.tar", member("a.x", b"1"), header("a.y", kind=kind, link="a.x"), member("b.x", b"2"), END
    )
    shard = foreign(path, [0, 1536, 2560])
    with pytest.raises(SampleError, match=r"row 0.*'a\.y' at byte 1,024 is a link to 'a\.x'") as caught:
        shard.read(0)
    assert caught.value.reason == "link"
    assert shard.read(1) == ("b", {"x": b"2"})


def test_links_that_belong_to_no_sample_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", member("a.x", b"1"), header("latest", kind=b"2", link="a.x"), END)
    assert rows_of(open_indexed(path)) == {"a": {"x": b"1"}}


def test_a_global_header_that_names_members(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", pax(b"g", path="all.x"), member("a.x", b"1"), member("b.x", b"2"), END)
    stale(foreign(path, [1024, 2048, 3072]), 1, "global header")


def test_a_compressed_shard(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tgz", b"\x1f\x8b" + b"packed" * 1000)
    write_index(tmp_path / "s.tar", [0, 1024])
    with pytest.raises(ShardError, match=r"omniloom convert tar .*s\.tgz --out .*s\.tar") as caught:
        TarShard(path, name="s.tgz", samples=1).read(0)
    assert caught.value.reason == "compressed"


# Shards and indexes that changed


def test_a_shard_of_another_size(three: Path) -> None:
    shard = open_indexed(three)
    with three.open("ab") as file:
        file.write(bytes(512))
    stale(shard, 0, "7,680 bytes now and had 7,168")
    stale(shard, 0, "7,680 bytes now and had 7,168")  # and not only the first time


def test_a_shard_that_grows_while_it_is_closed(three: Path) -> None:
    shard = open_indexed(three)
    assert shard.read(0)[0] == "0"
    shard.close()
    with three.open("ab") as file:
        file.write(bytes(512))
    stale(shard, 0, "7,680 bytes now")


def test_a_shard_that_changes_where_nobody_looked(tmp_path: Path) -> None:
    members = [member(f"{row:03}.x", b"x" * 100) for row in range(200)]
    path = write(tmp_path / "s.tar", *members, END)
    shard = open_indexed(path)
    data = bytearray(path.read_bytes())
    data[1024 + 10] ^= 1
    path.write_bytes(bytes(data))
    assert shard.read(0)[0] == "000"
    stale(shard, 1, r"sample 1 at byte 1,024 .*checksum")
    data[1024 : 1024 + 512] = bytes(512)
    path.write_bytes(bytes(data))
    stale(shard, 1, r"sample 1 at byte 1,024 .*empty block")


def test_an_index_that_is_not_of_this_shard(three: Path) -> None:
    stale(foreign(three, [0, 2048, 4096, 5120]), 0, "index ends at byte 5,120")
    stale(foreign(three, [0, 2048, 4096, 9_216]), 2, "after the end of the file")
    stale(foreign(three, [0, 2048, 6144]), 1, "members of '1' and of '2'")
    stale(foreign(three, [0, 1500, 4096, 6144]), 0, "sample 1 has no header at byte 1,500")
    shard = foreign(three, [0, 2048, 4096, 6144])
    shard.samples = 4
    stale(shard, 0, r"lists 3 samples and .*4")


def test_damaged_and_missing_indexes(three: Path) -> None:
    shard = TarShard(three, name="s.tar", samples=3)
    index = three.with_suffix(".tar.idx")
    for content, told in ((None, "no index"), (b"", "0 bytes"), (b"x" * 33, "33 bytes"), (bytes(32), "do not rise")):
        if content is not None:
            index.write_bytes(content)
        with pytest.raises(DatasetError, match=told):
            shard.read(0)
    write_index(three, [0, 4096, 2048, 6144])
    with pytest.raises(DatasetError, match="do not rise"):
        shard.read(0)


def test_a_missing_shard(tmp_path: Path) -> None:
    write_index(tmp_path / "s.tar", [0, 1024])
    with pytest.raises(ShardError, match=r"s\.tar.*no file") as caught:
        TarShard(tmp_path / "s.tar", name="s.tar", samples=1).read(0)
    assert caught.value.reason == "missing-shard"


def test_a_parts_table_of_an_older_shard(tmp_path: Path) -> None:
    names = ("a.x", "b.x", "a.y", "b.y")
    path = write(tmp_path / "s.tar", *(member(name, name.encode()) for name in names), END)
    shard = open_indexed(path, known=False)
    assert rows_of(shard) == {"a": {"x": b"a.x", "y": b"a.y"}, "b": {"x": b"b.x", "y": b"b.y"}}
    assert shard.read(1, frozenset({"y"})) == ("b", {"y": b"b.y"})
    assert shard.spans(0)[1]["y"] == (str(path), 2560, 2563)
    assert shard.byte_range(0) == (512, 2563)
    write(path, *(member(name, name.encode() * 300) for name in names), END)
    stale(shard, 0, "no sound header before it")
    os.truncate(path, 2_000)
    stale(shard, 0, "header before it|end of the file")


# Long samples


def test_parts_over_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", member("a.x", b"x" * 5_000), member("a.y", b"small"), member("b.x", b"b"), END)
    shard = open_indexed(path, limit=4_000)
    for wanted in (None, frozenset({"x"})):
        with pytest.raises(SampleError, match=r"s\.tar: row 0: part 'x' has 5,000 bytes; at most 4,000") as caught:
            shard.read(0, wanted)
        assert caught.value.reason == "too-large"
    assert shard.read(0, frozenset({"y"})) == ("a", {"y": b"small"})
    assert shard.read(1) == ("b", {"x": b"b"})
    assert shard.spans(0)[1]["x"][1:] == (512, 5_512)


def test_a_sample_of_small_parts_may_be_larger_than_the_limit(tmp_path: Path) -> None:
    pieces = [member(f"a.{part}", b"x" * 900) for part in range(9)]
    shard = open_indexed(write(tmp_path / "s.tar", *pieces, END), limit=1_000)
    assert {part: len(data) for part, data in shard.read(0)[1].items()} == {str(part): 900 for part in range(9)}


def test_parts_that_are_not_wanted_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "s.tar", member("a.bin", b"x" * 3_000_000), member("a.txt", b"text"), END)
    shard = open_indexed(path)
    read_bytes = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *given: read_bytes.append(given[1]) or pread(*given))
    assert shard.read(0, frozenset({"txt"})) == ("a", {"txt": b"text"})
    assert sum(read_bytes) < 50_000
    assert len(shard.read(0)[1]["bin"]) == 3_000_000


# Files that are open


def descriptors() -> set[str]:
    return {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def test_a_closed_shard_opens_again(three: Path) -> None:
    shard = open_indexed(three)
    shard.close()
    for _ in range(2):
        assert shard.read(0)[0] == "0"
        assert str(three) in descriptors()
        shard.close()
        assert str(three) not in descriptors()
    shard.read(0)
    del shard
    gc.collect()
    assert str(three) not in descriptors()


def test_a_shard_pickles_closed(three: Path) -> None:
    shard = open_indexed(three)
    small = len(pickle.dumps(shard))
    shard.read(0)
    data = pickle.dumps(shard)
    assert len(data) - small < 100
    assert pickle.loads(data).read(2) == shard.read(2)


def read_one(shard: TarShard) -> str:
    return shard.read(2)[0]


def test_an_open_shard_survives_a_fork(three: Path) -> None:
    shard = open_indexed(three)
    shard.read(0)
    with multiprocessing.get_context("fork").Pool(2) as processes:
        assert processes.map(read_one, [shard] * 4) == ["2"] * 4


def test_few_files_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_shard, "_FILES", Pool("file", 5))
    shards = [open_indexed(write(tmp_path / f"{at}.tar", member(f"k{at}.x", b"x"), END)) for at in range(20)]
    order = [at for at in range(20) for _ in range(3)]
    Random(1).shuffle(order)
    for at in order:
        assert shards[at].read(0)[0] == f"k{at}"
        assert sum(name.startswith(str(tmp_path)) for name in descriptors()) <= 5
    monkeypatch.setattr(tar_shard, "_TABLES", Pool("offsets", 50))  # 16 bytes a shard
    for at in order:
        shards[at].close()
        assert shards[at].read(0)[0] == f"k{at}"


MANY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from omniloom.data.shards.tar_shard import TarShard
{later}
paths = sorted(Path(sys.argv[1]).glob("*.tar"))
shards = [TarShard(path, name=path.name, samples=1) for path in paths]
for _ in range(2):
    assert [shard.read(0)[1]["x"] for shard in shards] == [path.stem.encode() for path in paths]
print(len(paths))
"""


@pytest.mark.parametrize("later", ["", "resource.setrlimit(resource.RLIMIT_NOFILE, (14, 64))"])
def test_two_hundred_shards_under_a_limit_of_open_files(tmp_path: Path, later: str) -> None:
    for at in range(200):
        write(tmp_path / f"{at:03}.tar", member("a.x", f"{at:03}".encode()), END)
        write_index(tmp_path / f"{at:03}.tar", [0, 1024])
    command = [sys.executable, "-c", MANY.format(later=later), str(tmp_path), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "200"), run.stderr


def test_threads_never_read_from_a_file_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_shard, "_FILES", Pool("file", 2))
    shards = [
        open_indexed(write(tmp_path / f"{at}.tar", *(member(f"{at}-{row}.x") for row in range(9)), END))
        for at in range(6)
    ]
    wrong: list[object] = []

    def run(seed: int) -> None:
        random = Random(seed)
        try:
            for _ in range(1500):
                at, row = random.randrange(6), random.randrange(9)
                if shards[at].read(row)[0] != f"{at}-{row}":
                    wrong.append((at, row))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# The pool


class Held:
    def __init__(self) -> None:
        self.released: list[str] = []

    def release(self, what: str) -> None:
        self.released.append(what)


def test_the_pool_counts_weights_and_forgets_the_dead() -> None:
    pool = Pool("thing", 10)
    one, two, three = Held(), Held(), Held()
    pool.keep(one, 4)
    pool.keep(two, 4)
    pool.keep(one, 4)  # made again: now the younger
    pool.keep(three, 4)
    assert (one.released, two.released, three.released) == ([], ["thing"], [])
    pool.forget(three)
    del one
    gc.collect()
    assert len(pool) == 0
    pool.keep(two, 100)  # one too heavy is kept all the same
    assert len(pool) == 1
    pool.keep(three, 1)
    assert two.released == ["thing", "thing"]
    assert pool.shrink() == 1
    assert three.released == ["thing"]
    assert pool.shrink() == 0


def test_a_file_closes_with_its_last_reader(three: Path) -> None:
    descriptor = os.open(three, os.O_RDONLY)
    file = OpenFile(descriptor)
    reader = file
    del file
    assert os.fstat(descriptor).st_size
    del reader
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_limit_of_files_fits_the_process() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 8 <= tar_shard._FILES.capacity <= max(8, limit)


def test_a_file_that_outlives_its_modules_closes_in_silence() -> None:
    program = (
        "import os, omniloom.data.shards.pool as pool\n"
        "file = pool.OpenFile(os.open(os.devnull, os.O_RDONLY)); number = file.descriptor\n"
        "fstat = os.fstat; pool.os = None; del file\n"  # what the end of an interpreter does to a module
        "try: fstat(number)\nexcept OSError: print('closed')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("closed\n", "")
