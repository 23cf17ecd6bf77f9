"""Products through oneDNN: as exact as torch's own, only for float32 on a CPU, and gone afterwards."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from omniloom.errors import InputError
from omniloom.generate.decoding import generate
from omniloom.generate.products import quick_products
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import Decoder


def decoder() -> Decoder:
    torch.manual_seed(0)
    config = DecoderConfig(
        family="llama", vocab_size=64, dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48
    )
    return Decoder(config).eval()


def replaced(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if {"forward", "logits"} & module.__dict__.keys()]


@pytest.mark.parametrize("rows", [1, 2, 16, 33])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_as_the_sum_in_float64(rows: int, bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(rows)
    linear = nn.Linear(96, 80, bias=bias)
    inputs = torch.randn(*shape, rows, 96)
    with torch.inference_mode(), quick_products(linear):
        outputs = linear(inputs)
    expected = functional.linear(
        inputs.double(), linear.weight.double(), None if linear.bias is None else linear.bias.double()
    )
    assert outputs.shape == expected.shape
    assert outputs.dtype == torch.float32
    assert (outputs.double() - expected).abs().max() < 1e-5


def test_a_model_is_as_it_was() -> None:
    model = decoder()
    with quick_products(model):
        inside = replaced(model)
    assert len(inside) in (0, 2 + 2 * 7)  # none where torch has no oneDNN; else scores, head and seven maps a layer
    assert replaced(model) == []
    with pytest.raises(ZeroDivisionError), quick_products(model):
        raise ZeroDivisionError
    assert replaced(model) == []


def test_failed_answers_leave_the_model_as_it_was() -> None:
    model = decoder()
    nn.init.constant_(model.get_parameter("layers.1.mlp.down_proj.weight"), torch.nan)
    with pytest.raises(InputError, match="no finite numbers"):
        generate(model, [[1, 2]], sampling=SamplingConfig(max_new_tokens=3))
    assert replaced(model) == []


def test_what_is_computed_otherwise_stays() -> None:
    half, cut = nn.Linear(8, 8, dtype=torch.bfloat16), nn.Linear(8, 8)
    cut.__dict__["forward"] = lambda inputs: inputs
    model = nn.Sequential(half, cut, nn.Linear(8, 8, device="meta"))
    with quick_products(model):
        assert replaced(model) == ["1"]
        assert cut(torch.ones(8)).tolist() == [1.0] * 8
    assert replaced(model) == ["1"]


def test_autocast_and_other_types_are_left_to_torch() -> None:
    linear = nn.Linear(8, 8)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), quick_products(linear):
        assert linear(torch.ones(2, 8)).dtype == torch.bfloat16


def test_gradients_come_after_answers_as_before() -> None:
    model = decoder()
    generate(model, [[1, 2, 3]], sampling=SamplingConfig(max_new_tokens=2))
    model.get_submodule("layers.0.mlp.up_proj")(torch.ones(1, 32)).sum().backward()
    assert model.get_parameter("layers.0.mlp.up_proj.weight").grad is not None
