"""A person converts LLaVA-style JSON: what the guide's script gives, every odd shape, faults, stops and restarts.

Archives are read with CPython's tarfile, and expected bytes are put together here by hand.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from omniloom.data.shards.scan import scan_shard
from omniloom.tools.main import run

Parts = dict[str, bytes]
REPORT = "convert_report.jsonl"


def _picture(kind: str, colour: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (24, 16), (colour % 256, 80, 200)).save(stream, kind)
    return stream.getvalue()


def _turns(text: str = "What is it?\n<image>") -> list[dict[str, str]]:
    return [{"from": "human", "value": text}, {"from": "gpt", "value": "a swatch of colour, é"}]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    (root / "sub").mkdir(parents=True)
    for number in range(10):
        (root / "sub" / f"{number}.jpg").write_bytes(_picture("JPEG", number * 20))
    (root / "p.png").write_bytes(_picture("PNG", 3))
    (root / "really_png.jpg").write_bytes(_picture("PNG", 4))
    (root / "page.jpg").write_bytes(b"<!doctype html><p>404")
    (root / "empty.jpg").write_bytes(b"")
    return root


def _write(tmp_path: Path, entries: list[Any], name: str = "data.json") -> Path:
    path = tmp_path / name
    lines = name.endswith(".jsonl")
    path.write_text("\n".join(json.dumps(e) for e in entries) if lines else json.dumps(entries), encoding="utf-8")
    return path


def _convert(data: Path, out: Path, *words: str) -> int:
    return run(["convert", "llava", str(data), "--images", str(data.parent / "images"), "--out", str(out), *words])


def _members(shard: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(shard, "r:") as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


def _samples(out: Path) -> dict[str, Parts]:
    found: dict[str, Parts] = {}
    for shard in sorted(out.glob("*.tar")):
        for name, data in _members(shard):
            folder, _, base = name.rpartition("/")
            key, _, part = base.partition(".")
            found.setdefault(f"{folder}/{key}" if folder else key, {})[part] = data
    return found


def _report(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / REPORT).read_text().splitlines()]


def _files(out: Path) -> dict[str, bytes]:
    """Everything that has to be equal between two conversions: shards, their indexes, report, configuration."""
    names = [
        *out.glob("*.tar"),
        *out.glob("*.idx"),
        out / REPORT,
        *(out / ".nv-meta").glob("*.yaml"),
        out / ".nv-meta/.info.json",
    ]
    return {str(path.relative_to(out)): path.read_bytes() for path in names}


def test_same_samples_and_keys_as_the_guides_script(tmp_path: Path, pictures: Path) -> None:
    """The script: key = id, jpg = the file's bytes, json = json.dumps(conversations), 10,000 a shard, parts sorted."""
    entries = [
        {"id": f"{n:09d}", "image": f"sub/{n % 10}.jpg", "conversations": _turns(f"Describe {n}.\n<image>")}
        for n in range(25)
    ]
    out = tmp_path / "wds"
    assert _convert(_write(tmp_path, entries), out, "--max-count", "10", "--pattern", "pretrain-%d.tar") == 0
    expected: list[tuple[str, bytes]] = []
    for entry in entries:
        expected.append((f"{entry['id']}.jpg", (pictures / str(entry["image"])).read_bytes()))
        expected.append((f"{entry['id']}.json", json.dumps(entry["conversations"]).encode("utf-8")))
    names = [f"pretrain-{number}.tar" for number in range(3)]
    assert sorted(path.name for path in out.glob("*.tar")) == names
    written = [_members(out / name) for name in names]
    assert [len(members) for members in written] == [20, 20, 10]
    assert [member for members in written for member in members] == expected
    config = yaml.safe_load((out / ".nv-meta/dataset.yaml").read_text())
    assert config == {  # what the guide has its reader type in
        "sample_type": {"__module__": "megatron.energon", "__class__": "VQASample"},
        "field_map": {"image": "jpg", "context": "json[0][value]", "answers": "json[1][value]"},
    }
    info = json.loads((out / ".nv-meta/.info.json").read_text())
    assert info["shard_counts"] == dict(zip(names, [10, 10, 5], strict=True))


def test_the_sidecar_is_what_prepare_would_write(tmp_path: Path, pictures: Path) -> None:
    entries = [
        {"id": n, "image": ["sub/1.jpg", "p.png"][: n % 3], "conversations": _turns(), "é" * 60: n} for n in range(23)
    ]
    out = tmp_path / "out"
    assert _convert(_write(tmp_path, entries), out, "--max-count", "8") == 0
    before = _files(out)
    facts = json.loads((out / ".nv-meta/omniloom.json").read_text())
    for shard in sorted(out.glob("*.tar")):
        assert scan_shard(shard, shard=shard.name).offsets.tobytes() == shard.with_suffix(".tar.idx").read_bytes()
        shard.with_suffix(".tar.idx").unlink()
    words = [
        "prepare",
        str(out),
        "--non-interactive",
        "--split-ratio",
        "1,0,0",
        "--force-overwrite",
        "--skip-dataset-yaml",
    ]
    assert run([*words, "--num-workers", "1"]) == 0
    assert _files(out) == before
    again = json.loads((out / ".nv-meta/omniloom.json").read_text())
    assert {**again, "index_uuid": ""} == {**facts, "index_uuid": ""}


def test_every_shape_of_an_entry(tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C30: image "a.jpg" / ["a.jpg"] / null / absent, id 1 / "a", both namings of roles, an unknown field."""
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    entries = [
        {"id": 1, "image": "sub/1.jpg", "conversations": _turns()},
        {"id": "a", "image": ["sub/2.jpg"], "conversations": _turns()},
        {"id": "b", "image": None, "conversations": chat},
        {"id": "c", "conversations": _turns("Hi"), "model": "x", "n": 9007199254740993},
    ]
    out = tmp_path / "out"
    assert _convert(_write(tmp_path, entries), out, "--json") == 0
    samples = _samples(out)
    images = [sum(part not in ("json", "extra.json") for part in parts) for parts in samples.values()]
    assert images == [1, 1, 0, 0]
    assert list(samples) == ["1", "a", "b", "c"]
    assert json.loads(samples["b"]["json"]) == [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    assert json.loads(samples["c"]["extra.json"]) == {"model": "x", "n": 9007199254740993}
    assert [set(parts) for parts in samples.values()] == [
        {"jpg", "json"},
        {"jpg", "json"},
        {"json"},
        {"json", "extra.json"},
    ]
    summary = json.loads(capsys.readouterr().out)
    assert summary["shapes"] == {
        "id: integer": 1, "id: string": 3,
        "image: absent": 1, "image: list": 1, "image: null": 1, "image: string": 1,
        "roles: human/gpt": 3, "roles: user/assistant": 1,
    }  # fmt: skip
    assert (summary["samples"], summary["images"], summary["left_out"]) == (4, 2, {})
    assert yaml.safe_load((out / ".nv-meta/dataset.yaml").read_text())["__class__"] == "CrudeWebdataset"


def test_several_images_are_numbered_in_their_order(tmp_path: Path, pictures: Path) -> None:
    few = ["sub/3.jpg", "p.png", "sub/1.jpg"]
    many = [f"sub/{n % 10}.jpg" for n in range(12)]
    entries = [
        {"id": "few", "image": few, "conversations": _turns()},
        {"id": "many", "image": many, "conversations": _turns()},
    ]
    out = tmp_path / "out"
    assert _convert(_write(tmp_path, entries), out) == 0
    samples = _samples(out)
    assert list(samples["few"]) == ["0.jpg", "1.png", "2.jpg", "json"]
    assert [samples["few"][part] for part in ("0.jpg", "1.png", "2.jpg")] == [(pictures / n).read_bytes() for n in few]
    assert sorted(set(samples["many"]) - {"json"}) == [f"{n:02d}.jpg" for n in range(12)]
    assert samples["many"]["10.jpg"] == (pictures / "sub/0.jpg").read_bytes()


def test_faults_are_counted_listed_and_end_with_1(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pictures / "pipe.jpg")
    (tmp_path / "secret.jpg").write_bytes(_picture("JPEG", 1))
    good = {"id": "good", "image": "sub/0.jpg", "conversations": _turns()}
    faults = {
        "missing-image": {"id": "m", "image": "sub/nothing.jpg", "conversations": _turns()},
        "outside-images": {"id": "o", "image": "../secret.jpg", "conversations": _turns()},
        "not-a-file": {"id": "f", "image": "pipe.jpg", "conversations": _turns()},
        "empty-image": {"id": "e", "image": "empty.jpg", "conversations": _turns()},
        "not-an-image": {"id": "h", "image": "page.jpg", "conversations": _turns()},
        "bad-conversations": {"id": "c", "image": "sub/0.jpg", "conversations": "hello"},
        "bad-image-field": {"id": "i", "image": 7, "conversations": _turns()},
        "not-an-object": "hello",
    }
    out = tmp_path / "out"
    data = _write(tmp_path, [good, *faults.values(), {**good, "id": "last"}])
    assert _convert(data, out) == 1
    text = capsys.readouterr().out
    assert "Left out 8 of 10 entries" in text
    assert list(_samples(out)) == ["good", "last"]
    report = _report(out)
    assert [line["reason"] for line in report] == list(faults)
    assert [line["entry"] for line in report] == list(range(1, 9))
    assert {line["outcome"] for line in report} == {"left-out"}
    assert report[0] == {
        "entry": 1, "line": 1, "id": "m", "images": ["sub/nothing.jpg"], "outcome": "left-out",
        "reason": "missing-image", "detail": "sub/nothing.jpg: no such file",
    }  # fmt: skip
    assert "an HTML page" in report[4]["detail"]
    for reason in faults:
        assert f"{reason}: 1" in text
    assert _convert(data, out, "--allow-missing") == 0


def test_oddities_are_kept_and_listed(tmp_path: Path, pictures: Path) -> None:
    entries = [
        {"id": "22.05", "image": "sub/1.jpg", "conversations": _turns()},
        {"id": "a", "image": "sub/1.jpg", "conversations": _turns()},
        {"id": "a", "image": "sub/2.jpg", "conversations": _turns()},
        {"id": "../a", "image": "sub/3.jpg", "conversations": _turns()},
        {"id": "x", "image": "really_png.jpg", "conversations": _turns()},
        {"image": "sub/4.jpg", "conversations": _turns()},
        {"id": "two", "image": "sub/4.jpg", "conversations": _turns("<image><image>")},
        {"id": "a", "image": "sub/5.jpg", "conversations": _turns()},
    ]
    out = tmp_path / "out"
    assert _convert(_write(tmp_path, entries), out) == 0
    samples = _samples(out)
    assert list(samples) == ["22%2E05", "a", "a~2", "%2E%2E/a", "x", "entry-000000005", "two", "a~3"]
    assert samples["a~2"]["jpg"] == (pictures / "sub/2.jpg").read_bytes()
    assert samples["x"]["png"] == (pictures / "really_png.jpg").read_bytes()
    assert json.loads(samples["22%2E05"]["extra.json"]) == {"id": "22.05"}
    reasons = [line["reason"] for line in _report(out)]
    assert sorted(reasons) == sorted(
        [
            "escaped-id",
            "duplicate-id",
            "escaped-id",
            "mislabelled-image",
            "missing-id",
            "placeholder-count",
            "duplicate-id",
        ]
    )
    assert yaml.safe_load((out / ".nv-meta/dataset.yaml").read_text())["field_map"]["image"] == "jpg,png"
    assert _convert(_write(tmp_path, entries, "again.json"), tmp_path / "skip", "--on-duplicate", "skip") == 1
    assert "a~2" not in _samples(tmp_path / "skip")


def test_zip_and_jsonl_give_the_same_bytes_as_folder_and_json(tmp_path: Path, pictures: Path) -> None:
    entries = [{"id": n, "image": f"sub/{n % 10}.jpg", "conversations": _turns()} for n in range(20)]
    archive = tmp_path / "images.zip"
    with zipfile.ZipFile(archive, "w") as writer:
        for path in sorted(pictures.rglob("*")):
            writer.write(path, path.relative_to(pictures))
    outs = [tmp_path / name for name in ("one", "two", "three")]
    assert _convert(_write(tmp_path, entries), outs[0], "--max-count", "7") == 0
    lines = _write(tmp_path, entries, "data.jsonl")
    assert (
        run(["convert", "llava", str(lines), "--images", str(archive), "--out", str(outs[1]), "--max-count", "7"]) == 0
    )
    assert _convert(lines, outs[2], "--max-count", "7", "--threads", "0") == 0
    assert _files(outs[0]) == _files(outs[1]) == _files(outs[2])


def test_shards_are_closed_by_size(tmp_path: Path, pictures: Path) -> None:
    entries = [{"id": n, "image": "sub/1.jpg", "conversations": _turns()} for n in range(6)]
    payload = len((pictures / "sub/1.jpg").read_bytes()) + len(json.dumps(_turns()))
    out = tmp_path / "out"
    assert _convert(_write(tmp_path, entries), out, "--max-size", str(payload + 1), "--split-ratio", "2,1,0") == 0
    assert [len(_members(shard)) // 2 for shard in sorted(out.glob("*.tar"))] == [2, 2, 2]
    parts = yaml.safe_load((out / ".nv-meta/split.yaml").read_text())["split_parts"]
    assert parts == {"train": ["shard-{000000..000001}.tar"], "val": ["shard-000002.tar"], "test": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pattern", "x.tar"], "expected a file name such as shard-%06d.tar"),
        (["--pattern", "../x-%d.tar"], "without folders"),
        (["--image-part", "json"], "holds the conversation"),
        (["--image-part", "a/b"], "letters and digits"),
        (["--split-ratio", "1,x,0"], "three numbers"),
        (["--sample-type", "CaptioningSample"], "needs a field map"),
        (["--sample-type", "NoSample"], "NoSample"),
        (["--field-map", '{"image": "jpg"}'], "without a sample type"),
        (["--sample-type", "VQASample", "--field-map", '{"picture": "jpg"}'], "picture"),
        (["--images", "/nothing/here"], "no such folder or zip"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _write(tmp_path, [{"id": 1, "image": "sub/1.jpg", "conversations": _turns()}])
    assert _convert(data, tmp_path / "out", *words) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_convertible_is_an_error_and_leaves_no_data_set(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _write(tmp_path, [{"id": n, "image": "no.jpg", "conversations": _turns()} for n in range(3)])
    for _ in range(2):
        assert _convert(data, tmp_path / "out") == 1
        assert "not one of 3 entries could be converted: 3 missing-image" in capsys.readouterr().err
    assert not (tmp_path / "out" / ".nv-meta").exists()
    assert len(_report(tmp_path / "out")) == 3


def test_foreign_folders_are_not_mixed_with(tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.tar").write_bytes(b"precious")
    data = _write(tmp_path, [{"id": 1, "image": "sub/1.jpg", "conversations": _turns()}])
    assert _convert(data, out, "--overwrite") == 1
    assert "mine.tar" in capsys.readouterr().err
    assert (out / "mine.tar").read_bytes() == b"precious"


def test_other_input_needs_overwrite(tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    first = _write(tmp_path, [{"id": n, "image": "sub/1.jpg", "conversations": _turns()} for n in range(5)])
    second = _write(tmp_path, [{"id": 9, "image": "sub/2.jpg", "conversations": _turns()}], "other.json")
    assert _convert(first, out, "--max-count", "2") == 0
    assert _convert(second, out, "--max-count", "2") == 1
    assert "another input or with other options: input was" in capsys.readouterr().err
    assert _convert(first, out, "--max-count", "3") == 1
    assert "max_count was 2, now 3" in capsys.readouterr().err
    assert _convert(second, out, "--max-count", "2", "--overwrite") == 0
    assert list(_samples(out)) == ["9"]
    assert sorted(path.name for path in out.glob("*.tar*")) == ["shard-000000.tar", "shard-000000.tar.idx"]


def test_a_second_run_does_nothing(tmp_path: Path, pictures: Path) -> None:
    out = tmp_path / "out"
    data = _write(tmp_path, [{"id": n, "image": "sub/1.jpg", "conversations": _turns()} for n in range(5)])
    assert _convert(data, out) == 0
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.tar*")}
    assert _convert(data, out) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.tar*")} == before


def test_images_that_come_later_are_taken_in(tmp_path: Path, pictures: Path) -> None:
    entries = [{"id": n, "image": f"sub/{n}.jpg", "conversations": _turns()} for n in range(20)]
    data, out = _write(tmp_path, entries), tmp_path / "out"
    assert _convert(data, out, "--max-count", "4") == 1
    kept = (out / "shard-000001.tar").stat().st_mtime_ns
    for number in range(10, 20):
        (pictures / "sub" / f"{number}.jpg").write_bytes(_picture("JPEG", number))
    assert _convert(data, out, "--max-count", "4") == 0
    assert (out / "shard-000001.tar").stat().st_mtime_ns == kept  # 4 to 7: nothing was missing there
    assert _convert(data, tmp_path / "fresh", "--max-count", "4") == 0
    assert _files(out) == _files(tmp_path / "fresh")


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_damaged_shard_is_made_again(damage: str, tmp_path: Path, pictures: Path) -> None:
    data = _write(tmp_path, [{"id": n, "image": "sub/1.jpg", "conversations": _turns()} for n in range(10)])
    out = tmp_path / "out"
    assert _convert(data, out, "--max-count", "3") == 0
    before = _files(out)
    victim = out / "shard-000001.tar"
    if damage == "gone":
        victim.unlink()
    else:
        os.truncate(victim, victim.stat().st_size // 2)
    assert _convert(data, out, "--max-count", "3") == 0
    assert _files(out) == before


def test_a_json_that_breaks_off_is_named_and_leaves_no_data_set(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _write(tmp_path, [{"id": n, "image": "sub/1.jpg", "conversations": _turns()} for n in range(10)])
    data.write_text(data.read_text()[:-40])
    assert _convert(data, tmp_path / "out", "--max-count", "3") == 1
    message = capsys.readouterr().err
    assert str(data) in message
    assert "line 1" in message
    assert not (tmp_path / "out/.nv-meta/.info.json").exists()


def test_two_conversions_into_one_folder_are_refused(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl  # noqa: PLC0415

    data = _write(tmp_path, [{"id": 1, "image": "sub/1.jpg", "conversations": _turns()}])
    out = tmp_path / "out"
    assert _convert(data, out) == 0
    with (out / "convert_journal.jsonl").open("rb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        assert _convert(data, out) == 1
    assert "another conversion is writing there" in capsys.readouterr().err


def test_a_full_disk_names_the_shard_and_the_next_run_goes_on(tmp_path: Path, pictures: Path) -> None:
    entries = [
        {"id": n, "image": f"sub/{n % 3}.jpg" if n < 9 else "big.png", "conversations": _turns()} for n in range(12)
    ]
    (pictures / "big.png").write_bytes(_picture("PNG", 9) + bytes(300_000))
    data, out = _write(tmp_path, entries), tmp_path / "out"
    words = ["--images", str(pictures), "--out", str(out), "--max-count", "3"]
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "from omniloom.tools.main import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "convert", "llava", str(data), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"StorageError: {out}/shard-000003.tar: cannot be written")
    assert "run the same command again" in done.stderr
    assert not list(out.glob("*.partial"))
    assert not (out / ".nv-meta/.info.json").exists()
    assert run(["convert", "llava", str(data), *words]) == 0
    assert _convert(data, tmp_path / "whole", "--max-count", "3") == 0
    assert _files(out) == _files(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["data.json", "data.jsonl"])
def test_killed_again_and_again_it_ends_with_the_same_bytes(form: str, tmp_path: Path, pictures: Path) -> None:
    entries: list[Any] = [
        {"id": n % 1500, "image": f"sub/{n % 11}.jpg", "conversations": _turns(), "n": n} for n in range(3000)
    ]
    data = _write(tmp_path, entries, form)
    words = ["--max-count", "100", "--threads", "2"]
    assert _convert(data, tmp_path / "whole", *words) == 1  # sub/10.jpg is missing
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "omniloom",
        "convert",
        "llava",
        str(data),
        "--images",
        str(pictures),
        "--out",
        str(out),
    ]
    journal, killed = out / "convert_journal.jsonl", 0
    for number, shards in enumerate([0, 1, 2, 5, 9, 15, 22]):
        process = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 1 + shards):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT if number == 3 else signal.SIGKILL)
        killed += process.wait(timeout=20) in (-signal.SIGKILL, 130)
    assert killed >= 4
    assert _convert(data, out, *words) == 1
    assert not list(out.glob("*.partial"))
    assert _files(out) == _files(tmp_path / "whole")
