"""Memory told before there is a rank: parameters to the byte, activations as torch's own hooks count them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.parallel.checkpointing import recompute_layers
from omniloom.parallel.plan import Load, ParallelConfig, RankMemory, rank_memory
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.parts import PartConfig, freeze
from tests.contract.tiny_llava import CONFIG, packed_batch, tiny_llava

MISTRAL = DecoderConfig(
    family="mistral", vocab_size=32000, dim=4096, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128,
    mlp_dim=14336,
)  # fmt: skip
CLIP = VisionConfig(
    family="clip", image_size=336, patch_size=14, dim=1024, num_layers=24, num_heads=16, mlp_dim=4096,
    position_rows=24, class_tokens=1, class_positions=1, pre_norm=True,
)  # fmt: skip
PROJECTOR = ProjectorConfig(input_dim=1024, output_dim=4096, hidden_dims=(4096,))
SEVEN_BILLION = LlavaConfig(language=MISTRAL, vision=CLIP, projector=PROJECTOR, image_token_id=32000)


@pytest.fixture(scope="module")
def large() -> nn.Module:
    model = build(SEVEN_BILLION, device="meta")
    freeze(model, {"vision_tower": PartConfig(train=False)})
    return model


def memory(model: nn.Module, *, ranks: int = 8, stage: int = 0, **settings: object) -> RankMemory:
    config = ParallelConfig(precision="bfloat16", **settings)  # type: ignore[arg-type]
    return rank_memory(model, config, Load(tokens=4096, tiles=5, micro_batches=32), ranks=ranks, stage=stage)


def test_parameters_are_counted_to_the_byte() -> None:
    model = tiny_llava()
    numbers = sum(parameter.numel() for parameter in model.parameters())
    told = rank_memory(model, ParallelConfig(), Load(tokens=64, tiles=2), ranks=1)
    assert (told.weights, told.gradients, told.optimizer) == (4 * numbers, 4 * numbers, 8 * numbers)
    stages = [
        rank_memory(model, ParallelConfig(pipeline=2), Load(tokens=64, tiles=2), ranks=2, stage=stage)
        for stage in range(2)
    ]
    assert sum(each.weights for each in stages) == 4 * numbers
    freeze(model, {"language_model": PartConfig(train=False)})
    frozen = rank_memory(model, ParallelConfig(), Load(tokens=64, tiles=2), ranks=1)
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert (frozen.weights, frozen.gradients) == (4 * numbers, 4 * learned)


@pytest.mark.parametrize("every", [{}, {"language_model": 1, "vision_tower": 1}], ids=["kept", "recomputed"])
def test_activations_are_what_a_step_keeps(every: dict[str, int]) -> None:
    """Within a quarter: embeddings, projector and loss keep a little more, and kernels of the CPU in float32."""
    model = tiny_llava()
    recompute_layers(model, every)
    batch = PackedMicroBatch.of(packed_batch(1, documents=12), torch.device("cpu"))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    held: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        batch.loss(model)
    found = sum(size for storage, size in kept.items() if storage not in own)
    load = Load(tokens=batch.documents.tokens, tiles=batch.num_images)
    told = rank_memory(tiny_llava(), ParallelConfig(recompute=every), load, ranks=1).activations
    if every:  # and the layer that is computed again, which the hooks do not see before the backward pass
        told -= rank_memory(tiny_llava(), ParallelConfig(), load, ranks=1).activations // 2
        assert told < found * 1.25
        return
    assert told == pytest.approx(found, rel=0.25)


def test_each_axis_saves_what_it_is_for(large: nn.Module) -> None:
    plain = memory(large)
    # By hand: (7,241 M of Mistral + 21 M of the projector + 304 M of CLIP) / 8 ranks, float32.
    assert plain.weights == pytest.approx(4 * 7.566e9 / 8, rel=0.01)
    assert memory(large, recompute={"language_model": 1}).activations < plain.activations / 8
    assert memory(large, tensor=4).activations < plain.activations / 1.8
    assert memory(large, tensor=4, sequence=True).activations < memory(large, tensor=4).activations
    assert memory(large, context=2).activations == pytest.approx(plain.activations / 2, rel=0.01)
    stages = [memory(large, pipeline=4, stage=stage) for stage in range(4)]
    # 1F1B: the first stage keeps four micro-batches of a quarter of the layers, the last keeps one.
    assert stages[0].activations == pytest.approx(plain.activations, rel=0.01)
    assert stages[3].activations == pytest.approx(plain.activations / 4, rel=0.01)
    assert [each.loss > 0 for each in stages] == [False, False, False, True]


def test_what_does_not_fit_is_told(large: nn.Module) -> None:
    with pytest.raises(ConfigError, match="6 does not divide 8 ranks"):
        memory(large, tensor=2, context=3)
    with pytest.raises(ConfigError, match="Linear found; a LLaVA expected"):
        memory(nn.Linear(2, 2))
    shallow = replace(CONFIG, language=replace(CONFIG.language, num_layers=1))
    with pytest.raises(ConfigError, match="1 layers; 2 numbers of at least 1"):
        rank_memory(build(shallow, device="meta"), ParallelConfig(pipeline=2), Load(tokens=8, tiles=0), ranks=2)
