"""One pass over a shard: offsets as Energon writes them, samples put together, everything odd counted or refused."""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.shards.scan import fingerprint, fingerprint_rows, scan_shard
from omniloom.errors import ShardError
from tests.contract.archive_blocks import (
    END,
    header,
    long_name,
    member,
    open_indexed,
    pax,
    rows_of,
    samples_of,
    with_checksum,
    write,
    write_members,
)

ENERGON_SPLIT = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
ENERGON_SKIP = re.compile(r"__[^/]*__($|/)")


def energon_index(path: Path) -> list[int]:
    """What Energon's rules give for the ``.tar.idx``, by CPython's tarfile."""
    offsets, last = [], None
    with tarfile.open(path, "r:") as archive:
        for one in archive:
            match = ENERGON_SPLIT.match(one.name)
            if not one.isreg() or match is None or ENERGON_SKIP.match(one.name):
                continue
            if match[1] != last:
                offsets.append(one.offset)
                last = match[1]
        offsets.append(archive.offset)
    return offsets


def refusal(path: Path, **scanning: object) -> tuple[str, int | None]:
    with pytest.raises(ShardError, match=r"^s\.tar: ") as caught:
        scan_shard(path, shard="s.tar", **scanning)  # type: ignore[arg-type]
    return caught.value.reason, caught.value.offset_bytes


parts = st.lists(st.sampled_from(["jpg", "txt", "json", "seg.png", "x"]), min_size=1, max_size=4, unique=True)
keys = st.lists(
    st.text("abcö/_", min_size=1, max_size=8).filter(lambda key: not key.endswith("/") and not key.startswith("_"))
    | st.integers(90, 200).map("k".__mul__),
    unique=True, max_size=8,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_offsets_are_energons(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dialect: int) -> None:
    path = tmp_path_factory.getbasetemp() / "s.tar"
    expected: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path, "w", format=dialect) as archive:
        for key in data.draw(keys):
            if data.draw(st.booleans()):
                archive.addfile(tarfile.TarInfo(data.draw(st.sampled_from(["README", "__meta__/a.b", ".x"]))))
            for part in data.draw(parts):
                info = tarfile.TarInfo(f"{key}.{part}")
                content = data.draw(st.binary(max_size=600))
                info.size, info.mtime = len(content), data.draw(st.sampled_from([0, 5.5]))
                try:
                    archive.addfile(info, io.BytesIO(content))
                except ValueError:
                    continue
                expected.setdefault(key, {})[part] = content
    scan = scan_shard(path, shard="s.tar")
    assert list(scan.offsets) == energon_index(path)
    assert samples_of(path, scan) == expected
    assert not scan.irregular
    assert rows_of(open_indexed(path)) == expected
    assert rows_of(open_indexed(path, known=False)) == expected


def test_a_known_index(tmp_path: Path) -> None:
    path = write_members(tmp_path / "s.tar", {"a.txt": b"x" * 700, "a.b": b"", "b.txt": b"x", "README": b"r"})
    scan = scan_shard(path, shard="s.tar")
    assert list(scan.offsets) == [0, 2048, 2048 + 1024 + 1024]
    assert list(scan.part_headers) == [0, 1536, 2048]
    assert list(scan.part_starts) == [512, 2048, 2560]
    assert list(scan.part_stops) == [1212, 2048, 2561]
    assert list(scan.part_rows) == [0, 0, 1]
    assert scan.part_names == ["txt", "b", "txt"]
    assert (scan.size_bytes, scan.ignored, scan.empty_members) == (10_240, {"no-key": 1}, 1)
    assert (scan.has_end_marker, scan.trailing_bytes, scan.rule, scan.shard) == (True, 0, "first-dot", "s.tar")
    again = pickle.loads(pickle.dumps(scan))
    assert again == scan
    assert len(pickle.dumps(scan)) < 1200


def test_what_is_ignored_and_why(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar",
        header("d/", kind=b"5"), member("d/._a.jpg", b"1"), member("d/a.jpg", b"jpg"), member("d/.DS_Store", b"2"),
        member("__MACOSX/d/._a.jpg", b"3"), member("d/__MACOSX/a.txt", b"4"), member("__meta__/x.json", b"5"),
        member("README", b"6"), header("pipe.x", kind=b"6"), header("pipe", kind=b"6"), member("Thumbs.db", b"7"),
        header("._l.jpg", kind=b"2", link="x"), header("latest", kind=b"2", link="d"), END,
    )  # fmt: skip
    scan = scan_shard(path, shard="s.tar")
    assert scan.keys == ["d/a", "Thumbs"]
    assert scan.ignored == {
        "directory": 1, "apple-double": 3, "ds-store": 1, "macosx": 1, "meta": 1, "no-key": 2, "other": 2,
    }  # fmt: skip
    assert rows_of(open_indexed(path)) == {"d/a": {"jpg": b"jpg"}, "Thumbs": {"db": b"7"}}


def test_ignored_members_do_not_part_a_sample(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar", member("a.x", b"x"), header("d/", kind=b"5"), member("note", b"n"), member("a.y", b"y"), END
    )
    scan = scan_shard(path, shard="s.tar")
    assert (scan.interleaved, scan.irregular, scan.junk_members) == (0, False, 0)
    assert rows_of(open_indexed(path)) == {"a": {"x": b"x", "y": b"y"}}


# Links


def test_hard_links_stand_for_the_last_file_of_that_name_before_them(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar",
        member("blob", b"first"), member("blob", b"second"), header("a.x", kind=b"1", link="blob"),
        member("./d/e.y", b"dotted"), header("b.x", kind=b"1", link="d/e.y"), header("c.x", kind=b"1", link="b.x"),
        member("blob", b"third"), header("d.x", kind=b"1", link="blob"), END,
    )  # fmt: skip
    scan = scan_shard(path, shard="s.tar")
    expected = {
        "a": {"x": b"second"},
        "./d/e": {"y": b"dotted"},
        "b": {"x": b"dotted"},
        "c": {"x": b"dotted"},
        "d": {"x": b"third"},
    }
    assert samples_of(path, scan) == expected
    assert scan.hard_links == 4
    assert rows_of(open_indexed(path)) == expected
    with tarfile.open(path) as archive:
        for key, read in expected.items():
            name, content = next(iter(read.items()))
            assert archive.extractfile(f"{key}.{name}").read() == content  # type: ignore[union-attr]


def test_hard_links_with_long_names(tmp_path: Path) -> None:
    target = "t" * 150 + ".jpg"
    path = write(
        tmp_path / "s.tar",
        pax(path=target), member("t", b"target"), long_name(target, b"K"), long_name("l" * 150 + ".jpg"),
        header("l", kind=b"1", link="t"), pax(linkpath=target), header("m.jpg", kind=b"1", link="t"), END,
    )  # fmt: skip
    assert samples_of(path, scan_shard(path, shard="s.tar")) == {
        "t" * 150: {"jpg": b"target"}, "l" * 150: {"jpg": b"target"}, "m": {"jpg": b"target"},
    }  # fmt: skip


@pytest.mark.parametrize("link", ["none.x", "a", "later.x", "b.x", ""])
def test_hard_links_to_nothing(tmp_path: Path, link: str) -> None:
    path = write(
        tmp_path / "s.tar", header("a/", kind=b"5"), header("b.x", kind=b"1", link=link), member("later.x"), END
    )
    assert refusal(path) == ("link", 512)


def test_symbolic_links(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "s.tar", member("a.x"), header("b.x", kind=b"2", link="a.x"), END)) == ("link", 512)


# Duplicates and interleaved samples


def test_parts_of_a_sample_from_all_over_the_shard(tmp_path: Path) -> None:
    names = ["a.1", "b.1", "a.2", "c.1", "c.2", "b.2", "a.3", "d.1"]
    path = write(tmp_path / "s.tar", *(member(name, name.encode()) for name in names), END)
    scan = scan_shard(path, shard="s.tar")
    assert scan.keys == ["a", "b", "c", "d"]
    assert (scan.interleaved, scan.irregular) == (2, True)
    assert list(scan.part_rows) == [0, 0, 0, 1, 1, 2, 2, 3]
    assert scan.part_names == ["1", "2", "3", "1", "2", "1", "2", "1"]
    assert list(scan.offsets) == [0, 1024, 3072, 7168, 8192]
    assert rows_of(open_indexed(path)) == {
        "a": {"1": b"a.1", "2": b"a.2", "3": b"a.3"}, "b": {"1": b"b.1", "2": b"b.2"},
        "c": {"1": b"c.1", "2": b"c.2"}, "d": {"1": b"d.1"},
    }  # fmt: skip


def test_duplicates_far_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar", member("a.x", b"1"), member("b.x", b"2"), member("a.X", b"3"), member("a.x", b"4"), END
    )
    assert refusal(path) == ("duplicate", 2048)
    assert refusal(path, case_preserving=True) == ("duplicate", 3072)
    for policy, case, expected in (
        ("first", False, {"x": b"1"}), ("last", False, {"x": b"4"}),
        ("first", True, {"x": b"1", "X": b"3"}), ("last", True, {"X": b"3", "x": b"4"}),
    ):  # fmt: skip
        scan = scan_shard(path, shard="s.tar", on_duplicate=policy, case_preserving=case)  # type: ignore[arg-type]
        assert samples_of(path, scan) == {"a": expected, "b": {"x": b"2"}}
        assert scan.irregular


def test_a_duplicate_told_in_two_dialects(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", member("a.x", b"1"), pax(path="a.x"), member("other.x", b"2"), END)
    assert refusal(path) == ("duplicate", 1024)
    path = write(tmp_path / "s.tar", long_name("a.x"), member("o", b"1"), pax(path="a.X"), member("p", b"2"), END)
    assert refusal(path) == ("duplicate", 2048)


def test_names_of_parts_may_repeat_across_samples(tmp_path: Path) -> None:
    names = [f"{key}.{part}" for key in range(5) for part in ("a", "B", "c")]
    path = write(tmp_path / "s.tar", *(member(name) for name in names), END)
    assert scan_shard(path, shard="s.tar").dropped_duplicates == 0


# Global headers


def test_names_from_a_global_header_need_a_table(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tar", pax(b"g", path="all.txt"), member("a.txt", b"1"), pax(path="b.txt"), member("b", b"2"), END
    )
    scan = scan_shard(path, shard="s.tar")
    assert (scan.global_names, scan.irregular) == (True, True)
    assert rows_of(open_indexed(path)) == {"all": {"txt": b"1"}, "b": {"txt": b"2"}}
    path = write(tmp_path / "t.tar", pax(b"g", comment="c"), member("a.txt", b"1"), member("b.txt", b"2"), END)
    scan = scan_shard(path, shard="t.tar")
    assert not scan.irregular
    assert list(scan.offsets) == [1024, 2048, 3072] == energon_index(path)
    assert rows_of(open_indexed(path)) == {"a": {"txt": b"1"}, "b": {"txt": b"2"}}


# Fingerprints


def test_rows_that_a_fingerprint_looks_at() -> None:
    assert fingerprint_rows(0) == []
    assert fingerprint_rows(64) == list(range(64))
    for samples in (65, 100, 10_000, 1_000_003):
        rows = fingerprint_rows(samples)
        assert rows == sorted(set(rows))
        assert (rows[0], rows[-1]) == (0, samples - 1)
        assert 8 <= len(rows) <= 64
        gaps = [later - earlier for earlier, later in pairwise(rows)]
        assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("samples", [1, 3, 64])
def test_a_fingerprint_tells_a_small_shard_in_another_order(tmp_path: Path, samples: int) -> None:
    members = [member(f"{at:05}.x", b"x" * 100) for at in range(samples)]
    path = write(tmp_path / "s.tar", *members, END)
    scan = scan_shard(path, shard="s.tar")
    assert fingerprint(path, scan.offsets, shard="s.tar") == scan.fingerprint
    assert re.fullmatch("[0-9a-f]{32}", scan.fingerprint)
    for at in range(samples - 1):
        swapped = [*members[:at], members[at + 1], members[at], *members[at + 2 :]]
        path.write_bytes(b"".join((*swapped, END)))
        assert fingerprint(path, scan.offsets, shard="s.tar") != scan.fingerprint
    path.write_bytes(b"".join((*members, END, bytes(512))))
    assert fingerprint(path, scan.offsets, shard="s.tar") != scan.fingerprint
    path.write_bytes(b"")
    assert fingerprint(path, scan.offsets, shard="s.tar") != scan.fingerprint


# Damage of any kind


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_raises_anything_but_a_shard_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.tar"
    whole = bytearray(DAMAGED)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        length = data.draw(st.sampled_from([1, 1, 1, 2, 40, 512]))
        whole[at : at + length] = data.draw(st.binary(max_size=3) | st.just(bytes(512)) | st.just(DAMAGED[1024:1536]))
        if not whole:
            return
    if data.draw(st.booleans()):  # checksums made right again, so that the damage goes deeper
        for at in range(0, len(whole) - 511, 512):
            if whole[at + 257 : at + 262] == b"ustar":
                whole[at : at + 512] = with_checksum(bytes(whole[at : at + 512]))
    path.write_bytes(bytes(whole))
    try:
        scan = scan_shard(path, shard="s.tar", on_duplicate="last")
    except ShardError:
        pass  # anything else fails the test
    else:
        assert all(
            0 <= start <= stop <= len(whole) for start, stop in zip(scan.part_starts, scan.part_stops, strict=True)
        )


DAMAGED = b"".join(
    (
        pax(b"g", comment="c", mtime="1"), member("a.txt", b"hello"), pax(path="木.jpg", mtime="5.5"),
        member("b", b"x" * 700),
        long_name("k" * 120 + ".x"), member("k", b"1"), header("c.x", kind=b"1", link="a.txt"), END,
    )
)  # fmt: skip


def test_bytes_of_a_shard_are_not_kept_open(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tar", member("a.x"), b"j" * 512)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        refusal(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
