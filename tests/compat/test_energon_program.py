"""The program ``energon``: the answers that Energon's prompts take, and, where the real one is named, the same files.

``ENERGON_PROGRAM=.../bin/energon pytest tests/compat/test_energon_program.py`` runs both on the same shards.
"""

import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile

import pytest
from PIL import Image

from omniloom.data.index.info import ENERGON_VERSION

REAL = os.environ.get("ENERGON_PROGRAM")
OURS = [sys.executable, "-c", "import sys; from omniloom.tools.energon_commands import run; run(sys.argv[1:])"]
SESSION = "1,0,0\ny\n0\nY\npng\ntxt\n"  # the answers of Energon's guide: ratio, describe, class 0, map, parts


def make(folder):
    folder.mkdir(parents=True)
    for shard in range(2):
        with tarfile.open(folder / f"data-{shard}.tar", "w") as archive:
            for row in range(5):
                picture = io.BytesIO()
                Image.new("RGB", (4, 5), (row * 20, 0, 0)).save(picture, "PNG")
                key = f"{shard * 5 + row:06d}"
                parts = {"png": picture.getvalue(), "txt": f"text {key}".encode(), "json": b'{"a": 1}'}
                for part, data in parts.items():
                    member = tarfile.TarInfo(f"{key}.{part}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return folder


def run(program, *arguments, answers=""):
    return subprocess.run(
        [*program, *map(str, arguments)], input=answers, capture_output=True, text=True, check=False, timeout=300
    )


def files(folder):
    """What a data set's preparation left: texts, indexes, and the rows of the database."""
    meta = folder / ".nv-meta"
    found = {name: (meta / name).read_text() for name in ("dataset.yaml", "split.yaml", ".info.json")}
    found |= {path.name: path.read_bytes() for path in folder.glob("*.idx")}
    with sqlite3.connect(meta / "index.sqlite") as database:
        for table in ("samples", "sample_parts", "media_metadata"):
            found[table] = sorted(database.execute(f"SELECT * FROM {table}"))
    return found


def prepare(program, folder):
    done = [
        run(program, "prepare", folder, "--num-workers", 1, "--no-progress", answers=SESSION),
        run(program, "prepare-media", folder, "--media-metadata-by-extension", "--no-progress", "--num-workers", 1),
    ]
    return [one.returncode for one in done], done[-1].stdout


def test_a_session_as_in_the_guide(tmp_path):
    codes, said = prepare(OURS, make(tmp_path / "ours"))
    assert codes == [0, 0]
    assert "Done." in said
    found = files(tmp_path / "ours")
    assert "__class__: CaptioningSample" in found["dataset.yaml"]
    assert json.loads(found[".info.json"])["shard_counts"] == {"data-0.tar": 5, "data-1.tar": 5}
    again = run(OURS, "prepare", tmp_path / "ours", "--non-interactive")
    assert again.returncode == 1
    assert "--force-overwrite" in again.stderr
    assert run(OURS, "-V").stdout.startswith(f"megatron-energon {ENERGON_VERSION} ")
    assert "10 samples" in run(OURS, "info", tmp_path / "ours").stdout
    shown = run(OURS, "preview", tmp_path / "ours", answers="n\n").stdout
    assert "__key__ (<class 'str'>): '000000'" in shown
    assert run(OURS, "lint", tmp_path / "ours").returncode == 0


@pytest.mark.skipif(REAL is None, reason="ENERGON_PROGRAM does not name the real energon program")
def test_the_real_program_leaves_the_same_files(tmp_path):
    assert prepare(OURS, make(tmp_path / "ours"))[0] == [0, 0]
    assert prepare([REAL], make(tmp_path / "real"))[0] == [0, 0]
    assert files(tmp_path / "ours") == files(tmp_path / "real")


@pytest.mark.skipif(REAL is None, reason="ENERGON_PROGRAM does not name the real energon program")
def test_every_option_of_the_real_program_is_known():
    for command in (
        "prepare",
        "prepare-media",
        "info",
        "lint",
        "mount",
        "preview",
        "analyze-debug",
        "checkpoint redist",
    ):
        ours, real = (run(program, *command.split(), "-h").stdout for program in (OURS, [REAL]))
        options = {word.rstrip(",.") for word in real.split() if word.startswith("--")}
        assert options
        assert {option for option in options if option not in ours} == set(), command
