"""`omniloom lint` from the shell: exit codes, the report of a program, quarantine, excluding, explaining."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.contract.corruption import archive, prepared, sound_parts

from omniloom.data.index.splits import read_splits
from omniloom.data.index.yaml_dialect import load_yaml

PARTS = sound_parts()
GOOD = {"jpg": PARTS["jpg"], "json": PARTS["json"]}
BAD = {"jpg": PARTS["jpg"][:300], "json": b'{"a": NaN}'}


def lint(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "omniloom", "lint", *map(str, arguments)]
    return subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_bad_samples_are_reported_and_set_aside(tmp_path: Path) -> None:
    names = ["a", "b{x}", "c", "d,e"]
    root = prepared(tmp_path / "d", archive([(name, BAD if name in ("b{x}", "d,e") else GOOD) for name in names]))
    done = lint("d", "--json", "--parallel", 1, cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["ok"], told["samples"], told["bad_samples"]) == (False, 4, 2)
    assert told["errors"] == {"number": 2, "truncated-image": 2}
    assert told["quarantine"] == ["s.tar/b\\{x\\}", "s.tar/d,e"]
    finding = told["findings"][0]
    assert (finding["shard"], finding["key"], finding["part"], finding["reason"]) == (
        "s.tar", "b{x}", "jpg", "truncated-image",
    )  # fmt: skip
    assert (root / "s.tar").read_bytes()[finding["start"] : finding["stop"]] == BAD["jpg"]

    done = lint("d", "--quarantine", "bad.yaml", "--exclude-bad", cwd=tmp_path)
    assert done.returncode == 1
    assert "bad.yaml: 2 entries for 'exclude'" in done.stdout
    assert "split.yaml: 2 new entries in 'exclude'" in done.stdout
    written = load_yaml((tmp_path / "bad.yaml").read_bytes(), name="bad.yaml")
    assert written == {"exclude": told["quarantine"]}
    assert read_splits(root).exclude == {"s.tar/b{x}", "s.tar/d,e"}

    done = lint("d", cwd=tmp_path)
    assert (done.returncode, "2 samples in 1 shards: no faults found" in done.stdout) == (0, True)


def test_the_options_of_the_run_decide(tmp_path: Path) -> None:
    prepared(tmp_path / "d", archive([("a", GOOD)]))
    assert lint("d", "--max-pixels", 1_000, cwd=tmp_path).returncode == 1
    assert lint("d", "--image-decode", "raw", "--max-pixels", 1_000, cwd=tmp_path).returncode == 0
    cut = {"jpg": PARTS["jpg"][: len(PARTS["jpg"]) * 9 // 10]}
    prepared(tmp_path / "e", archive([("a", cut)]))
    assert lint("e", cwd=tmp_path).returncode == 1
    assert lint("e", "--min-fraction", 0.2, cwd=tmp_path).returncode == 0


def test_a_name_is_explained(tmp_path: Path) -> None:
    done = lint("--explain", "22.05.png", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "first-dot: key '22', part '05.png': an image, decoded as 'uint8'",
        "last-dot: key '22.05', part 'png': an image, decoded as 'uint8'",
    ]
    done = lint("--explain", "d/._a.jpg", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)[0]["ignored"] == "a '._' file that macOS adds for attributes"
    assert lint("--explain", "a.pkl", cwd=tmp_path).stdout.splitlines()[0].endswith("'pkl': bytes, as they are")


def test_without_a_data_set_it_says_so(tmp_path: Path) -> None:
    done = lint(cwd=tmp_path)
    assert done.returncode == 2
    assert "Missing argument 'DATASET'" in done.stderr
