"""Every family at true size as one of 64 ranks holds it: names and shapes of the published tensors, and its own share.

The group is torch's fake one and the parameters are on the meta device. What is expected comes from transformers'
classes on the meta device, and from arithmetic: how many numbers of a tensor a rank has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from omniloom.errors import ConfigError
from omniloom.model.build import build, parameter_shapes
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.families import fitting_table, read_config, tables_of
from omniloom.parallel.plan import ParallelConfig, lay_out, parallelize
from tests.unit.hugging_face_pairs import to_theirs, transformers
from tests.unit.test_model_true_sizes import LANGUAGE, VISION, on_meta

pytestmark = pytest.mark.slow
RANKS = 64
RANK = 57  # the same in all tests: torch keeps a process's place in a mesh of 64 for good
LAYOUTS = {
    "64 shards": ParallelConfig(),
    "4 replicas of 16 shards": ParallelConfig(replicas=4),
    "32 shards of matrices cut in 2": ParallelConfig(tensor=2, sequence=True),
    "8 replicas of 4 shards of matrices cut in 2": ParallelConfig(tensor=2, replicas=8),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Iterator[ParallelConfig]:
    distributed.init_process_group("fake", rank=RANK, world_size=RANKS, store=FakeStore())
    yield LAYOUTS[request.param]
    distributed.destroy_process_group()


def whole_model(language: DecoderConfig, vision: VisionConfig) -> LlavaConfig:
    projector = ProjectorConfig(input_dim=vision.dim, output_dim=language.dim, hidden_dims=(language.dim,))
    return LlavaConfig(language=language, vision=vision, projector=projector, image_token_id=-200, feature_layers=(-1,))


def laid_out(config: LlavaConfig, layout: ParallelConfig) -> dict[str, nn.Parameter]:
    model = parallelize(build(config, device="meta"), layout, lay_out(layout, device="cpu"))
    parameters = dict(model.named_parameters())
    assert {name: tuple(one.shape) for name, one in parameters.items()} == parameter_shapes(config)
    for name, parameter in parameters.items():
        assert isinstance(parameter, DTensor), name
        assert tuple(parameter.to_local().shape) == share(parameter), name
    return parameters


def share(parameter: DTensor) -> tuple[int, ...]:
    """Rows and columns of a rank: along each axis ceil(n / ranks) each, until there are no more."""
    sizes = list(parameter.shape)
    place = parameter.device_mesh.get_coordinate()
    assert place is not None
    # What a matrix is cut over comes before what FSDP cuts it over, although its axis is the later one.
    names = parameter.device_mesh.mesh_dim_names or ()
    for axis in sorted(range(len(names)), key=lambda axis: names[axis] != "tensor"):
        placement = parameter.placements[axis]
        along: int | None = getattr(placement, "dim", None)  # of what is cut, in whatever order
        if along is not None:
            rows = math.ceil(sizes[along] / parameter.device_mesh.size(axis))
            sizes[along] = max(0, min(rows, sizes[along] - rows * place[axis]))
    return tuple(sizes)


def compare(parameters: dict[str, nn.Parameter], part: str, config: Any, theirs: dict[str, torch.Tensor]) -> None:
    table = fitting_table(tables_of(config), theirs)
    ours = {name: torch.empty(one.shape, device="meta") for name, one in parameters.items() if name.startswith(part)}
    held = {name: tuple(tensor.shape) for name, tensor in theirs.items() if name in table.by_theirs}
    assert {name: tuple(tensor.shape) for name, tensor in to_theirs(table, ours).items()} == held


def test_language_models(layout: ParallelConfig) -> None:
    tower = read_config(transformers.CLIPVisionConfig(**VISION["CLIP L/14@336"][1]).to_dict())
    assert isinstance(tower, VisionConfig)
    for name, (family, fields, numbers) in LANGUAGE.items():
        config = read_config({"model_type": family.lower(), "max_position_embeddings": 4096, **fields})
        assert isinstance(config, DecoderConfig)
        if config.num_heads % layout.tensor:
            assert name == "SmolLM2-135M"  # 9 heads
            with pytest.raises(ConfigError, match="2 ranks do not divide 9 heads"):
                laid_out(whole_model(config, tower), layout)
            continue
        parameters = laid_out(whole_model(config, tower), layout)
        theirs = getattr(transformers, f"{family}Config")(**fields)
        compare(parameters, "language_model.", config, on_meta(getattr(transformers, f"{family}ForCausalLM"), theirs))
        language = [one for name, one in parameters.items() if name.startswith("language_model.")]
        assert sum(one.numel() for one in language) == numbers
        shards = RANKS // layout.replicas
        own = sum(one.to_local().numel() for one in language)  # type: ignore[attr-defined]
        assert 0.9 * numbers / shards < own < 1.25 * numbers / shards, name


def test_vision_towers(layout: ParallelConfig) -> None:
    language = read_config({"model_type": "qwen2", "max_position_embeddings": 4096, **LANGUAGE["Qwen2.5-0.5B"][1]})
    assert isinstance(language, DecoderConfig)
    for family, fields in VISION.values():
        published = getattr(transformers, f"{family}Config")(**fields)
        config = read_config(published.to_dict())
        assert isinstance(config, VisionConfig)
        parameters = laid_out(whole_model(language, config), layout)
        compare(parameters, "vision_tower.", config, on_meta(getattr(transformers, f"{family}Model"), published))
