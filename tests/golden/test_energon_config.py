"""``config()`` of data sets tells the tree that the real Energon tells of them."""

import importlib.util
import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "energon_config"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("record_config", GOLDEN / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return json.loads(json.dumps(module.values("omniloom.energon", tmp_path_factory.mktemp("sets"))))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_data_set_tells_the_tree_that_energon_tells(found, name):
    expected = EXPECTED[name]
    if name == "cooked":  # Energon tells of the wrapped function only that it is one of functools
        expected["dataset"]["dataset"]["dataset"]["dataset"]["map_fn"] = (
            "megatron.energon.task_encoder.base.TaskEncoder.cook_crude_sample"
        )
    assert found[name] == expected
