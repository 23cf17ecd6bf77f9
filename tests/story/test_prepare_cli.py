"""A user prepares, looks at and checks a folder of shards on the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from PIL import Image

from omniloom.data.index.dataset import open_dataset
from omniloom.tools.main import commands, run

FIELD_MAP = '{"image":"png","context":"json[0][value]","answers":"json[1][value]"}'


def _png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(stream, "PNG")
    return stream.getvalue()


def _shards(root: Path, count: int = 4, *, samples: int = 5, extra: dict[str, bytes] | None = None) -> Path:
    root.mkdir(exist_ok=True)
    talk = json.dumps([{"value": "What is to be seen in this picture, and why?"}, {"value": "Nothing."}, 3, 4, 5])
    for number in range(count):
        with tarfile.open(root / f"shard-{number:03}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in range(samples):
                parts = {"png": _png(), "txt": b"a caption", "json": talk.encode(), **(extra or {})}
                for part, data in parts.items():
                    member = tarfile.TarInfo(f"{number:03}{row:03}.{part}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return root


def _prepare(root: Path, *words: str, answers: str = "") -> Result:
    return CliRunner().invoke(commands, ["prepare", str(root), "--num-workers=1", *words], input=answers)


def _yaml(root: Path, name: str = "dataset.yaml") -> Any:
    return yaml.safe_load((root / ".nv-meta" / name).read_text())


def test_a_description_that_is_there_is_told_of_and_stays(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    _prepare(root, "--non-interactive", "--force-overwrite", "--sample-type=CrudeWebdataset", "--split-ratio=1,0,0")
    before = (root / ".nv-meta" / "dataset.yaml").read_bytes()
    for words in (["--skip-dataset-yaml"], []):
        again = _prepare(root, "--non-interactive", "--force-overwrite", "--split-ratio=1,0,0", *words)
        assert again.exit_code == 0, again.output
        assert f"{root}/.nv-meta/dataset.yaml is there, and stays as it is." in again.output
        assert "by hand" not in again.output
    other = _prepare(
        root, "--non-interactive", "--force-overwrite", "--split-ratio=1,0,0", "--dataset-yaml-name=b.yaml"
    )
    assert "A b.yaml has to be added by hand" in other.output
    assert (root / ".nv-meta" / "dataset.yaml").read_bytes() == before


# --- questions, in the order of Energon


def test_the_whole_dialogue_as_energon_asks_it(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    first = _prepare(root, answers="2,1,1\nn\n")
    assert first.exit_code == 0, first.output
    assert "A dataset.yaml has to be added by hand" in first.output
    # The session that Energon's own test feeds to its program.
    result = _prepare(root, answers="y\n1,0,0\ny\n0\nY\npng\ntxt\n")
    assert result.exit_code == 0, result.output
    assert result.output.rstrip().endswith("Done")
    captioning = {"__module__": "megatron.energon", "__class__": "CaptioningSample"}
    assert _yaml(root) == {"sample_type": captioning, "field_map": {"image": "png", "caption": "txt"}}
    assert _yaml(root, "split.yaml") == {
        "split_parts": {"train": ["shard-{000..003}.tar"], "val": [], "test": []},
        "exclude": [],
    }
    for told in (
        "Found 4 shards",
        "- shard-000.tar",
        "- shard-003.tar",
        "Indexed 20 samples in 4 shards, 4 of them unchanged since an earlier scan.",
        "Sample 0 of shard-000.tar, '000000', has the parts:",
        '"value": "What is to be seen in thi..."',
        "Parts found: png, txt, json",
        "11. crude samples",
        "- caption: text",
    ):
        assert told in result.output
    order = [
        "Prepare it again",
        "Shares of train",
        "Describe the samples",
        "Number of the type",
        "Map fields",
        "Part for",
    ]
    places = [result.output.index(question) for question in order]
    assert places == sorted(places)


def test_no_is_taken_for_an_answer(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    assert _prepare(root, "--split-ratio=1,0,0", "--skip-dataset-yaml").exit_code == 0
    before = (root / ".nv-meta/index.uuid").read_text()
    result = _prepare(root, answers="n\n")
    assert result.exit_code == 0
    assert (root / ".nv-meta/index.uuid").read_text() == before


def test_wrong_answers_are_asked_again(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    answers = "1,0,0\ny\n99\nx\n9\ny\njpg\npng,jpg\npng\njson[0][value]\n\n\n"
    result = _prepare(root, answers=answers)
    assert result.exit_code == 0, result.output
    assert result.output.count("There is no part 'jpg'; choose from png, txt, json.") == 2
    assert _yaml(root)["field_map"] == {"image": "png", "context": "json[0][value]"}


def test_crude_samples_and_sample_loaders(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    assert _prepare(root, answers="1,0,0\ny\n11\n").exit_code == 0
    assert _yaml(root) == {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    result = _prepare(root, "--force-overwrite", answers="1,0,0\ny\n0\nn\n")
    assert result.exit_code == 0
    assert _yaml(root)["sample_loader"] == "sample_loader.py:sample_loader"
    loader = root / ".nv-meta/sample_loader.py"
    assert "def part_filter" in loader.read_text()
    loader.write_text("mine")
    assert _prepare(root, "--force-overwrite", answers="1,0,0\ny\n0\nn\nn\n").exit_code == 0
    assert loader.read_text() == "mine"
    assert _prepare(root, "--force-overwrite", answers="1,0,0\ny\n0\nn\ny\n").exit_code == 0
    assert loader.read_text() != "mine"


def test_many_kinds_of_parts_need_a_sample_loader(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", extra={f"x{number}": b"x" for number in range(9)})
    result = _prepare(root, answers="1,0,0\ny\n0\n")
    assert result.exit_code == 0, result.output
    assert "too many kinds of parts" in result.output
    assert "and more" in result.output
    assert "sample_loader" in _yaml(root)


@pytest.mark.parametrize("ratio", ["1,2", "a,b,c", "0,0,0"])
def test_an_unusable_ratio_ends_with_a_usage_error(ratio: str, tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    for result in (_prepare(root, answers=f"{ratio}\n"), _prepare(root, f"--split-ratio={ratio}")):
        assert result.exit_code == 2
        assert f"the split ratio '{ratio}' is not usable" in result.output
    assert not (root / ".nv-meta").exists()


# --- without questions


def test_nothing_is_asked_that_was_given(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 10)
    words = ["prepare", root, "--split-ratio", "9,1,0", "--sample-type", "VQASample", "--field-map", FIELD_MAP]
    done = subprocess.run(
        [sys.executable, "-m", "omniloom", *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "train: 45 samples in 9 shards" in done.stdout
    assert _yaml(root)["field_map"] == json.loads(FIELD_MAP)
    assert open_dataset(root, split_part="val").samples == 5


def test_non_interactive_never_asks(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    result = _prepare(root, "--non-interactive")
    assert (result.exit_code, "--split-ratio is missing" in result.output) == (2, True)
    result = _prepare(root, "--non-interactive", "--split-ratio=1,0,0")
    assert result.exit_code == 0
    assert "Without --sample-type no dataset.yaml is made." in result.output
    # Energon's own test of its refusal: prepared already, and not told to overwrite.
    assert run(["prepare", str(root), "--non-interactive"]) == 1
    words = ["--non-interactive", "--force-overwrite", "--split-ratio=1,0,0"]
    assert _prepare(root, *words, "--sample-type=CaptioningSample").exit_code == 0
    assert _yaml(root)["sample_loader"] == "sample_loader.py:sample_loader"
    result = _prepare(root, *words, "--sample-type=CrudeWebdataset", "--dataset-yaml-name=dataset_crude.yaml")
    assert result.exit_code == 0
    assert "CrudeWebdataset" in (root / ".nv-meta/dataset_crude.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sample-type=Nonsense"], "there is no sample type 'Nonsense'"),
        (["--sample-type=VQASample", '--field-map={"image": "png"}'], "leaves out 'context'"),
        (["--sample-type=ImageSample", '--field-map={"picture": "png"}'], "has no field 'picture'"),
        (["--sample-type=ImageSample", "--field-map={"], "--field-map is no JSON"),
        (["--sample-type=ImageSample", "--field-map=[1]"], "expected a JSON object"),
        (["--field-map={}", "--non-interactive"], "--field-map needs --sample-type"),
        (["--split-parts=train"], "has no name"),
        (["--exclude=("], "no regular expression"),
        (["--key-rule=middle"], "'middle' is not one of"),
        (["--num-workers=-1"], "--num-workers"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_scanned(words: list[str], told: str, tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 1)
    result = _prepare(root, "--split-ratio=1,0,0", *words)
    assert result.exit_code == 2, result.output
    assert told in result.output
    assert not (root / ".nv-meta").exists()


def test_a_field_without_a_part_is_warned_of(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 1)
    words = ["--split-ratio=1,0,0", "--sample-type=CaptioningSample", '--field-map={"image": "jpg", "caption": "txt"}']
    result = _prepare(root, *words)
    assert result.exit_code == 0
    assert "Warning: no sample has a part for the field 'image': 'jpg' asks for jpg." in result.stderr


def test_json_output(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    result = _prepare(root, "--json", "--split-ratio=3,1,0", "--sample-type=VQASample", f"--field-map={FIELD_MAP}")
    found = json.loads(result.stdout)
    assert (found["ok"], found["samples"], found["shards"], found["reused_scans"]) == (True, 20, 4, 0)
    assert found["split_parts"]["val"] == {"shards": 1, "samples": 5}
    assert found["facts"]["part_counts"] == {"png": 20, "txt": 20, "json": 20}
    assert _yaml(root)["field_map"] == json.loads(FIELD_MAP)
    result = _prepare(root, "--json", "--split-ratio=1,0,0")
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (1, False)
    (root / "shard-001.tar").write_bytes(b"")
    result = _prepare(root, "--json", "--split-ratio=1,0,0", "--force-overwrite")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["error"]) == (1, "BadShardsError")
    assert [(fault["shard"], fault["reason"]) for fault in found["bad_shards"]] == [("shard-001.tar", "empty-file")]


def test_bad_shards_fail_the_command_or_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _shards(tmp_path / "set")
    os.truncate(root / "shard-002.tar", 700)
    words = ["prepare", str(root), "--split-ratio=1,0,0", "--skip-dataset-yaml", "--num-workers=2"]
    assert run(words) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"BadShardsError: {root}: 1 of 4 shards cannot be used")
    assert "[truncated] shard-002.tar" in error
    assert not (root / ".nv-meta/.info.json").exists()
    assert run([*words, "--skip-bad-shards"]) == 0
    captured = capsys.readouterr()
    assert "Indexed 15 samples in 3 shards, 3 of them unchanged since an earlier scan." in captured.out
    assert "Warning: left out [truncated]: shard-002.tar" in captured.err


def test_new_shards_join_a_kept_split(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 2)
    assert _prepare(root, "--split-ratio=1,1,0", "--skip-dataset-yaml").exit_code == 0
    _shards(root, 3)
    result = _prepare(root, "--keep-split", "--skip-dataset-yaml")
    assert result.exit_code == 0
    assert _yaml(root, "split.yaml")["split_parts"] == {
        "train": ["shard-000.tar", "shard-002.tar"],
        "val": ["shard-001.tar"],
        "test": [],
    }


def test_excludes_are_not_lost_in_silence(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 2)
    words = ["--split-ratio=1,0,0", "--skip-dataset-yaml"]
    assert "Warning" not in _prepare(root, *words).stderr
    split = root / ".nv-meta/split.yaml"
    split.write_text(split.read_text().replace("exclude: []", "exclude: [shard-001.tar]"))
    assert _prepare(root, "--keep-split", "--skip-dataset-yaml").exit_code == 0
    assert _yaml(root, "split.yaml")["exclude"] == ["shard-001.tar"]
    result = _prepare(root, *words, "--force-overwrite")
    assert "the old one excludes 1 shards or samples (shard-001.tar)" in result.stderr
    assert _yaml(root, "split.yaml")["exclude"] == []


def test_errors_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["prepare", str(tmp_path / "empty"), "--split-ratio=1,0,0"]) == 1
    assert "there is no *.tar file below this folder" in capsys.readouterr().err
    assert run(["prepare", str(tmp_path / "missing"), "--split-ratio=1,0,0"]) == 1
    assert "expected a folder of shards, found nothing" in capsys.readouterr().err
    for command in ("info", "lint"):
        assert run([command, str(tmp_path / "empty")]) == 1
        assert "omniloom prepare" in capsys.readouterr().err


# --- info and lint


def test_info_of_every_form(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 10)
    _prepare(root, "--split-ratio=8,2,0", "--sample-type=VQASample", f"--field-map={FIELD_MAP}")
    result = CliRunner().invoke(commands, ["info", str(root)])
    assert result.exit_code == 0
    for told in ("50 samples", "10 shards", str(root), "`train`: 80%, 40 samples in 8 shards", "VQASample"):
        assert told in result.output
    found = json.loads(CliRunner().invoke(commands, ["info", str(root), "--json"]).output)
    assert (found["samples"], found["sample_type"], found["split_parts"]["val"]["samples"]) == (50, "VQASample", 10)
    assert found["size_bytes"] == sum(path.stat().st_size for path in root.glob("*.tar"))
    # The forms on which Energon's own command fails: crude, old, and none.
    for text, told in (
        ("__module__: megatron.energon\n__class__: CrudeWebdataset\n", "CrudeWebdataset"),
        (
            "__module__: megatron.energon\n__class__: CaptioningWebdataset\nfield_map: {image: png}\n",
            "CaptioningSample",
        ),
        (None, "not described yet"),
    ):
        path = root / ".nv-meta/dataset.yaml"
        path.unlink()
        if text:
            path.write_text(text)
        result = CliRunner().invoke(commands, ["info", str(root)])
        assert (result.exit_code, told in result.output) == (0, True)
        path.touch()


def test_lint_says_where_and_exits_with_1(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 2)
    with tarfile.open(root / "shard-001.tar", "a") as tar:
        member = tarfile.TarInfo("zz.png")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"bad"))
    _prepare(root, "--split-ratio=1,0,0", "--sample-type=ImageSample", '--field-map={"image": "png"}')
    result = CliRunner().invoke(commands, ["lint", str(root)])
    assert result.exit_code == 1
    with tarfile.open(root / "shard-001.tar") as tar:
        start = tar.getmember("zz.png").offset_data
    assert f"ERROR shard-001.tar zz.png [bytes {start:,}-{start + 3:,}] not-an-image: " in result.output
    assert "11 samples in 2 shards: bad, 1 bad samples, 1 errors" in result.output
    found = json.loads(CliRunner().invoke(commands, ["lint", str(root), "--json"]).output)
    assert (found["ok"], found["bad_samples"], found["errors"]) == (False, 1, {"not-an-image": 1})
    assert found["findings"][0]["key"] == "zz"
    split = root / ".nv-meta/split.yaml"
    split.write_text(split.read_text().replace("exclude: []", "exclude: [shard-001.tar/zz]"))
    result = CliRunner().invoke(commands, ["lint", str(root), "--split-parts=train,val,test", "--parallel=2"])
    assert result.exit_code == 0, result.output
    assert "Skipped the empty split part val." in result.output
    assert "10 samples in 2 shards: no faults found" in result.output
