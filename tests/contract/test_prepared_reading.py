"""Whatever was prepared is read back by row: the bytes of CPython's tarfile, grouped by the published key rule."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import ShardError


def _tar(path: Path, *members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def _samples(root: Path) -> dict[str, dict[str, bytes]]:
    index = open_dataset(root)
    found = {}
    for entry in index.shards:
        shard = TarShard(
            entry.path,
            name=entry.name,
            samples=entry.samples,
            size_bytes=entry.size_bytes,
            fingerprint=entry.fingerprint,
            parts_path=entry.parts_path,
            rule=index.rule,
        )
        rows = [shard.read(row) for row in range(entry.samples)]
        assert len({key for key, _ in rows}) == entry.samples
        found |= {f"{entry.name}/{key}": parts for key, parts in rows}
    return found


def test_every_kind_of_shard(tmp_path: Path) -> None:
    _tar(tmp_path / "plain.tar", ("a.jpg", b"1"), ("a.txt", b""), ("b.jpg", b"x" * 600), ("b.seg.png", b"y" * 512))
    _tar(tmp_path / "mixed.tar", ("c.jpg", b"1"), ("d.jpg", b"2"), ("c.txt", b"3"), ("d.txt", b"4"))
    _tar(tmp_path / "junk.tar", ("k/._e.jpg", b"j"), ("k/e.jpg", b"5"), ("k/._e.txt", b"j"), ("k/e.txt", b"6"))
    _tar(tmp_path / "long.tar", ("f" * 150 + ".jpg", b"7"), ("grün.txt", b"8"), form=tarfile.PAX_FORMAT)
    _tar(tmp_path / "gnu.tar", ("g" * 150 + ".jpg", b"9"), ("g" * 150 + ".txt", b"10"), form=tarfile.GNU_FORMAT)
    with tarfile.open(tmp_path / "link.tar", "w") as tar:
        member = tarfile.TarInfo("h.jpg")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("i.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "h.jpg"
        tar.addfile(link)
    prepared = prepare_dataset(tmp_path, num_workers=1)
    assert _samples(tmp_path) == {
        "plain.tar/a": {"jpg": b"1", "txt": b""},
        "plain.tar/b": {"jpg": b"x" * 600, "seg.png": b"y" * 512},
        "mixed.tar/c": {"jpg": b"1", "txt": b"3"},
        "mixed.tar/d": {"jpg": b"2", "txt": b"4"},
        "junk.tar/k/e": {"jpg": b"5", "txt": b"6"},
        f"long.tar/{'f' * 150}": {"jpg": b"7"},
        "long.tar/grün": {"txt": b"8"},
        f"gnu.tar/{'g' * 150}": {"jpg": b"9", "txt": b"10"},
        "link.tar/h": {"jpg": b"abc"},
        "link.tar/i": {"jpg": b"abc"},
    }
    assert {name for name, mark in prepared.facts.shards.items() if mark.irregular} == {"mixed.tar", "link.tar"}
    assert [sentence.split(" ", 1)[0] for sentence in prepared.facts.energon_obstacles] == ["2", "1", "2"]


def test_the_last_dot(tmp_path: Path) -> None:
    _tar(tmp_path / "x.tar", ("22.05.png", b"1"), ("22.06.png", b"2"), ("22.05.txt", b"3"))
    prepare_dataset(tmp_path, num_workers=1, rule="last-dot")
    assert _samples(tmp_path) == {"x.tar/22.05": {"png": b"1", "txt": b"3"}, "x.tar/22.06": {"png": b"2"}}


@pytest.mark.parametrize("same_size", [False, True])
def test_a_shard_that_was_rewritten_is_refused_before_anything_is_read(same_size: bool, tmp_path: Path) -> None:  # C18
    members = [(f"{number}.txt", b"t" * 100) for number in range(100)]
    _tar(tmp_path / "x.tar", *members)
    prepare_dataset(tmp_path, num_workers=1)
    changed = members[::-1] if same_size else [(name, b"t" * 9_000) for name, _ in members]
    _tar(tmp_path / "x.tar", *changed)
    with pytest.raises(ShardError) as error:
        _samples(tmp_path)
    assert error.value.reason == "index-stale"
    assert "omniloom prepare" in str(error.value)


_BIG_SET = """
import resource, sys
from pathlib import Path
from omniloom.data.index.prepare import prepare_dataset

def header(name):
    block = bytearray(512)
    block[:len(name)] = name
    block[100:156] = b"0000644\\0" + b"0000000\\0" * 2 + b"00000000620\\0" + b"00000000000\\0" + b" " * 8
    block[156:265] = b"0" + bytes(100) + b"ustar\\x0000"
    block[148:156] = b"%06o\\0 " % sum(block)
    return bytes(block)

if __name__ == "__main__":
    root, shards, sqlite = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
    for number in range(shards):
        with (root / f"{number:04}.tar").open("wb") as file:
            for row in range(10_000):
                # Keys that are in no order, so that sorting them is real work.
                key = (number * 10_000 + row) * 2_654_435_761 % 4_294_967_296
                file.write(header(b"%08x.txt" % key) + bytes(512))
            file.write(bytes(1024))
    prepared = prepare_dataset(root, num_workers=1, sqlite=sqlite)
    assert prepared.samples == shards * 10_000 and not prepared.duplicate_keys.repeated
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the process that started this one had, too
        print(next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM")))
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sqlite", [True, False])
def test_memory_is_flat(sqlite: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_BIG_SET)
    peaks = []
    for shards in (60, 180):
        root = tmp_path / str(shards)
        root.mkdir()
        words = [sys.executable, tmp_path / "program.py", root, str(shards), str(sqlite)]
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
        peaks.append(int(done.stdout))
    # Without a database, keys are compared in buckets of up to 2**20; the smaller set does not fill one, which leaves
    # some 13 MB between the two: bounded, whatever comes after.
    assert peaks[1] < (1.25 if sqlite else 1.35) * peaks[0], peaks
    assert peaks[1] < 130 * 1024 * 1024, peaks
