"""Small models of transformers with random weights beside ours, filled through the families' tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from omniloom.model.build import build
from omniloom.model.families import fitting_table, read_config_file, tables_of, write_config
from omniloom.model.families.family import Config
from omniloom.weights.table import Table

transformers: Any = pytest.importorskip("transformers", reason="parity is measured against transformers")

PREFIXES = {"Decoder": "language_model.", "VisionTower": "vision_tower.", "Llava": ""}


def random_model(config: Any, kind: Any, *, deviation: float = 0.1) -> Any:
    """A model of transformers with random weights; norms and layer scales around 1, RADIO's scales at 1."""
    generator = torch.Generator().manual_seed(7)
    model = kind(config).eval()
    for name, parameter in model.named_parameters():
        is_gain = parameter.dim() == 1 and ("norm" in name or "lambda" in name) and name.endswith(("weight", "1", "2"))
        noise = torch.randn(parameter.shape, generator=generator) * deviation
        parameter.data = noise + 1 if is_gain else noise
        if "layer_scale" in name and type(model).__name__ == "RadioModel":
            parameter.data = torch.ones_like(parameter)
    model.tie_weights()
    return model


def saved_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder."""
    tensors: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def to_ours(table: Table, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors out of theirs; every tensor of theirs has a place."""
    assert table.left_over(theirs) == ([], [])
    undone = {row.theirs: row.change.undo(theirs[row.theirs]) for row in table.rows}
    return {name: undone[place.row.theirs][place.part] for name, place in table.by_ours.items()}


def to_theirs(table: Table, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors out of ours."""
    return {row.theirs: row.change.apply(*(ours[name] for name in row.our_names)) for row in table.rows}


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's tensors under the names of a whole model."""
    prefix = PREFIXES[type(module).__name__]
    return {prefix + name: tensor for name, tensor in module.state_dict().items()}


def load_ours(config: Config, table: Table, theirs: Mapping[str, Tensor]) -> Any:
    """Our module with their weights; nothing missing, nothing left."""
    module = build(config)
    prefix = PREFIXES[type(module).__name__]
    ours = {name.removeprefix(prefix): tensor for name, tensor in to_ours(table, theirs).items()}
    module.load_state_dict(ours, strict=True)
    return module.eval()


def ours_beside(model: Any, folder: Path, *, form: str = "llava") -> tuple[Config, Any]:
    """Save their model, read it with our families, and check that the weights come back bit by bit."""
    model.save_pretrained(folder)
    config = read_config_file(folder)
    disk = saved_tensors(folder)
    for theirs in (disk, model.state_dict()):
        table = fitting_table(tables_of(config, form=form), theirs)
        module = load_ours(config, table, theirs)
        back = to_theirs(table, state_of(module))
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in back.items())
    return config, module


def write_folder(config: Config, module: nn.Module, folder: Path, *, form: str = "llava") -> None:
    """What transformers reads, out of our config and our module."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(write_config(config, form=form)))
    tensors = to_theirs(tables_of(config, form=form)[0], state_of(module))
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def reads_back(kind: Any, folder: Path, model: Any) -> None:
    """The class of transformers opens the folder without a missing or unexpected tensor, and has the same weights."""
    read, report = kind.from_pretrained(folder, output_loading_info=True)
    may_miss = ("lambda1", "norm_mean", "norm_std", "summary_idxs", "mask_token", "head.")
    assert [name for name in report["missing_keys"] if not any(word in name for word in may_miss)] == []
    assert list(report["unexpected_keys"]) == []
    expected = model.state_dict()
    for name, tensor in read.state_dict().items():
        if not any(word in name for word in may_miss):
            assert torch.equal(tensor, expected[name]), name
