"""Each module and name that Energon's users import is there, under both paths, and is one object."""

import json
import os
import subprocess
import sys
from pathlib import Path

import energon_facts as facts
import pytest
import torchvision_operators

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib, json, sys
modules = json.load(sys.stdin)
import omniloom.energon
omniloom.energon.install()
missing = []
for module, names in modules.items():
    try:
        ours = importlib.import_module(f"omniloom.energon{module}")
        energon = importlib.import_module(f"megatron.energon{module}")
    except ImportError as error:
        missing.append(f"{module}: {error}")
        continue
    for name in names.split():
        try:
            if getattr(ours, name) is not getattr(energon, name):
                missing.append(f"{module}.{name}: two objects")
            exec(f"from megatron.energon{module} import {name}")
        except (AttributeError, ImportError) as error:
            missing.append(f"{module}.{name}: {error}")
print(json.dumps(missing))
"""


def missing(modules):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps(modules),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_96_names():
    assert len(facts.EXPORTED.split()) == 96
    assert missing({"": facts.EXPORTED}) == []


def test_names_that_are_hidden_there_or_only_promised_are_at_the_top():
    assert missing({"": facts.HIDDEN}) == []


def test_every_module_and_every_name_of_it():
    found = {f".{module}": names for module, names in facts.MODULES.items() if module != "transforms"}
    assert missing(found) == []


def test_transforms():
    if not torchvision_operators.importable():
        pytest.skip("torchvision is not here")
    assert missing({".transforms": facts.MODULES["transforms"]}) == []
