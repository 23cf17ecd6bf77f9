"""The report: what is read, what is drawn, what is said; expected values by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from omniloom.config.reading import to_plain
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.errors import ConfigError
from omniloom.evaluate.tasks import TASKS
from omniloom.report.anchors import ANCHORS
from omniloom.report.charts import Axis, Curve, line_chart, number, short
from omniloom.report.curves import memory_mib, over_tokens, pack_fill, skipped_steps, smoothed, thinned, wait_share
from omniloom.report.gallery import cards, chosen, usual_answers, verdicts
from omniloom.report.page import report_page
from omniloom.report.records import ItemRecord, read_items, read_result, read_run, read_runs
from omniloom.report.run_sections import duration, sentence
from omniloom.tools.main import run
from omniloom.train.loop import LoopConfig
from omniloom.train.metrics import LogConfig, StepLog
from omniloom.train.recipe import DataConfig, ModelConfig, Recipe

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;</style></title>\u2028\ud800"
RECIPE = {"folder": "runs/a", "loop": {"steps": 4}, "model": {"folder": "base"}, "note": ""}
TAGS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body h1 h2 h3 p nav a section article div span b i dl dt dd table tr th td figure "
        "figcaption em pre svg g line text polyline circle rect ul li details summary",
    )
)
STEPS = (
    {"step": 1, "loss": 4.0, "learned_tokens": 10, "step_seconds": 2.0, "data_wait_seconds": 0.5, "skipped_steps": 0},
    {"step": 2, "loss": None, "learned_tokens": 20, "step_seconds": 1.0, "data_wait_seconds": 0.0, "skipped_steps": 1},
    {"step": 3, "loss": 2.0, "learned_tokens": 30, "step_seconds": 1.0, "data_wait_seconds": 0.1, "skipped_steps": 0},
)
RESULT: dict[str, Any] = {
    "task": "mmmu", "title": "MMMU", "metric": "accuracy, percent", "variant": "no-guess",
    "checked_against": "unverified",
    "scores": {"accuracy": 40.0, "other": 1.25}, "groups": {"subject": {"Art": 30.0, "Math": 50.0}},
    "counts": {"expected": 10, "answered": 8, "scored": 10, "missing": 2, "empty": 0, "doubled": 0, "conflicting": 0,
               "unknown": 0},
    "ids": {"missing": ["art_1", "art_2"]}, "missing_policy": "wrong", "complete": False, "model": "m",
}  # fmt: skip


def run_folder(folder: Path, *, steps: Any = STEPS, recipe: Any = RECIPE, tail: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps) + tail)
    (folder / "recipe.yaml").write_text(dump_yaml(recipe))
    return folder


def item(number: int, score: float, **other: Any) -> ItemRecord:
    plain = {"id": str(number), "question": "?", "answers": ("yes",), "text": "no", "score": score, "images": ()}
    return ItemRecord(**{**plain, **other})


def test_curves() -> None:
    points = list(enumerate([1.0, 2.0, 3.0, 4.0, 11.0]))
    assert [y for _, y in smoothed(points, steps=3)] == [1, 2, 3, 6, 11]
    assert smoothed(points, steps=1) == points
    assert [x for x, _ in smoothed(points, steps=1, most=3)] == [0, 2, 4]
    # A spike of 1e30 leaves the values after it as they are.
    assert smoothed([(0, 1e30), *((n, 1.0) for n in range(1, 9))], steps=3)[4:] == [(n, 1.0) for n in range(4, 9)]
    flat = [(float(n), 1000.0 if n == 777 else 0.5) for n in range(10_000)]
    assert len(thinned(flat, most=100)) <= 100
    assert (777.0, 1000.0) in thinned(flat, most=100)


def test_curves_of_a_run(tmp_path: Path) -> None:
    record = read_run(run_folder(tmp_path / "a", tail='{"step": 4, "lo'))
    assert record.cut_line
    assert over_tokens(record, "loss") == [(10, 4), (60, 2)]
    assert wait_share(record) == [(1, 25), (2, 0), (3, 10)]
    assert skipped_steps(record) == [2]
    assert pack_fill(record) == []
    data = {"pack_tokens": 1000, "batch_size": 2}
    steps = [{"step": 1, "tokens_per_second": 3000.0, "step_seconds": 1.0, "peak_memory_bytes": 3 << 20}]
    loop = {"steps": 1, "micro_batches": 2}
    packed = read_run(run_folder(tmp_path / "b", steps=steps, recipe={"data": data, "loop": loop}))
    assert pack_fill(packed) == [(1, 75)]
    told = read_run(run_folder(tmp_path / "c", steps=[steps[0] | {"fill": 0.5}], recipe={"data": data, "loop": loop}))
    assert pack_fill(told) == [(1, 50)]
    assert memory_mib(packed) == [(1, 3)]
    assert sentence(record) == (
        "Took 3 of 4 steps and is not at its end, in 4 s of stepping. "
        "The training loss went from 4 to 2 nats a token. Left out: 1 step."
    )
    assert [duration(seconds) for seconds in (45, 425, 12_000)] == ["45 s", "7 min 5 s", "3 h 20 min"]


def test_axes() -> None:
    assert Axis(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(0.01, 100, 0, 100, log=True).ticks() == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert Axis(0.01, 100, 0, 100, log=True).place(1) == pytest.approx(50)
    assert [short(v) for v in (1.5e6, 20_000, 1500, 0.25)] == ["1.5M", "20k", "1500", "0.25"]
    assert [number(v) for v in (12345.6, 0.123456, 3.0)] == ["12,346", "0.1235", "3"]
    for values in ([0.0], [5.0, 5.0], [-1.0, 1e-300], [1e300, 1e-300], [-3.0, -3.0]):
        curve = Curve(label="a", colour=0, points=list(enumerate(values)))
        for log in (False, True):
            chart = line_chart([curve], title="t", x_name="x", y_name="y", log=log)
            assert "nan" not in chart
            assert "inf" not in chart
    assert "not recorded" in line_chart([], title="t", x_name="x", y_name="y")


def test_what_the_trainer_writes_is_read(tmp_path: Path) -> None:
    log = StepLog(tmp_path, LogConfig(), steps=2, first_step=0, writing=True)
    log.step(1, {"loss": 1.5, "skipped_steps": 0})
    log.step(2, {"loss": float("nan"), "skipped_steps": 1})
    log.close()
    recipe = Recipe(folder="a", model=ModelConfig(folder="b"), data=DataConfig(train="c"), loop=LoopConfig(steps=2))
    (tmp_path / "recipe.yaml").write_text(dump_yaml(to_plain(recipe)))
    record = read_run(tmp_path)
    assert (record.steps, record.column("loss"), record.planned_steps) == ([1, 2], [1.5, None], 2)
    assert "data.train" in report_page([record])


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("", "no whole line"),
        ('{"step": 1}\n{"step": 2,}\n', "steps.jsonl, line 2: no JSON"),
        ('{"step": 3}\n\n{"step": 3}\n', "line 3: step 3 after step 3"),
        ('{"loss": 3}\n', "line 1: no key 'step'; found: loss"),
        ('{"step": true}\n', "line 1: 'step' is 'True'"),
        ('{"step": 1, "loss": "low"}\n', "line 1: 'loss' is 'low'; a number or null"),
        ("[1]\n", "line 1: list found"),
        ('{"step": 1%s}\n' % ("0" * 400), "0 to 2**53 expected"),
        ("[" * 100_000 + "\n", "line 1: JSON that cannot be read"),
    ],
)
def test_broken_steps(tmp_path: Path, steps: str, words: str) -> None:
    folder = run_folder(tmp_path / "a")
    (folder / "steps.jsonl").write_text(steps)
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_run(folder)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a")
    (folder / "recipe.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"recipe\.yaml"):
        read_run(folder)
    (folder / "recipe.yaml").unlink()
    with pytest.raises(ConfigError, match=r"recipe\.yaml: there is no such file"):
        read_run(folder)
    (folder / "steps.jsonl").write_bytes(b'{"step": 1}\n\xff')
    with pytest.raises(ConfigError, match=r"byte 12: no UTF-8"):
        read_run(folder)
    with pytest.raises(ConfigError, match="no such folder"):
        read_run(tmp_path / "b")
    for change, words in (
        ({"scores": {}}, "'scores' is empty"),
        ({"scores": {"a": "b"}}, "scores: 'a' is 'b'"),
        ({"counts": {}}, "counts: no key 'expected'"),
        ({"complete": 1}, "'complete' is '1' (int); bool expected"),
    ):
        (tmp_path / "r.json").write_text(json.dumps(RESULT | change))
        with pytest.raises(ConfigError, match=re.escape(words)):
            read_result(tmp_path / "r.json")
    (tmp_path / "items.jsonl").write_text(
        '{"id": "1", "question": "", "answers": [], "text": "", "score": 1}\n{"id": "2"}'
    )
    with pytest.raises(ConfigError, match=r"items\.jsonl, line 2: no key 'score'; found: id"):
        read_items(tmp_path / "items.jsonl")
    with pytest.raises(ConfigError, match="nothing to report"):
        report_page([])


@pytest.mark.parametrize("recipe", [{}, {"loop": 3, "parts": [1], "data": None, "model": {"fresh": 3}}])
@pytest.mark.parametrize(
    "values", [(1e308, -1e308), (10**400, 5e-324), (float("nan"), 1e100), (0.0, -0.0), (1e-320, 1)]
)
def test_absurd_values_make_a_page(tmp_path: Path, recipe: Any, values: tuple[float, float]) -> None:
    names = ("loss", "validation_loss", "learned_tokens", "tokens_per_second", "step_seconds", "data_wait_seconds")
    steps = [{"step": n, **dict.fromkeys(names, value)} for n, value in enumerate((*values, *values), 1)]
    page = report_page([read_run(run_folder(tmp_path / "a", steps=steps, recipe=recipe))])
    drawn = re.findall(r'<svg.*?</svg>|points="[^"]*"', page)
    assert not [text for text in drawn if re.search(r"\b(nan|inf)\b", text)]


def test_items_are_chosen_by_a_rule() -> None:
    items = [item(n, float(n % 10 == 0)) for n in range(100)]  # ten right ones
    picked = chosen(items, most=24)
    assert len(picked) == 24
    assert sum(items[n].score for n in picked) == 10
    assert chosen(items, most=6) == [0, 1, 30, 34, 60, 67]  # the right ones are 0, 10, 20 and so on
    assert chosen(items[:3], most=24) == [0, 1, 2]
    assert verdicts([item(1, 0.3), item(2, 1), item(3, 0)]) == ["partly right", "right", "wrong"]
    assert set(verdicts([item(1, 0.3), item(2, 7.5)])) == {"scored"}
    assert set(verdicts([item(1, 0.3, most=10.0), item(2, 0.0, most=10.0)])) == {"scored"}  # captions, all of them poor
    said = [item(1, 1, text="yes"), item(2, 0), item(3, 0), item(4, 1, text="no ", answers=("No",))]
    assert usual_answers(said) == [("no", 3, pytest.approx(1 / 3), 1), ("yes", 1, 1, 3)]


def test_images(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    Image.effect_noise((2000, 1000), 80).save(images / "large.png")
    (images / "broken.jpg").write_bytes(b"no image")
    (tmp_path / "secret.png").write_bytes((images / "large.png").read_bytes())
    names = ("large", "broken", "../secret.png", "absent", "\0")
    shown = cards([item(n, 0, images=(name,)) for n, name in enumerate(names)], images=images, most=9)
    assert [len(card.pictures) for card in shown] == [1, 0, 0, 0, 0]
    assert len(shown[0].pictures[0]) < 60_000
    for card, words in zip(
        shown[1:], ("cannot identify", "out of the folder", "no such image", "no name"), strict=True
    ):
        assert words in card.faults[0]
    assert not cards([item(1, 1)], images=None, most=9)[0].faults


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_everything_is_escaped(tmp_path: Path) -> None:
    recipe = {**RECIPE, HOSTILE[:-1]: HOSTILE[:-1], "note": HOSTILE[:-1], "model": {"folder": HOSTILE[:-1]}}
    record = read_run(run_folder(tmp_path / "a", recipe=recipe), name=HOSTILE)
    texts = dict.fromkeys(("title", "metric", "variant", "checked_against", "model", "prompt_example"), HOSTILE)
    plain = RESULT | texts | {"scores": {HOSTILE: 1.0, HOSTILE + "2": 2.0}, "groups": {HOSTILE: {HOSTILE: 3.0}}}
    (tmp_path / "r.json").write_text(json.dumps(plain | {"ids": {"missing": [HOSTILE]}, "ground_truth": HOSTILE}))
    hostile = item(1, 0.5, id=HOSTILE, question=HOSTILE, answers=(HOSTILE,), text=HOSTILE, images=(HOSTILE,))
    page = report_page(
        [record], results=[read_result(tmp_path / "r.json")], items=[hostile], images=tmp_path, title=HOSTILE
    )
    parser = _Tags()
    parser.feed(page)
    assert parser.tags <= TAGS
    assert not {name for name in parser.attributes if name.startswith("on")}
    assert all(address.startswith("#") for address in parser.addresses)
    assert parser.text.count(HOSTILE) > 20
    page.encode("utf-8", "backslashreplace")


def test_what_the_page_says(tmp_path: Path) -> None:
    other = {**RECIPE, "loop": {"steps": 3}, "note": "second"}
    runs = read_runs([run_folder(tmp_path / "x/sft"), run_folder(tmp_path / "y/sft", recipe=other)])
    assert [record.name for record in runs] == ["x/sft", "y/sft"]
    (tmp_path / "r.json").write_text(json.dumps(RESULT))
    page = report_page(runs, results=[read_result(tmp_path / "r.json")])
    assert page.count('<span class="badge incomplete">INCOMPLETE</span>') == 2
    for words in (
        "8 of 10", "10 expected, 8 answered, 10 scored", "The rule is unverified", "count as wrong",
        "2 of 4 settings differ",
        "MMMU: 2 without an answer, such as art_1, art_2.", "x/sft: stands at step 3 of 4.", "not reproduced here",
        "40 (no-guess, INCOMPLETE)", "x/sft: 1 step changed no weights: 2", "prefers-color-scheme: dark",
    ):  # fmt: skip
        assert words in page, words
    assert {anchor.task for anchor in ANCHORS} <= set(TASKS)
    with pytest.raises(ConfigError, match="9 runs found; at most 8"):
        report_page([runs[0]] * 9)


def test_command_from_evaluated_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "sft")
    truth = [{"question_id": n, "image": f"{n}.png", "question": "colour?", "answer": "red"} for n in range(2)]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "answers.jsonl").write_text(
        '{"sample_id": "0", "answer": "red"}\n{"sample_id": "1", "answer": "blue"}\n'
    )
    for n in range(2):
        Image.new("RGB", (16, 16), (200, 0, 0)).save(tmp_path / f"{n}.png")
    names = {name: str(tmp_path / name) for name in ("truth.json", "answers.jsonl", "result.json", "items.jsonl")}
    evaluate = ["evaluate", "ai2d", "--answers", names["answers.jsonl"], "--ground-truth", names["truth.json"]]
    assert run([*evaluate, "--output", names["result.json"], "--items", names["items.jsonl"]]) == 0
    out = tmp_path / "report.html"
    report = ["report", str(folder), "--result", names["result.json"], "--items", names["items.jsonl"]]
    assert run([*report, "--images", str(tmp_path), "--out", str(out)]) == 0
    page = out.read_text()
    assert page.count("data:image/jpeg;base64,") == 2
    assert '<span class="badge right">right</span>' in page
    assert '<span class="badge wrong">wrong</span>' in page
    assert run(["report", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert "there is no such folder" in capsys.readouterr().err


def test_needs_no_torch(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a")
    program = (
        "import sys; from omniloom.tools.main import run; "
        f"code = run(['report', {str(folder)!r}, '--out', {str(tmp_path / 'r.html')!r}]); "
        "sys.exit(code or 'torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
