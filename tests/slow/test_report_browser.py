"""The report in a real browser: it draws, in light and in dark, fetches nothing, and the console stays silent."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.tools.main import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
WIDTH, HEIGHT = 1200, 900
HOSTILE = "\"'><script>console.log('hostile')</script><img src=x onerror=console.log('hostile')>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two runs, with hostile texts and images."""
    folder = tmp_path_factory.mktemp("report")
    for number, name in enumerate(("first", "second")):
        (folder / name).mkdir()
        lines = [
            {"step": n, "loss": 3 * math.exp(-n / 40) + number, "learned_tokens": 100, "learning_rate": 1e-3 / n,
             "gradient_norm": 2.0, "tokens_per_second": 900.0, "images_per_second": 3.0, "step_seconds": 0.1,
             "data_wait_seconds": 0.01, "skipped_steps": int(n == 7),
             "loss/captions": 3 * math.exp(-n / 30) + number, "loss/charts": 3 * math.exp(-n / 90) + number,
             "learned_tokens/captions": 75, "learned_tokens/charts": 25}
            | ({"validation_loss": 3 * math.exp(-n / 50) + number} if n % 20 == 0 else {})
            for n in range(1, 201)
        ]  # fmt: skip
        (folder / name / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / name / "recipe.yaml").write_text(dump_yaml({"loop": {"steps": 200}, "note": HOSTILE, "seed": number}))
    items = [
        {"id": n, "question": HOSTILE, "answers": ["red"], "text": "red" if n % 2 else HOSTILE, "score": n % 2,
         "images": [f"{n}.png"]}
        for n in range(4)
    ]  # fmt: skip
    (folder / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in items))
    for n in range(4):
        Image.new("RGB", (300, 200), (200, 60 * n, 0)).save(folder / f"{n}.png")
    out = folder / "report.html"
    runs = [str(folder / "first"), str(folder / "second")]
    arguments = ["--items", str(folder / "items.jsonl"), "--images", str(folder), "--out", str(out)]
    assert run(["report", *runs, *arguments]) == 0
    return out


def _browse(page: Path, *flags: str, profile: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}",
        *flags, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("scheme", "number"), [("light", 1), ("dark", 0)])
def test_it_draws_and_the_console_is_silent(page: Path, scheme: str, number: int, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    flags = (f"--screenshot={shot}", f"--blink-settings=preferredColorScheme={number}")
    done = _browse(page, *flags, profile=tmp_path / "profile")
    assert "CONSOLE" not in done.stderr
    with Image.open(shot) as picture:
        assert picture.width == WIDTH
        brightness = ImageStat.Stat(picture.convert("L"))
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert brightness.mean[0] > 230 if scheme == "light" else brightness.mean[0] < 60
    # The lines of both runs are there in their colours (blue and orange of the style).
    wanted = ((0, 103, 177), (201, 80, 0)) if scheme == "light" else ((88, 180, 240), (245, 154, 82))
    assert set(wanted) <= colours


def test_the_tree_that_the_browser_makes(page: Path, tmp_path: Path) -> None:
    tree = _browse(page, "--dump-dom", profile=tmp_path / "profile").stdout
    assert tree.count("<svg") == 8 + 2  # of ten charts, memory and fill are not recorded; and one of data sets a run
    assert tree.count("Loss by data set") == 2 * 2  # over the chart, and in its description
    assert tree.count("<polyline") > 20
    assert tree.count('<img alt="image of item') == 4
    assert "<script" not in tree
    assert not re.search(r"<[^>]* on[a-z]+=", re.sub(r'"[^"]*"', '""', tree))


def test_a_console_message_would_be_seen(tmp_path: Path) -> None:
    loud = tmp_path / "loud.html"
    loud.write_text("<script>console.log('hostile')</script>")
    shot = f"--screenshot={tmp_path / 'shot.png'}"
    assert "hostile" in _browse(loud, shot, profile=tmp_path / "profile").stderr
