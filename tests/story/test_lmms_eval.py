"""Inside lmms-eval: its own model interface is driven as its evaluator does. Skipped where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from tests.story.test_generate_command import ITEMS, answers_of, make_benchmark

from omniloom.tools.main import run

registry = pytest.importorskip("lmms_eval.models.registry_v2", reason="needs lmms-eval")


def test_a_model_of_ours_in_lmms_eval(tmp_path: Path) -> None:
    from lmms_eval.api.instance import Instance  # noqa: PLC0415 - not always installed

    from omniloom.tools.lmms_eval import manifests  # noqa: PLC0415

    command = make_benchmark(tmp_path)
    output = tmp_path / "answers.jsonl"
    assert run([*command, "--output-path", str(output), "--max-new-tokens", "6"]) == 0
    expected = answers_of(output)

    models = registry.ModelRegistryV2()
    for manifest in manifests():
        models.register_manifest(manifest)
    found = models.get_model_class("omniloom") if hasattr(models, "get_model_class") else None
    if found is None:
        from omniloom.tools.lmms_eval import Omniloom as found  # noqa: N813, PLC0415
    model = found.create_from_arg_string(
        f"pretrained={tmp_path / 'model'},template=chatml", {"batch_size": 5, "device": "cpu"}
    )
    rows = json.loads((tmp_path / "test.json").read_text())
    model.task_dict["ours"] = {"test": rows}

    def shown(row: dict[str, str]) -> list[Image.Image]:
        return [Image.open(tmp_path / "images" / row["image"]).convert("RGB")]

    requests = [
        Instance(
            request_type="generate_until",
            arguments=(row["question"], {"max_new_tokens": 6, "until": []}, shown, number, "ours", "test"),
            idx=0,
            metadata={"task": "ours", "doc_id": number, "repeats": 1},
        )
        for number, row in enumerate(rows)
    ]
    said = model.generate_until(requests)
    assert said == [expected[str(number)]["answer"] for number in range(ITEMS)]
    with pytest.raises(ValueError, match="only generate here"):
        model.loglikelihood(requests)


TASK = """
task: own
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function shown.visual
doc_to_text: !function shown.text
doc_to_target: answer
generation_kwargs: {{max_new_tokens: 6, temperature: 0, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def test_a_task_of_ones_own_in_lmms_eval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole of it: its command, its results, and its log of samples, which is scored here as it was there."""
    command = make_benchmark(tmp_path)
    output = tmp_path / "answers.jsonl"
    assert run([*command, "--output-path", str(output), "--max-new-tokens", "6"]) == 0
    answers = answers_of(output)
    rows = json.loads((tmp_path / "test.json").read_text())
    for number, row in enumerate(rows):  # every other answer is right
        row |= {"path": str(tmp_path / "images" / row["image"]), "question_id": number, "id": str(number)}
        row["answer"] = str(answers[str(number)]["answer"] if number % 2 else "something else")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tasks / "own.yaml").write_text(TASK.format(rows=tmp_path / "rows.jsonl"))
    (tasks / "shown.py").write_text(
        "from PIL import Image\n"
        "def visual(doc): return [Image.open(doc['path']).convert('RGB')]\n"
        "def text(doc, lmms_eval_specific_kwargs=None): return doc['question']\n"
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    inside = ["evaluate", "own", "--model", str(tmp_path / "model"), "--template", "chatml", "--inside", "lmms-eval"]
    told = tmp_path / "told"
    assert run([*inside, "--include-path", str(tasks), "--output", str(told)]) == 0, capfd.readouterr().err
    (result,) = told.rglob("*results.json")
    score = json.loads(result.read_text())["results"]["own"]["exact_match,none"]
    assert score == 0.5
    (log,) = told.rglob("*samples_own.jsonl")
    said = [json.loads(line)["filtered_resps"] for line in log.read_text().splitlines()]
    assert said == [answers[str(number)]["answer"] for number in range(ITEMS)]
    # Without such a task it says so, and ends with 0; here it does not.
    assert run([*inside[:1], "none_such", *inside[2:]]) != 0
