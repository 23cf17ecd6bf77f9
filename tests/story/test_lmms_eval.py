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
