"""The broken and surprising archives of real users, by number, each with the right answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omniloom.data.shards.scan import scan_shard
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import SampleError, ShardError
from tests.contract.archive_blocks import (
    END,
    header,
    long_name,
    member,
    open_indexed,
    pax,
    payload,
    rows_of,
    samples_of,
    write,
    write_index,
)

GNU_TAR = shutil.which("tar")


def rejected(path: Path, reason: str, offset_bytes: int | None, *told: str, **scanning: object) -> ShardError:
    with pytest.raises(ShardError) as caught:
        scan_shard(path, shard=path.name, **scanning)  # type: ignore[arg-type]
    error = caught.value
    assert (error.reason, error.offset_bytes) == (reason, offset_bytes)
    assert error.shard == path.name
    assert str(error).startswith(path.name)
    for words in told:
        assert words in str(error)
    return error


def test_c01_dots_in_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("22.05.png", b"five"), member("22.06.png", b"six"), END)
    scan = scan_shard(path, shard="a.tar")
    assert samples_of(path, scan) == {"22": {"05.png": b"five", "06.png": b"six"}}
    assert (scan.dotted_keys, scan.dotted_names) == (2, ("22.05.png", "22.06.png"))
    assert rows_of(open_indexed(path)) == {"22": {"05.png": b"five", "06.png": b"six"}}
    scan = scan_shard(path, shard="a.tar", rule="last-dot")
    assert samples_of(path, scan) == {"22.05": {"png": b"five"}, "22.06": {"png": b"six"}}
    assert scan.rule == "last-dot"
    assert scan.irregular
    assert rows_of(open_indexed(path, rule="last-dot")) == {"22.05": {"png": b"five"}, "22.06": {"png": b"six"}}


def test_c02_dots_in_folders(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("v1.0/0001.jpg", b"j"), member("v1.0/0001.txt", b"t"), END)
    assert samples_of(path, scan_shard(path, shard="a.tar")) == {"v1.0/0001": {"jpg": b"j", "txt": b"t"}}
    assert rows_of(open_indexed(path)) == {"v1.0/0001": {"jpg": b"j", "txt": b"t"}}


C03 = ("d/._a.jpg", "d/a.jpg", "d/._a.txt", "d/a.txt", ".DS_Store", "__MACOSX/d/._a.jpg")


def test_c03_files_that_macos_adds(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", *(member(name, name.encode()) for name in C03), END)
    scan = scan_shard(path, shard="a.tar")
    assert samples_of(path, scan) == {"d/a": {"jpg": b"d/a.jpg", "txt": b"d/a.txt"}}
    assert sum(scan.ignored.values()) == 4
    assert scan.ignored == {"apple-double": 3, "ds-store": 1}
    assert scan.junk_members == 3
    assert rows_of(open_indexed(path)) == {"d/a": {"jpg": b"d/a.jpg", "txt": b"d/a.txt"}}


def test_c03_an_index_of_energon_keeps_its_numbers(tmp_path: Path) -> None:
    # Energon's rows: d/ (._a.jpg), d/a (jpg), d/ (._a.txt), d/a (txt), __MACOSX/d/; each 1,024 bytes long, the
    # last but one with .DS_Store, which has no key.
    path = write(tmp_path / "a.tar", *(member(name, name.encode()) for name in C03), END)
    shard = open_indexed(path, known=False)
    write_index(path, [0, 1024, 2048, 3072, 5120, 6144])
    shard.samples = 5
    for row in (0, 2, 4):
        with pytest.raises(SampleError, match=f"row {row}") as caught:
            shard.read(row)
        assert caught.value.reason == "ignored-row"
    assert shard.read(1) == ("d/a", {"jpg": b"d/a.jpg"})
    assert shard.read(3) == ("d/a", {"txt": b"d/a.txt"})


def test_c04_links(tmp_path: Path) -> None:
    directories = (header("d/", kind=b"5"), header("d.x/", kind=b"5"))
    hard, soft = header("c.jpg", kind=b"1", link="a.jpg"), header("b.jpg", kind=b"2", link="a.jpg")
    path = write(tmp_path / "a.tar", *directories, member("a.jpg", b"pixels"), hard, member("c.txt", b"c"), END)
    scan = scan_shard(path, shard="a.tar")
    expected = {"a": {"jpg": b"pixels"}, "c": {"jpg": b"pixels", "txt": b"c"}}
    assert samples_of(path, scan) == expected
    assert (scan.ignored, scan.hard_links, scan.irregular) == ({"directory": 2}, 1, True)
    assert rows_of(open_indexed(path)) == expected
    path = write(tmp_path / "b.tar", *directories, member("a.jpg", b"pixels"), soft, hard, member("c.txt", b"c"), END)
    rejected(path, "link", 2048, "'b.jpg'", "'a.jpg'", "--dereference")


@pytest.mark.parametrize("front", [long_name("k" * 150 + ".txt"), pax(path="k" * 150 + ".txt")], ids=["gnu", "pax"])
def test_c05_long_keys(tmp_path: Path, front: bytes) -> None:
    path = write(
        tmp_path / "a.tar", member("0.txt", b"0"), front, member("k" * 100, b"long"), member("z.txt", b"z"), END
    )
    scan = scan_shard(path, shard="a.tar")
    assert list(map(len, scan.keys)) == [1, 150, 1]
    assert list(scan.offsets) == [0, 1024, 1024 + 1024 + 1024, 4096]
    data = path.read_bytes()
    assert data[scan.part_starts[1] : scan.part_stops[1]] == b"long"
    shard = open_indexed(path)
    assert not scan.irregular
    assert shard.read(1) == ("k" * 150, {"txt": b"long"})
    assert shard.spans(1)[1]["txt"] == (str(path), 3072 - 512, 3072 - 508)


@pytest.mark.skipif(GNU_TAR is None, reason="needs GNU tar")
@pytest.mark.parametrize("dialect", ["gnu", "posix"])
def test_c07_sparse_members_as_gnu_tar_writes_them(tmp_path: Path, dialect: str) -> None:
    with (tmp_path / "s.bin").open("wb") as file:
        file.write(b"HEAD")
        file.seek(1_048_576)
        file.write(b"TAIL")
    path = tmp_path / "a.tar"
    made = subprocess.run(
        [str(GNU_TAR), "-S", f"--format={dialect}", "-cf", str(path), "-C", str(tmp_path), "s.bin"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode or path.stat().st_size > 20_480:
        pytest.skip(f"this tar or file system stores no holes: {made.stderr!r}")
    rejected(path, "sparse", 0, "s.bin", "tar -S")


@pytest.mark.parametrize(
    "front",
    [
        member("s.bin", b"HEADTAIL", b"S", magic=b"ustar  \0"),
        pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="9") + member("s.bin", b"1\n0\n8\n"),
        pax(GNU__sparse__map="0,4,1048576,4", GNU__sparse__size="1048580") + member("s.bin", b"HEADTAIL"),
        pax(GNU__sparse__size="9", GNU__sparse__numblocks="1", GNU__sparse__offset="0") + member("s.bin", b"HEADTAIL"),
        pax(SCHILY__realsize="1048580") + member("s.bin", b"HEADTAIL"),
        pax(size="8", GNU__sparse__name="s.bin") + member("s.bin", b"HEADTAIL"),
    ],
    ids=["gnu", "pax-1.0", "pax-0.1", "pax-0.0", "star", "name-only"],
)
def test_c07_every_way_to_store_holes(tmp_path: Path, front: bytes) -> None:
    path = write(tmp_path / "a.tar", member("a.txt", b"a"), front, member("b.txt", b"b"), END)
    rejected(path, "sparse", 1024, "'s.bin'")
    write_index(path, [0, 1024, len(path.read_bytes()) - len(END) - 1024, len(path.read_bytes()) - len(END)])
    with pytest.raises(ShardError, match="sparse") as caught:
        open_foreign(path, 3).read(1)
    assert caught.value.reason == "sparse"


def open_foreign(path: Path, samples: int) -> TarShard:
    return TarShard(path, name=path.name, samples=samples)


@pytest.mark.parametrize(
    "front",
    [pax(size="5") + header("a.txt", 0), header("a.txt", b"\x80" + bytes(10) + b"\x05")],
    ids=["pax-size", "base-256"],
)
def test_c08_sizes_that_are_not_octal(tmp_path: Path, front: bytes) -> None:
    path = write(tmp_path / "a.tar", front, payload(b"hello"), member("b.txt", b"Z"), END)
    assert samples_of(path, scan_shard(path, shard="a.tar")) == {"a": {"txt": b"hello"}, "b": {"txt": b"Z"}}
    assert rows_of(open_indexed(path)) == {"a": {"txt": b"hello"}, "b": {"txt": b"Z"}}


C09_PROGRAM = """
import resource, sys, time
from pathlib import Path
from omniloom.data.shards.scan import scan_shard
from omniloom.errors import SampleError
sys.path.insert(0, sys.argv[2])
from tests.contract.archive_blocks import open_indexed
path = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
scan = scan_shard(path, shard="a.tar")
seconds = time.perf_counter() - begin
shard = open_indexed(path)
assert shard.read(0, frozenset({"txt"})) == ("big", {"txt": b"ok"}), "small part beside the big one"
for wanted in (None, frozenset({"bin"})):
    try:
        shard.read(0, wanted)
    except SampleError as error:
        assert error.reason == "too-large", error.reason
        assert "8,589,934,599" in str(error), str(error)
    else:
        raise SystemExit("read 8 GiB")
span = shard.spans(0)[1]["bin"]
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(seconds, grown // 1024, list(scan.part_starts), span.stop - span.start)
"""


def test_c09_members_over_8_gib_are_not_read(tmp_path: Path) -> None:
    size_bytes = 8_589_934_599
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        file.write(header("big.bin", b"\x80" + size_bytes.to_bytes(11, "big")))
        file.seek(8_589_936_128 - 512)
        file.write(member("big.txt", b"ok") + END)
    status = path.stat()
    assert status.st_size == 8_589_937_664
    if status.st_blocks * 512 > 1 << 20:
        pytest.skip("this file system stores no holes")
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        [sys.executable, "-c", C09_PROGRAM, str(path), str(root)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    seconds, grown_mib, rest = run.stdout.split(maxsplit=2)
    assert float(seconds) < 2
    assert int(grown_mib) < 64
    assert rest.split() == ["[512,", "8589936128]", "8589934599"]


def test_c10_one_wrong_checksum_byte(tmp_path: Path) -> None:
    data = bytearray(b"".join((member("a.txt", b"a"), member("b.txt", b"b"), member("c.txt", b"c"), END)))
    data[1024 + 150] ^= 1
    path = write(tmp_path / "a.tar", bytes(data))
    rejected(path, "bad-checksum", 1024, "byte 1,024")


C11 = b"".join((member("a.txt", b"a"), member("b.bin", b"b" * 3_500), member("c.txt", b"c"), END))


def test_c11_archives_that_are_cut(tmp_path: Path) -> None:
    assert len(C11) == 1024 + 512 + 3584 + 1024 + 1024
    rejected(write(tmp_path / "a.tar", C11[:1_224]), "truncated", 1024, "200 of 512", "312 bytes are missing")
    rejected(write(tmp_path / "b.tar", C11[:2_536]), "truncated", 1024, "'b.bin'", "2,500 bytes", "2,536")
    path = write(tmp_path / "c.tar", C11[:5_120])
    scan = scan_shard(path, shard="c.tar")
    assert (scan.keys, scan.has_end_marker) == (["a", "b"], False)
    rejected(path, "sample-count", 5_120, "2 samples, expected 3", expected_samples=3)
    scan = scan_shard(write(tmp_path / "d.tar", C11[:6_144]), shard="d.tar")
    assert (scan.keys, scan.has_end_marker) == (["a", "b", "c"], False)
    assert scan_shard(write(tmp_path / "e.tar", C11), shard="e.tar").has_end_marker


def test_c11_a_cut_at_every_byte_is_seen_or_loses_nothing(tmp_path: Path) -> None:
    whole = b"".join((member("a.txt", b"hello"), member("b.txt", b"b" * 600), END))
    borders = {0: 0, 1024: 1, 1024 + 512 + 1024: 2}
    path = tmp_path / "a.tar"
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        if cut in borders or cut > 2560:
            scan = scan_shard(path, shard="a.tar")
            assert len(scan.keys) == borders.get(cut, 2)
            assert scan.has_end_marker == (cut == len(whole))
        else:
            with pytest.raises(ShardError) as caught:
                scan_shard(path, shard="a.tar")
            assert caught.value.reason == "truncated", cut


def test_c13_archives_without_samples(tmp_path: Path) -> None:
    rejected(write(tmp_path / "a.tar"), "empty-file", 0, "0 bytes")
    for name, pieces in (
        ("b.tar", (bytes(10_240),)),
        ("c.tar", (header("d/", kind=b"5"), header("e.x/", kind=b"5"), END)),
    ):
        scan = scan_shard(write(tmp_path / name, *pieces), shard=name)
        assert (scan.keys, len(scan.offsets), scan.has_end_marker) == ([], 1, True)
    assert scan.ignored == {"directory": 2}


def test_c14_the_same_part_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.jpg", b"first"), member("a.jpg", b"last"), END)
    rejected(path, "duplicate", 1024, "'a'", "'jpg'", "bytes 0 and 1,024")
    for policy, kept in (("first", b"first"), ("last", b"last")):
        scan = scan_shard(path, shard="a.tar", on_duplicate=policy)  # type: ignore[arg-type]
        assert samples_of(path, scan) == {"a": {"jpg": kept}}
        assert scan.dropped_duplicates == 1
        assert rows_of(open_indexed(path, on_duplicate=policy)) == {"a": {"jpg": kept}}


def test_c14_parts_that_differ_in_case(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.JPG", b"upper"), member("a.jpg", b"lower"), END)
    rejected(path, "duplicate", 1024, "'JPG'", "'jpg'", "bytes 0 and 1,024")
    assert samples_of(path, scan_shard(path, shard="a.tar", on_duplicate="first")) == {"a": {"JPG": b"upper"}}
    assert samples_of(path, scan_shard(path, shard="a.tar", on_duplicate="last")) == {"a": {"jpg": b"lower"}}
    both = {"a": {"JPG": b"upper", "jpg": b"lower"}}
    assert samples_of(path, scan_shard(path, shard="a.tar", case_preserving=True)) == both
    assert rows_of(open_indexed(path, case_preserving=True)) == both


def test_c14_a_key_in_two_shards_is_no_matter_of_one_shard(tmp_path: Path) -> None:
    for name, data in (("a.tar", b"one"), ("b.tar", b"two")):
        assert rows_of(open_indexed(write(tmp_path / name, member("a.jpg", data), END))) == {"a": {"jpg": data}}


def test_c15_interleaved_samples(tmp_path: Path) -> None:
    names = ("a.jpg", "b.jpg", "a.txt", "b.txt")
    path = write(tmp_path / "a.tar", *(member(name, name.encode()) for name in names), END)
    scan = scan_shard(path, shard="a.tar")
    expected = {"a": {"jpg": b"a.jpg", "txt": b"a.txt"}, "b": {"jpg": b"b.jpg", "txt": b"b.txt"}}
    assert samples_of(path, scan) == expected
    assert (scan.interleaved, scan.irregular) == (2, True)
    assert rows_of(open_indexed(path)) == expected


def test_c17_empty_members_are_handed_on_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.jpg", b""), member("a.txt", b"good"), END)
    assert scan_shard(path, shard="a.tar").empty_members == 1
    assert rows_of(open_indexed(path)) == {"a": {"jpg": b"", "txt": b"good"}}


def test_c18_a_shard_written_again_with_other_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", *(member(f"{row}.txt", b"x" * 400) for row in range(3)), END)
    known, unknown = open_indexed(path), open_indexed(path, known=False)
    write(path, *(member(f"{row}.txt", b"x" * 900) for row in range(3)), END)
    for row in range(3):
        with pytest.raises(ShardError, match=r"(?s)a\.tar.*omniloom prepare") as caught:
            known.read(row)
        assert caught.value.reason == "index-stale"
    for row in range(3):  # a set that only Energon prepared: its index says where headers have to be
        with pytest.raises(ShardError, match="no header at byte 1,024") as caught:
            unknown.read(row)
        assert caught.value.reason == "index-stale"


@pytest.mark.parametrize("samples", [2, 64])
def test_c18_a_shard_written_again_in_another_order(tmp_path: Path, samples: int) -> None:
    members = [member(f"{row:03}.txt", b"x" * 400) for row in range(samples)]
    path = write(tmp_path / "a.tar", *members, END)
    shard = open_indexed(path)
    assert shard.read(0)[0] == "000"
    shard = open_indexed(path)
    members[0], members[1] = members[1], members[0]
    write(path, *members, END)
    with pytest.raises(ShardError) as caught:
        shard.read(samples - 1)
    assert caught.value.reason == "index-stale"
