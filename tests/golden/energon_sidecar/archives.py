"""Data sets that are the same bytes on every machine, for comparing sidecars. Uses the standard library alone."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A data set and the words after ``prepare FOLDER`` on the command line."""

    make: Callable[[Path], None]
    words: tuple[str, ...]


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE) -> None:
    """Add one member with fixed times and owners."""
    member = tarfile.TarInfo(name)
    member.type = kind
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def shard(root: Path, name: str, *, form: int = tarfile.USTAR_FORMAT) -> tarfile.TarFile:
    """Open a new archive below ``root``."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return tarfile.open(path, "w", format=form)


def _captions(root: Path) -> None:
    number = 0
    for name, samples in (("parts/data-0.tar", 3), ("parts/data-1.tar", 4), ("parts/data-2.tar", 2), ("more/x.tar", 5)):
        with shard(root, name) as tar:
            for _ in range(samples):
                key = f"{number:06d}"
                add(tar, f"{key}.jpg", bytes([number]) * (300 * number))
                add(tar, f"{key}.txt", f"caption {number}".encode())
                add(tar, f"{key}.json", json.dumps([{"value": f"q{number}"}, {"value": "a"}]).encode())
                number += 1


def _odd_names(root: Path) -> None:
    with shard(root, "a/gnu.tar", form=tarfile.GNU_FORMAT) as tar:
        add(tar, "__meta__/info.json", b"{}")
        add(tar, "README", b"no dot")
        add(tar, "d", kind=tarfile.DIRTYPE)
        add(tar, "d.x", kind=tarfile.DIRTYPE)
        add(tar, "v1.0/0001.jpg", b"1")
        add(tar, "v1.0/0001.seg.png", b"22")
        add(tar, "k" * 150 + ".txt", b"long name")
        add(tar, "sub/" * 30 + "deep.txt", b"long path")
        add(tar, ".hidden", b"skipped")
        add(tar, "a/__inner__/x.json", b"{}")
        add(tar, "empty.txt")
        add(tar, "nodot", b"trailing, skipped")
    with shard(root, "a-b/pax.tar", form=tarfile.PAX_FORMAT) as tar:
        add(tar, "p" * 150 + ".txt", b"long name")
        add(tar, "größe/bild.jpg", b"x" * 600)
        add(tar, "größe/bild.txt", b"y" * 512)
        add(tar, "x.", b"no part name")
        add(tar, "quote'; --.txt", b"sql")
    with shard(root, "b.tar") as tar:
        add(tar, "./0001.jpg", b"1" * 511)
        add(tar, "/abs/0001.txt", b"2" * 513)
        add(tar, "deep/" * 24 + "z.txt", b"name in the prefix field")


def _many_shards(root: Path) -> None:
    names = [f"run_{run}/s{number:03d}.tar" for run in (1, 2) for number in (0, 1, 2, 5, 6, 9, 10, 11)]
    names += ["run_2/last.tar", "run_10/s000.tar", "x1y2.tar", "x1y3.tar", "x2y3.tar", "x2y4.tar"]
    for number, name in enumerate(names):
        with shard(root, name) as tar:
            for at in range(1 + number % 3):
                add(tar, f"{name.replace('/', '-').removesuffix('.tar')}-{at}.txt", b"t" * number)


CASES: dict[str, Case] = {
    "captions": Case(
        _captions,
        (
            "--split-ratio=2,1,1",
            "--sample-type=VQASample",
            '--field-map={"image": "jpg,png", "context": "json[0][value]", "answers": "json[1][value]"}',
        ),
    ),
    "crude": Case(
        _captions, ("--split-ratio=1,0,0", "--sample-type=CrudeWebdataset", "--dataset-yaml-name=crude.yaml")
    ),
    "odd_names": Case(_odd_names, ("--split-ratio=1,0,0",)),
    "many_shards": Case(_many_shards, ("--split-ratio=8,1,1",)),
    "shuffled": Case(_many_shards, ("--split-ratio=0.5,0.25,0.25", "--shuffle-tars")),
    "patterns": Case(
        _many_shards,
        ("--split-parts=train:run_{1,2}/s00", "--split-parts=val:x1y", "--split-parts=late:run_.*/(l|s01)"),
    ),
    "excluded": Case(_many_shards, ("--split-ratio=29,71,0", "--exclude=run_1/|last")),
}
