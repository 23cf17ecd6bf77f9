"""A user's walk with nothing but URLs: converted, prepared, looked at, trained, asked and scored in a bucket."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from PIL import Image
from tests.contract.remote_sets import remote_files, upload, use_server
from tests.contract.s3_server import s3_server

from omniloom.storage.open import open_store
from omniloom.tools.main import COMMANDS, commands, run
from omniloom.tools.store_paths import LOCAL, WRITTEN, StorePath

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "s3://walk"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("walk") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def _here(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_server(monkeypatch, endpoint)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(Path().glob("*:*"))  # no folder of this machine is called after a scheme


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    folder = tmp_path / "talks"
    folder.mkdir()
    entries = []
    for number in range(12):
        Image.new("RGB", (40 + number, 48), ("red", "blue")[number % 2]).save(folder / f"{number}.png")
        turns = [{"from": "human", "value": "<image>\nWhich colour?"}, {"from": "gpt", "value": "One."}]
        entries.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    (folder / "talks.json").write_text(json.dumps(entries))
    (folder / "lines.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    upload(folder, f"{BUCKET}/talks")
    return folder


def _told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(list(words)) == code, capsys.readouterr()
    told = capsys.readouterr()
    return told.out + told.err


def _convert(capsys: pytest.CaptureFixture[str], name: str, source: str = "talks.json") -> str:
    place = f"{BUCKET}/{name}"
    words = ("convert", "llava", f"{BUCKET}/talks/{source}", "--images", f"{BUCKET}/talks", "--out", place)
    _told(capsys, *words, "--max-count", "5", "--no-progress")
    return place


@pytest.mark.usefixtures("talks")
def test_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = _convert(capsys, "set")
    assert (
        remote_files(_convert(capsys, "lines", "lines.jsonl"))["shard-000000.tar"]
        == remote_files(place)["shard-000000.tar"]
    )
    for number in range(3):
        shard = open_store(place).read(f"{place}/shard-{number:06d}.tar")
        for name in ("frozen", "shared"):
            open_store(place).write(f"{BUCKET}/{name}/shard-{number:06d}.tar", shard)
    options = ("--non-interactive", "--split-ratio", "2,1,0", "--sample-type", "CrudeWebdataset", "--no-progress")
    meta = f"{BUCKET}/frozen-meta"
    _told(capsys, "prepare", f"{BUCKET}/frozen", *options, "--meta-dir", meta)
    for share in ("0/2", "1/2"):
        _told(capsys, "prepare", f"{BUCKET}/shared", "--shard-range", share)
    _told(capsys, "merge", f"{BUCKET}/shared", *options)
    mix = {"blend": [{"path": name, "weight": 1} for name in ("shared", "frozen-meta")]}
    header = {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
    open_store(BUCKET).write(f"{BUCKET}/mix.yaml", json.dumps({**header, "splits": {"train": mix}}).encode())
    for where in (place, meta, f"{BUCKET}/shared", f"{BUCKET}/mix.yaml", f"{BUCKET}/talks/lines.jsonl"):
        assert "s3:/w" not in _told(capsys, "info", where)
        if not where.endswith(".jsonl"):  # whose images are not in it
            _told(capsys, "inspect", where, "--count", "1")
    for where in (place, meta, f"{BUCKET}/shared", f"{BUCKET}/talks/lines.jsonl", f"{BUCKET}/talks/talks.json"):
        assert "no faults found" in _told(capsys, "lint", where, "--parallel", "1")
        _told(capsys, "preview", where, "--count", "1")
    _told(capsys, "prepare", f"{BUCKET}/mix.yaml")
    tiles = ("--layout", "tiles", "--max-tiles", "4", "--tile-pixels", "28", "--max-tokens", "600", "--no-progress")
    for kind, more in (("packs", ("--pack-tokens", "1200")), ("grids", ())):
        _told(capsys, "convert", kind, place, *tiles, *more, "--out", f"{BUCKET}/{kind}")
        assert "no faults found" in _told(capsys, "lint", f"{BUCKET}/{kind}", "--parallel", "1")
    for share in ("0/2", "1/2"):
        _told(capsys, "prepare-media", place, "--media-metadata-by-extension", "--shard-range", share)
    assert "of 12 media" in _told(capsys, "prepare-media", place, "--media-metadata-by-extension", "--no-progress")
    for command in ("preview", "inspect"):
        told = _told(capsys, command, place, "--count", "1", "--html", f"{BUCKET}/pages/{command}.html")
        assert f"Uploaded {BUCKET}/pages/{command}.html" in told
    _told(capsys, "lint", place, "--parallel", "1", "--quarantine", f"{BUCKET}/pages/bad.yaml")
    assert set(remote_files(f"{BUCKET}/pages")) == {"preview.html", "inspect.html", "bad.yaml"}


@pytest.mark.slow
@pytest.mark.usefixtures("talks")
def test_training_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    place = _convert(capsys, "trained")
    upload(ROOT / "recipes", f"{BUCKET}/recipes")
    told = (f"data.train={place}", "data.validation=null", "evaluation={}", f"checkpoint.place={BUCKET}/run",
            f"model.config={BUCKET}/recipes/models/tiny.json", "loop.steps=2", "checkpoint.every_steps=2")  # fmt: skip
    train = ["train", f"{BUCKET}/recipes/tiny/pretrain.yaml", *(word for one in told for word in ("--set", one))]
    _told(capsys, *train, "--set", "folder=run")
    assert "complete.json" in " ".join(remote_files(f"{BUCKET}/run"))
    states = f"{BUCKET}/run/step-00000002/loader"
    assert "lanes" in _told(capsys, "state", "show", states)
    _told(capsys, "state", "check", f"{states}/rank-00000.json", "--world-size", "2")
    _told(capsys, "state", "redeal", states, f"{BUCKET}/redealt", "--new-world-size", "2")
    assert set(remote_files(f"{BUCKET}/redealt")) == {"rank-00000.json", "rank-00001.json"}
    short = ("--max-new-tokens", "3", "--limit", "2")
    asked = ("generate", "--model", "run", "--task", "captioning", "--input-image-path", f"{BUCKET}/talks", *short)
    assert "2 answers made" in _told(capsys, *asked, "--output", f"{BUCKET}/answers/a.jsonl")
    assert "2 were there" in _told(capsys, *asked, "--output", f"{BUCKET}/answers/a.jsonl")
    truth = ("--ground-truth", place, "--split-part", "train")
    _told(
        capsys, "evaluate", "captioning", "--model", "run", *truth, *short,
        "--output", f"{BUCKET}/scores/result.json", "--items", f"{BUCKET}/scores/items.jsonl",
    )  # fmt: skip
    _told(
        capsys, "report", "run", "--result", f"{BUCKET}/scores/result.json", "--items", f"{BUCKET}/scores/items.jsonl",
        "--out", f"{BUCKET}/scores/page.html",
    )  # fmt: skip
    assert b"<html" in remote_files(f"{BUCKET}/scores")["page.html"]
    _told(capsys, "ask", "run", f"{BUCKET}/talks/1.png", "Which?")
    _told(capsys, "weights", "convert", "run", f"{BUCKET}/weights")
    _told(capsys, "weights", "show", f"{BUCKET}/weights")


@pytest.mark.slow
@pytest.mark.usefixtures("talks")
def test_secrets_of_urls_are_kept_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in what is printed or logged, in pages, runs, checkpoints, states, the cache, or anything in the store."""
    caplog.set_level(logging.DEBUG, logger="omniloom")
    secret = "?secret_access_key=sesame-opens&access_key_id=sesame-too&region=us-east-1"
    place, told = f"{BUCKET}/kept{secret}", []
    words = ("convert", "llava", f"{BUCKET}/talks/talks.json{secret}", "--images", f"{BUCKET}/talks{secret}")
    told.append(_told(capsys, *words, "--out", place, "--max-count", "5", "--no-progress"))
    options = ("--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--no-progress")
    told.append(_told(capsys, "prepare", place, *options, "--meta-dir", "meta"))
    told.append(_told(capsys, "prepare-media", place, "--media-metadata-by-extension", "--no-progress"))
    told += [_told(capsys, "info", place), _told(capsys, "lint", place, "--quarantine", "bad.yaml")]
    for command in ("preview", "inspect"):
        told.append(_told(capsys, command, place, "--count", "1", "--html", f"{command}.html"))
    upload(ROOT / "recipes", f"{BUCKET}/recipes")
    settings = (f"data.train={place}", f"data.validation={place}", f"checkpoint.place={BUCKET}/secret-run{secret}",
                f"model.config={BUCKET}/recipes/models/tiny.json{secret}", "loop.steps=2", "checkpoint.every_steps=2",
                "folder=run", "evaluation={}")  # fmt: skip
    train = ["train", f"{BUCKET}/recipes/tiny/pretrain.yaml{secret}"]
    told.append(_told(capsys, *train, *(word for one in settings for word in ("--set", one))))
    told.append(_told(capsys, "report", "run", "--out", "report.html"))
    told.append(_told(capsys, "state", "show", f"{BUCKET}/secret-run/step-00000002/loader{secret}"))
    told += [_told(capsys, "info", f"{BUCKET}/none{secret}", code=1), caplog.text]
    assert "sesame" not in "".join(told).replace("GET /", "")
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written |= remote_files(BUCKET)
    assert len(written) > 50
    held = [name for name, data in written.items() if b"sesame" in data]
    assert held == []
    told = _told(capsys, "lint", "meta", "--parallel", "1")  # by the credentials of the environment
    assert "no faults found" in told


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("report", "s3://walk/none", "--out", "page.html"), 2, "s3://walk/none: there is nothing"),
        (("mount", "s3://walk/set", "."), 2, "lies in a store"),
        (("lint", "s3://walk/mix.yaml"), 1, "is a mix"),
        (("preview", "s3://walk/mix.yaml"), 1, "is a mix"),
        (("fetch", "karpathy", "--out", "s3://walk/x"), 2, "lies in a store"),
        (("train", "recipes/tiny/pretrain.yaml", "--workspace", "s3://walk/x"), 2, "lies in a store"),
        (("train", "recipes/tiny/pretrain.yaml", "--set", "folder=s3://walk/x"), 1, "checkpoint: {place: URL}"),
        (
            ("generate", "--model", "s3://walk/steps", "--task", "captioning", "--output", "a.jsonl"),
            2,
            "checkpoints of a",
        ),
        (("weights", "show", "s3://walk/none?secret_access_key=sesame"), 2, "there is nothing"),
    ],
)
def test_what_will_not_do_is_told(
    words: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    open_store(BUCKET).write(f"{BUCKET}/steps/latest.json", b"{}")
    told = _told(capsys, *words, code=code)
    assert message in told
    assert "sesame" not in told


def test_every_path_of_every_command_is_in_a_table() -> None:
    """A new argument whose name is that of something written has to be entered, or it would be taken as read."""
    seen: dict[str, set[str]] = {"written": set(), "local": set()}

    def walk(command: click.Command | None, name: str) -> None:
        if isinstance(command, click.Group):
            for inner, each in command.commands.items():
                walk(each, inner)
            return
        for param in command.params if command is not None else ():
            if isinstance(param.type, click.Path):
                assert isinstance(param.type, StorePath), (name, param.name)
                names = {param.name or "", f"{name} {param.name}"}
                seen["written"] |= names & WRITTEN
                seen["local"] |= names & LOCAL
                if not names & (WRITTEN | LOCAL):
                    assert not (param.name or "").startswith(("out", "dest", "write", "to_")), (name, param.name)

    context: Any = click.Context(commands)
    for name in COMMANDS:
        walk(commands.get_command(context, name), name)
    assert (seen["written"], seen["local"]) == (set(WRITTEN), set(LOCAL))
