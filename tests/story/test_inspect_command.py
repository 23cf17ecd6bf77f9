"""A person looks at samples as the model sees them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from omniloom.data.convert.llava import convert_llava
from omniloom.tools.main import run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inspect")
    (root / "images").mkdir()
    entries = []
    for number in range(6):
        stream = io.BytesIO()
        Image.new("RGB", (120, 60), (number * 30, 0, 255)).save(stream, "PNG")
        (root / "images" / f"{number}.png").write_bytes(stream.getvalue())
        turns = [
            {"from": "human", "value": "<image>\nWhat <b>?" if number < 5 else "<image><image>?"},
            {"from": "gpt", "value": f"Box {number}, not <image>."},
        ]
        entries.append({"id": f"s{number}", "image": f"{number}.png", "conversations": turns})
    (root / "d.json").write_text(json.dumps(entries))
    convert_llava(root / "d.json", images=root / "images", out=root / "out")
    return root / "out"


TILES = ["--layout", "tiles", "--tile-pixels", "28", "--max-tiles", "6"]


def _rows(prepared: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = run(["inspect", str(prepared), "--json", *TILES, *words])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_says_every_token_and_what_is_learned(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = _rows(prepared, capsys, "--count", "2")
    assert code == 0
    row = rows[0]
    assert row["images"] == [{"tiles": 3, "grid": "2 x 1 tiles and a thumbnail"}]
    learned = "".join(text for kind, text, _ in row["spans"] if kind.startswith("learned"))
    assert learned == "Box 0, not <image>.<|im_end|>"
    assert row["learned"] == len("Box 0, not <image>.") + 1
    assert sum(tokens for _, _, tokens in row["spans"]) == row["tokens"]
    assert [tokens for kind, _, tokens in row["spans"] if kind == "image"] == [3 * 4]


def test_a_sample_that_would_be_left_out_is_told(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = _rows(prepared, capsys, "--start", "5")
    assert code == 1
    assert rows[0]["fault"].startswith("placeholder-count: 2 placeholders for 1 image")
    code, rows = _rows(prepared, capsys, "--start", "5", "--megatron-rules")
    assert code == 0
    assert len(rows[0]["images"]) == 2


def test_figures_are_those_of_the_samples(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = _rows(prepared, capsys, "--count", "5")
    tokens = sorted(row["tokens"] for row in rows)
    code, (found,) = _rows(prepared, capsys, "--count", "6", "--figures", "--pack-tokens", "5000")
    assert code == 0
    assert found["samples"] == 5
    assert found["tokens"] == {"mean": sum(tokens) / 5, "median": tokens[2], "p90": tokens[-1], "max": tokens[-1]}
    assert found["learned_share"] == round(sum(row["learned"] for row in rows) / sum(tokens), 4)
    assert (found["images"], found["tiles"]) == (1.0, 3.0)
    assert found["fill_of_packs"] == round(sum(tokens) / 5000, 4)
    assert found["left_out"] == {"placeholder-count": 1}
    assert run(["inspect", str(prepared), *TILES, "--figures"]) == 0
    assert "packs of 4,096 tokens" in capsys.readouterr().out


def test_the_terminal_shows_tokens_tiles_and_packs(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(prepared), *TILES, "--count", "5", "--pack-tokens", "5000"]) == 0
    out = capsys.readouterr().out
    assert "[image 1: 12 tokens]⏎" in out
    assert "⟦Box 4, not <image>.<|im_end|>⟧⏎" in out  # no colours here, so brackets say what is learned
    assert "image 1: 2 x 1 tiles and a thumbnail" in out
    assert re.search(r"pack +1 .* of 5,000: 5 samples", out)


def test_the_page_needs_nothing_and_escapes_texts(prepared: Path, tmp_path: Path) -> None:
    page = tmp_path / "seen.html"
    words = ["--count", "6", "--html", str(page), "--pack-tokens", "5000", "--template", "vicuna_v1"]
    assert run(["inspect", str(prepared), *TILES, *words]) == 1
    text = page.read_text(encoding="utf-8")
    assert text.count("<article>") == 6
    assert 'class="image">[image 1: 12 tokens]' in text
    assert text.count("data:image/jpeg;base64,") == 5 * 3
    assert "<b>" not in text
    assert "<script" not in text
    assert "http" not in text.split("<main>")[1]
    assert 'class="fault">placeholder-count' in text


def test_a_template_that_does_not_fit_is_told(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(prepared), "--template", "model"]) == 1
    assert "needs a --tokenizer" in capsys.readouterr().err
    assert run(["inspect", str(prepared), "--tokenizer", str(prepared)]) == 1
    assert "no such file" in capsys.readouterr().err


def test_a_models_folder_says_what_images_become(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    config = {
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 56},
        "crop_size": {"height": 56, "width": 56},
        "do_center_crop": True,
        "image_mean": clip[0],
        "image_std": clip[1],
        "image_grid_pinpoints": [[56, 112], [112, 56]],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    code, rows = _rows(prepared, capsys, "--count", "1", "--processor", str(tmp_path))
    assert code == 0
    assert rows[0]["images"] == [{"tiles": 3, "grid": "2 x 1 tiles and a thumbnail"}]
    assert [tokens for kind, _, tokens in rows[0]["spans"] if kind == "image"] == [3 * 16]


def test_each_question_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (28, 28), "red").save(tmp_path / "a.png")
    turns = [{"from": "human", "value": "<image>\nRed?"}, {"from": "gpt", "value": "Yes."}]
    turns += [{"from": "human", "value": "Which colour?"}, {"from": "gpt", "value": "Red."}]
    (tmp_path / "d.json").write_text(json.dumps([{"id": "a", "image": "a.png", "conversations": turns}]))
    convert_llava(tmp_path / "d.json", images=tmp_path, out=tmp_path / "out")
    arguments = ["--tile-pixels", "28", "--template", "chatml"]
    assert run(["inspect", str(tmp_path / "out"), "--turns-apart", *arguments]) == 0
    told = capsys.readouterr().out
    first, second = told.split("a ─")[1:3]
    assert ("Red?" in first, "Which colour?" in first) == (True, False)
    assert ("Red?" in second, "Which colour?" in second, "[image 1: 4 tokens]" in second) == (False, True, True)
    assert run(["convert", "grids", str(tmp_path / "out"), "--out", str(tmp_path / "x"), "--turns-apart"]) == 1
    assert "turns='apart' is chosen when training" in capsys.readouterr().err
