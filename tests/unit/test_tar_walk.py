"""The walker against CPython's tarfile, and every archive that has to be refused."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import pickle
import tarfile
import zipfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.shards.tar import Member, parse_span, walk_tar
from omniloom.errors import ShardError
from tests.contract.archive_blocks import END, header, long_name, member, pax, payload, record, with_checksum, write

NEXT = member("z.txt", b"z")
KINDS = {tarfile.LNKTYPE: "hard-link", tarfile.SYMTYPE: "symbolic-link", tarfile.DIRTYPE: "directory"}


def walked(path: Path) -> list[Member]:
    return list(walk_tar(path, shard="s.tar"))


def names(path: Path) -> list[str]:
    return [one.name for one in walked(path)]


def refusal(path: Path) -> tuple[str, int | None]:
    with pytest.raises(ShardError, match=r"^s\.tar: ") as caught:
        walked(path)
    assert caught.value.shard == "s.tar"
    return caught.value.reason, caught.value.offset_bytes


def by_tarfile(path: Path) -> tuple[list[tuple[str, str, int, int, int, str]], int]:
    with tarfile.open(path, "r:") as archive:
        found = [
            (
                one.name,
                "file" if one.isreg() else KINDS.get(one.type, "other"),
                one.offset,
                one.offset_data,
                one.offset_data + (one.size if one.isreg() else 0),
                one.linkname,
            )
            for one in archive
        ]
        return found, archive.offset


# Random archives

characters = st.characters(blacklist_characters="\0\x1a", blacklist_categories=("Cs",))
name_texts = st.text(characters, min_size=1, max_size=30) | st.text("abc/.", min_size=90, max_size=280)
member_lists = st.lists(
    st.tuples(
        name_texts.filter(lambda name: name.strip("/") and not name.endswith("/")),
        st.sampled_from([tarfile.REGTYPE] * 6 + [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]),
        st.integers(0, 2000),
        st.sampled_from([0, 1_700_000_000, 1_700_000_000.25]),
        name_texts,
    ),
    max_size=6,
)


def make(path: Path, members: list, dialect: int) -> None:
    with tarfile.open(path, "w", format=dialect) as archive:
        for name, kind, size, mtime, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = kind, mtime if dialect == tarfile.PAX_FORMAT else int(mtime)
            info.linkname = link if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE) else ""
            info.size = size if kind == tarfile.REGTYPE else 0
            try:
                archive.addfile(info, io.BytesIO(b"\x01" * size))
            except ValueError:  # a name that ustar cannot hold
                assert dialect == tarfile.USTAR_FORMAT


@settings(max_examples=300, deadline=None)
@given(member_lists, st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_same_members_as_tarfile(tmp_path_factory: pytest.TempPathFactory, members: list, dialect: int) -> None:
    path = tmp_path_factory.getbasetemp() / "random.tar"
    make(path, members, dialect)
    walk = walk_tar(path, shard="s.tar")
    found = list(walk)
    expected, end = by_tarfile(path)
    assert [tuple(one) for one in found] == expected
    assert (walk.end, walk.has_end_marker, walk.trailing_bytes) == (end, True, 0)
    assert walk.size_bytes == path.stat().st_size
    data = path.read_bytes()
    borders = [one.header_start for one in found] + [end]
    spans = [
        one for start, stop in itertools.pairwise(borders)
        for one in parse_span(data[start:stop], shard="s", start=start)
    ]  # fmt: skip
    assert spans == found


@pytest.mark.parametrize("dialect", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_one_wrong_byte_in_a_header_loses_no_member(tmp_path: Path, dialect: int) -> None:
    path = tmp_path / "a.tar"
    name = "b.txt" if dialect == tarfile.USTAR_FORMAT else "é" * 3 + "l" * 120 + ".txt"
    rows = [("a.txt", 700), (name, 3), ("c.txt", 0)]
    make(path, [(name, tarfile.REGTYPE, size, 0.5, "") for name, size in rows], dialect)
    expected, _ = by_tarfile(path)
    blocks = sorted({block for _, _, offset, start, _, _ in expected for block in (offset, start - 512)})
    assert len(blocks) == {tarfile.USTAR_FORMAT: 3, tarfile.GNU_FORMAT: 4, tarfile.PAX_FORMAT: 6}[dialect]
    whole = path.read_bytes()
    random = Random(dialect)
    refused = 0
    with path.open("r+b", buffering=0) as file:
        for at in (block + byte for block in blocks for byte in range(512)):
            for flip in (1, 0x80, random.randrange(1, 256)):
                os.pwrite(file.fileno(), bytes([whole[at] ^ flip]), at)
                try:
                    found = [tuple(one) for one in walked(path)]
                except ShardError as error:
                    refused += error.reason in ("bad-checksum", "not-tar")
                else:
                    assert found == expected, at  # a byte that nobody reads: a blank of the checksum field
            os.pwrite(file.fileno(), whole[at : at + 1], at)
    assert refused > 1500 * len(blocks)


# Dialects


def test_v7_headers_have_no_magic_and_directories_end_in_a_slash(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tar",
        member("a.txt", b"a", b"\0", magic=b""), header("d/", 0, b"\0", magic=b""),
        member("d/b.txt", b"bb", b"\0", magic=b""), END,
    )  # fmt: skip
    assert [tuple(one) for one in walked(path)] == by_tarfile(path)[0]
    assert [one.kind for one in walked(path)] == ["file", "directory", "file"]


def test_a_v7_header_has_no_prefix(tmp_path: Path) -> None:
    assert names(write(tmp_path / "a.tar", member("a.txt", b"a", magic=b"", prefix=b"junk"), END)) == ["a.txt"]


def test_times_of_an_old_gnu_header_are_no_prefix(tmp_path: Path) -> None:
    times = b"13723452345\x0013723452346\0"
    path = write(tmp_path / "a.tar", member("a.txt", b"a", magic=b"ustar  \0", prefix=times), NEXT, END)
    assert names(path) == ["a.txt", "z.txt"]


def test_a_prefix_under_gnu_magic_that_is_no_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.txt", b"a", magic=b"ustar  \0", prefix=b"some/folder"), END)
    assert names(path) == ["some/folder/a.txt"]


def test_contiguous_files_are_files_and_devices_are_not(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tar",
        member("a.txt", b"seven", b"7"), header("dev/x.y", 0, b"3"), header("dev/b.y", 0, b"4"),
        header("fifo.y", 0, b"6"), header("label.y", 0, b"V"),
        member("new.y", b"payload of a kind to come", b"Z"), NEXT, END,
    )  # fmt: skip
    found = walked(path)
    assert [one.kind for one in found] == ["file", "other", "other", "other", "other", "other", "file"]
    assert [one.name for one in found][-1] == "z.txt"


def test_directories_of_an_incremental_backup_have_a_payload(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("d/", b"Ya.txt\0\0", b"D", magic=b"ustar  \0"), NEXT, END)
    assert [(one.name, one.kind) for one in walked(path)] == [("d/", "directory"), ("z.txt", "file")]


@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"5", b"6"])
def test_a_size_without_a_payload(tmp_path: Path, kind: bytes) -> None:
    path = write(tmp_path / "a.tar", header("a.x", 700, kind), NEXT, END)
    assert names(path) == ["a.x", "z.txt"]
    assert by_tarfile(path)[0][1][0] == "z.txt"


def test_both_ways_to_sum_bytes_over_127(tmp_path: Path) -> None:
    name = "größe.txt".encode()
    for signed in (False, True):
        path = write(tmp_path / "a.tar", header(name, 0, signed=signed), NEXT, END)
        assert names(path) == ["größe.txt", "z.txt"]


def test_a_sum_that_is_right_only_modulo_65521(tmp_path: Path) -> None:
    block = bytearray(header(b"\xff" * 100, prefix=b"\xff" * 155, link=b"\xff" * 100))
    total = int(block[148:154], 8)
    assert total > 65_521
    block[148:156] = b"%06o\0 " % (total - 65_521)
    path = write(tmp_path / "a.tar", NEXT, bytes(block), END)
    assert refusal(path) == ("bad-checksum", 1024)


@pytest.mark.parametrize(
    "field",
    [b"%11o\0" % 700, b"%012o" % 700, b"%010o \0" % 700, b"1274\0junk\0\0\0", b"\x80" + bytes(9) + b"\x02\xbc"],
    ids=["spaces", "twelve digits", "space at the end", "early NUL", "base 256"],
)
def test_ways_to_write_a_size(tmp_path: Path, field: bytes) -> None:
    path = write(tmp_path / "a.tar", header("a.txt", field), payload(b"x" * 700), NEXT, END)
    assert [(one.name, one.stop - one.start) for one in walked(path)] == [("a.txt", 700), ("z.txt", 1)]


# Extended headers


def test_long_links_and_names(tmp_path: Path) -> None:
    long = "l" * 180 + ".jpg"
    for front in (long_name(long, b"K") + long_name("n" * 150 + ".x"), pax(linkpath=long, path="n" * 150 + ".x")):
        path = write(tmp_path / "a.tar", front, header("cut", 0, b"1", link="cut"), NEXT, END)
        found = walked(path)[0]
        assert (found.name, found.link_name, found.kind) == ("n" * 150 + ".x", long, "hard-link")
        assert tuple(found) == by_tarfile(path)[0][0]


def test_pax_names_in_any_script_and_in_none(tmp_path: Path) -> None:
    for value, expected in (
        ("木/猫.jpg".encode(), "木/猫.jpg"), (b"\xff\xfe.jpg", "\udcff\udcfe.jpg"),
        (b"line\nbreak.jpg", "line\nbreak.jpg"), (b"a=b.jpg", "a=b.jpg"), (b"d.x/", "d.x"), (b"", ""),
    ):  # fmt: skip
        path = write(tmp_path / "a.tar", pax(path=value), member("short", b"s"), NEXT, END)
        assert names(path) == [expected, "z.txt"]
        assert by_tarfile(path)[0][0][0] == expected


def test_binary_header_charset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", pax(hdrcharset="BINARY", path=b"\xe9.jpg"), member("e.jpg", b"s"), END)
    assert names(path) == ["\udce9.jpg"] == [by_tarfile(path)[0][0][0]]


def test_ustar_names_that_are_not_utf_8(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member(b"\xe9.jpg", b"s"), END)
    assert names(path) == ["\udce9.jpg"] == [by_tarfile(path)[0][0][0]]


def test_a_name_of_exactly_a_hundred_bytes(tmp_path: Path) -> None:
    assert names(write(tmp_path / "a.tar", member("n" * 100, b"s"), member("", b"s"), NEXT, END)) == [
        "n" * 100,
        "",
        "z.txt",
    ]


def test_of_two_names_the_outer_counts_as_in_tarfile(tmp_path: Path) -> None:
    for one, other in ((long_name("gnu.txt"), pax(path="pax.txt")), (pax(path="pax.txt"), long_name("gnu.txt"))):
        path = write(tmp_path / "a.tar", one, other, member("short", b"s"), NEXT, END)
        assert names(path) == [name for name, *_ in by_tarfile(path)[0]]


def test_global_headers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tar",
        pax(b"g", comment="git", mtime="1"),
        member("a.txt", b"a"),
        pax(b"g", comment="x"),
        NEXT,
        END,
    )
    walk = walk_tar(path, shard="s")
    assert [(one.name, one.header_start) for one in walk] == [("a.txt", 1024), ("z.txt", 3072)]
    assert not walk.globals.changes_members
    assert [tuple(one) for one in walked(path)] == by_tarfile(path)[0]
    # a name for all that follow, their own names first, until it is taken back
    path = write(
        tmp_path / "b.tar",
        pax(b"g", path="all.txt"), member("a.txt", b"a"), pax(path="own.txt") + member("b.txt", b"b"),
        pax(b"g", path=""), NEXT, END,
    )  # fmt: skip
    walk = walk_tar(path, shard="s")
    assert [one.name for one in walk] == ["all.txt", "own.txt", "z.txt"]
    assert walk.globals.changes_members
    # sizes for all that follow, as POSIX says
    path = write(
        tmp_path / "c.tar",
        pax(b"g", size="5"),
        header("a.txt") + payload(b"hello"),
        header("b.txt") + payload(b"world"),
        END,
    )
    assert [(one.name, one.stop - one.start) for one in walked(path)] == [("a.txt", 5), ("b.txt", 5)]


def test_a_global_header_after_the_last_member(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", NEXT, pax(b"g", comment="end"), END)
    walk = walk_tar(path, shard="s")
    assert [one.name for one in walk] == ["z.txt"]
    assert (walk.end, walk.has_end_marker) == (1024, True)


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b"12 path=a", 512), (b"x path=a\n", 512), (b"5 a=\n" + b"99 path=abc\n", 517), (b"0 path=a\n", 512),
        (b"7 path\n", 512), (b"4 =\n", 512), (record("path", "a") + b"junk", 521),
        (b"99999999999 path=a\n", 512),
    ],
)  # fmt: skip
def test_malformed_records(tmp_path: Path, body: bytes, offset: int) -> None:
    assert refusal(write(tmp_path / "a.tar", member("h", body, b"x"), NEXT, END)) == ("bad-pax", offset)


def test_records_filled_up_with_zeros(tmp_path: Path) -> None:
    assert names(write(tmp_path / "a.tar", member("h", record("path", "a.b") + bytes(20), b"x"), NEXT, END)) == ["a.b"]


@pytest.mark.parametrize("value", ["-5", "5x", "", "٣", "9" * 5000, "1_0"])
def test_sizes_in_records_that_are_no_sizes(tmp_path: Path, value: str) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, pax(size=value), member("a.txt", b"a"), END)) == ("bad-pax", 1024)


def test_a_nul_in_a_name(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, pax(path="a\0b.txt"), member("a.txt", b"a"), END)) == (
        "bad-pax",
        1024,
    )


@pytest.mark.parametrize("front", [pax(path="a.txt"), pax(mtime="1.5"), long_name("a.txt"), long_name("a", b"K")])
def test_an_extended_header_without_its_member(tmp_path: Path, front: bytes) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, front, END)) == ("truncated", 1024)
    assert refusal(write(tmp_path / "a.tar", NEXT, front)) == ("truncated", 1024)
    assert refusal(write(tmp_path / "a.tar", NEXT, front[:-512]))[0] == "truncated"
    assert refusal(write(tmp_path / "a.tar", NEXT, front[:-1]))[0] == "truncated"


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_absurd_extended_headers_are_not_read(tmp_path: Path, kind: bytes) -> None:
    path = write(tmp_path / "a.tar", header("h", 4 << 30, kind))
    os.truncate(path, 5 << 30)
    assert refusal(path) == ("bad-header", 0)


# Sizes


@pytest.mark.parametrize("field", [b"\xff" * 12, b"\xff" * 11 + b"\x00", b"\xc0" + bytes(11)])
def test_negative_sizes(tmp_path: Path, field: bytes) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, header("a.txt", field), END)) == ("bad-header", 1024)


@pytest.mark.parametrize(
    "field", [b"0000000009 \0", b"abcdefghijk\0", b"-0000000001\0", b"0x000000001\0", b"00000_00001\0"]
)
def test_sizes_that_are_no_numbers(tmp_path: Path, field: bytes) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, header("a.txt", field), END)) == ("bad-header", 1024)


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\x7f" * 11, b"\xbf" + b"\xff" * 11])
def test_sizes_far_beyond_the_file(tmp_path: Path, size: bytes) -> None:
    path = write(tmp_path / "a.tar", NEXT, header("a.txt", size), END)
    assert refusal(path) == ("truncated", 1024)
    path = write(tmp_path / "a.tar", NEXT, pax(size="18446744073709551615"), header("a.txt"), END)
    assert refusal(path) == ("truncated", 1024)


# Ends


def test_a_payload_that_looks_like_an_archive(tmp_path: Path) -> None:
    inner = member("inner.txt", b"inner") + END
    assert names(write(tmp_path / "a.tar", member("a.tar", inner), NEXT, END)) == ["a.tar", "z.txt"]


def test_archives_joined(tmp_path: Path) -> None:
    one = member("a.txt", b"a") + END
    assert refusal(write(tmp_path / "a.tar", one, one)) == ("concatenated", 2048)
    assert refusal(write(tmp_path / "a.tar", one, bytes(8192), one)) == ("concatenated", 2048 + 8192)
    assert refusal(write(tmp_path / "a.tar", one, b"junk", one)) == ("concatenated", 2052)
    assert refusal(write(tmp_path / "a.tar", one[:-512], one)) == ("concatenated", 1536)
    assert refusal(write(tmp_path / "a.tar", one, pax(path="b.txt") + one)) == ("concatenated", 2048)
    old = member("a.txt", b"a", magic=b"")
    assert refusal(write(tmp_path / "a.tar", one, old)) == ("concatenated", 2048)
    assert names(write(tmp_path / "a.tar", one[:-1024], one)) == ["a.txt", "a.txt"]  # no mark between: one archive


def test_archives_joined_across_a_gap_without_disk_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.txt", b"a"), END)
    with path.open("r+b") as file:
        file.seek((6 << 30) + 100)
        file.write(member("b.txt", b"b"))
    assert refusal(path) == ("concatenated", (6 << 30) + 100)


def test_a_second_archive_across_the_border_of_two_reads(tmp_path: Path) -> None:
    for gap in (1 << 20, (1 << 20) - 1024, (1 << 20) - 1200, (1 << 20) - 1100):
        path = write(tmp_path / "a.tar", NEXT, END, b"j", bytes(gap - 1), NEXT)
        assert refusal(path) == ("concatenated", 2048 + gap)


def test_bytes_after_the_end_mark_are_counted(tmp_path: Path) -> None:
    for junk in (b"junk", b"j" * 512, b"<html>" * 1000):
        walk = walk_tar(write(tmp_path / "a.tar", NEXT, END, bytes(512), junk), shard="s")
        assert [one.name for one in walk] == ["z.txt"]
        assert (walk.has_end_marker, walk.trailing_bytes) == (True, len(junk))


def test_one_zero_block(tmp_path: Path) -> None:
    walk = walk_tar(write(tmp_path / "a.tar", NEXT, bytes(512)), shard="s")
    assert [one.name for one in walk] == ["z.txt"]
    assert not walk.has_end_marker
    assert refusal(write(tmp_path / "a.tar", NEXT, bytes(512), b"wiped header?")) == ("trailing-data", 1536)


def test_a_block_that_is_no_header(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.tar", NEXT, b"x" * 512, NEXT, END)) == ("bad-checksum", 1024)
    assert refusal(write(tmp_path / "a.tar", NEXT, b"x" * 100)) == ("truncated", 1024)
    damaged = bytearray(NEXT)
    damaged[0] ^= 1
    assert refusal(write(tmp_path / "a.tar", bytes(damaged), END)) == ("bad-checksum", 0)


@pytest.mark.parametrize("kind", [b"M"])
def test_a_volume_that_goes_on(tmp_path: Path, kind: bytes) -> None:
    assert refusal(write(tmp_path / "a.tar", member("a.txt", b"rest", kind), END)) == ("multi-volume", 0)
    front = pax(GNU__volume__filename="a.txt", GNU__volume__size="4", GNU__volume__offset="10")
    assert refusal(write(tmp_path / "a.tar", front, member("a.txt", b"rest"), END))[0] == "multi-volume"


# Other files under the name of an archive


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", data)
    return file.getvalue()


@pytest.mark.parametrize(
    ("pack", "told"),
    [
        (gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz"), (zipped, "zip"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data, "zstd"), (lambda data: b"\x04\x22\x4d\x18" + data, "lz4"),
    ],
)  # fmt: skip
def test_compressed_archives(tmp_path: Path, pack, told: str) -> None:
    path = write(tmp_path / "a.tar", pack(b"".join(os.urandom(100) for _ in range(20))))
    for _ in range(2):  # also shorter than a block
        with pytest.raises(ShardError, match=told) as caught:
            walked(path)
        assert caught.value.reason == "compressed"
        if told in ("lz4", "zip"):
            assert "convert tar" not in str(caught.value)
        else:
            assert f"omniloom convert tar {path} --out {tmp_path}/a.plain.tar" in str(caught.value)
        path.write_bytes(path.read_bytes()[:100])


def test_an_archive_whose_first_name_begins_like_a_compression(tmp_path: Path) -> None:
    assert names(write(tmp_path / "a.tar", member("BZh91.txt", b"a"), END)) == ["BZh91.txt"]


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.tar", b"\xff\xd8\xff\xe0" * 1000)) == ("not-tar", 0)
    assert refusal(write(tmp_path / "a.tar")) == ("empty-file", 0)
    assert refusal(write(tmp_path / "a.tar", b"short")) == ("truncated", 0)
    assert refusal(tmp_path / "none.tar") == ("missing-shard", None)
    with pytest.raises(OSError, match=str(tmp_path)):
        walked(tmp_path)


def test_errors_survive_a_pickle(tmp_path: Path) -> None:
    with pytest.raises(ShardError) as caught:
        walked(write(tmp_path / "a.tar", NEXT, b"x" * 512))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.reason, again.offset_bytes) == (str(caught.value), "bad-checksum", 1024)


# Windows


@pytest.mark.parametrize("size", [0, 100, 3_000, 30_000, 300_000, 3_000_000])
def test_long_and_short_payloads_by_turns(tmp_path: Path, size: int) -> None:
    pieces = [member(f"{at}.x", bytes([at]) * (size if at % 3 else 10)) for at in range(40)]
    path = write(tmp_path / "a.tar", *pieces, END)
    assert [tuple(one) for one in walked(path)] == by_tarfile(path)[0]


# Spans


def test_a_span_has_to_be_whole(tmp_path: Path) -> None:
    span = member("a.txt", b"a" * 600) + NEXT
    assert [one.name for one in parse_span(span, shard="s", start=512)] == ["a.txt", "z.txt"]
    for cut in (100, 512, 1000, 1024, 1536 + 10):
        with pytest.raises(ShardError) as caught:
            parse_span(span[:cut], shard="s", start=512)
        assert caught.value.reason == "truncated"
    with pytest.raises(ShardError, match=r"byte 3,072.*empty block") as caught:
        parse_span(span + bytes(512), shard="s", start=512)
    assert parse_span(b"", shard="s", start=0) == []
    bad = bytearray(span)
    bad[1536] ^= 1
    with pytest.raises(ShardError) as caught:
        parse_span(bytes(bad), shard="s", start=512)
    assert (caught.value.reason, caught.value.offset_bytes) == ("bad-checksum", 2048)


def test_the_checksum_helper_is_tarfiles() -> None:
    assert with_checksum(header("a.txt", 5)) == header("a.txt", 5)
    assert tarfile.TarInfo.frombuf(header("a.txt", 5), "utf-8", "strict").size == 5
