"""HF -> ours -> Megatron (TP 1, 2, 4, 8; PP 1, 2; TE and local names; both formats) -> ours -> HF, to the bit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from omniloom.conversion.megatron_parts import table_to_read, table_to_write
from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.errors import ConfigError, WeightsError
from omniloom.model.build import parameter_shapes
from omniloom.model.config import DecoderConfig, ProjectorConfig, VisionConfig
from omniloom.weights.filling import fill
from omniloom.weights.megatron_folder import cuts_of, kind_of
from omniloom.weights.megatron_write import Parallelism
from omniloom.weights.source import InMemory
from omniloom.weights.view import OursView, TheirsView

from .model_zoo import coded_weights, every_config, language, llava

CONFIGS = dict(every_config())


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_same(source, weights):
    assert set(source.tensors) == set(weights)
    for name, expected in weights.items():
        found = source.read(name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        assert torch.equal(bits(found), bits(expected)), name


def write(published, folder, **wanted):
    target = plan_target(published, Wanted(**wanted))
    fill(target.plan, target.source, folder)
    return target


def in_memory(config, dtype=torch.bfloat16, folder=None):
    weights = coded_weights(config, dtype)
    return Published(folder, "omniloom", config, InMemory(weights)), weights


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_comes_back_from_every_form(name, tmp_path):
    config = CONFIGS[name]
    published, weights = in_memory(config)
    write(published, tmp_path / "hf", to="hf")
    from_hf = open_published(tmp_path / "hf")
    assert from_hf.form == "hf"
    assert_same(from_hf.source, weights)
    write(from_hf, tmp_path / "own", to="omniloom")
    own = open_published(tmp_path / "own")
    assert own.config == from_hf.config
    assert_same(own.source, weights)
    stages = (1,) if isinstance(config, VisionConfig) else (1, 2)
    for ranks in (1, 2, 4, 8):
        for stage_count in stages:
            folder = tmp_path / f"tp{ranks}-pp{stage_count}"
            cut = Parallelism(ranks, stage_count)
            write(own, folder, to="megatron", parallelism=cut, transformer_engine=ranks != 2)
            assert_same(open_published(folder).source, weights)
    write(own, tmp_path / "dist", to="megatron-dist")
    back = open_published(tmp_path / "dist")
    assert back.form == "megatron-dist"
    write(back, tmp_path / "hf2", to="hf")
    for file in (tmp_path / "hf").iterdir():
        assert (tmp_path / "hf2" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_stay_as_they_are_unless_asked(dtype, tmp_path):
    published, weights = in_memory(language("llama-tied"), dtype)
    write(published, tmp_path / "m", to="megatron", parallelism=Parallelism(2))
    assert_same(open_published(tmp_path / "m").source, weights)
    write(open_published(tmp_path / "m"), tmp_path / "cast", to="hf", dtype=torch.float32)
    cast = open_published(tmp_path / "cast").source
    assert all(torch.equal(cast.read(name), tensor.float()) for name, tensor in weights.items())


@st.composite
def decoders(draw):
    ranks = draw(st.sampled_from([1, 2, 4, 8]))
    groups = ranks * draw(st.integers(1, 2))
    heads = groups * draw(st.integers(1, 3))
    head_dim = 2 * draw(st.integers(1, 3))
    config = DecoderConfig(
        family=draw(st.sampled_from(["llama", "qwen2", "qwen3"])),
        vocab_size=draw(st.integers(1, 400)),
        dim=draw(st.integers(1, 9)),
        num_layers=draw(st.integers(1, 3)),
        num_heads=heads,
        num_kv_heads=groups,
        head_dim=head_dim,
        mlp_dim=ranks * draw(st.integers(1, 5)),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        tied_head=draw(st.booleans()),
    )
    return ranks, config


@st.composite
def towers(draw):
    ranks = draw(st.sampled_from([1, 2, 4, 8]))
    qk_norm = draw(st.booleans())
    heads = draw(st.integers(1, 9)) if qk_norm else ranks * draw(st.integers(1, 2))
    classes = draw(st.integers(0, 2))
    return ranks, VisionConfig(
        family=draw(st.sampled_from(["clip", "siglip", "internvit", "radio"])),
        image_size=4,
        patch_size=2,
        dim=heads * draw(st.integers(1, 3)),
        num_layers=draw(st.integers(1, 2)),
        num_heads=heads,
        mlp_dim=ranks * draw(st.integers(1, 4)),
        position_rows=draw(st.integers(1, 3)),
        norm=draw(st.sampled_from(["layer", "rms"])),
        class_tokens=classes,
        register_tokens=draw(st.integers(0, 2)),
        class_positions=draw(st.integers(0, classes)),
        patch_bias=draw(st.booleans()),
        qkv_bias=not qk_norm,
        pre_norm=draw(st.booleans()),
        post_norm=draw(st.booleans()),
        qk_norm=qk_norm,
        layer_scale=draw(st.booleans()),
        gated_mlp=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=40)
@given(st.one_of(decoders(), towers()), st.sampled_from(["te", "local"]))
def test_any_shape_survives_being_cut_and_joined(case, norms):
    ranks, config = case
    if isinstance(config, VisionConfig) and config.family == "radio":
        ranks = 1  # its patches are cut by rows, which a random width does not allow
    weights = coded_weights(config)
    table = table_to_write(config, norms=norms, tensor_parallel_size=ranks, divisible_by=128)
    theirs = TheirsView(InMemory(weights), table)
    cuts = cuts_of(theirs.tensors, alone=kind_of(theirs.tensors))
    joined = {}
    for name in theirs.tensors:
        whole = theirs.read(name)
        assert cuts[name].fits(whole.shape, ranks), name
        joined[name] = cuts[name].merge(
            [cuts[name].slice_of(whole, rank=rank, ranks=ranks).clone() for rank in range(ranks)]
        )
    read = InMemory(joined)
    ours = OursView(read, table_to_read(config, read))
    assert_same(ours, {name: tensor for name, tensor in weights.items() if name not in table.unplaced})


def test_layers_of_unequal_stages_and_virtual_stages_are_numbered_through(tmp_path):
    config = language("llama", num_layers=3)
    published, weights = in_memory(config)
    write(published, tmp_path / "m", to="megatron", parallelism=Parallelism(1, 2, (1, 2)))
    assert_same(open_published(tmp_path / "m").source, weights)
    with pytest.raises(WeightsError, match="3 layers do not divide among 2 pipeline stages"):
        plan_target(published, Wanted(to="megatron", parallelism=Parallelism(1, 2)))


def test_virtual_stages_of_interleaved_schedules_are_numbered_by_chunk(tmp_path):
    # Two stages with two chunks each hold layers 0 and 2, and 1 and 3.
    config = language("llama", num_layers=4)
    published, weights = in_memory(config)
    write(published, tmp_path / "m", to="megatron")
    file = tmp_path / "m/iter_0000001/mp_rank_00/model_optim_rng.pt"
    whole = torch.load(file, weights_only=False)

    def chunk(layer):
        prefix = f"decoder.layers.{layer}."
        found = {k.replace(prefix, "decoder.layers.0."): v for k, v in whole["model"].items() if k.startswith(prefix)}
        ends = {0: "embedding.", 3: ("decoder.final_layernorm", "output_layer")}.get(layer, "-")
        return found | {k: v for k, v in whole["model"].items() if k.startswith(ends)}

    for stage, layers in enumerate(((0, 2), (1, 3))):
        folder = tmp_path / f"v/iter_0000001/mp_rank_00_{stage:03d}"
        folder.mkdir(parents=True)
        models = {f"model{number}": chunk(layer) for number, layer in enumerate(layers)}
        torch.save({"args": whole["args"], **models}, folder / "model_optim_rng.pt")
    (tmp_path / "config").mkdir()
    write(published, tmp_path / "own", to="omniloom")
    assert_same(open_published(tmp_path / "v", config=tmp_path / "own").source, weights)


def test_what_cannot_be_cut_is_listed_whole(tmp_path):
    published, _ = in_memory(language("qwen2"))  # 4 groups of 4 rows and 8 heads: 64 rows of qkv
    with pytest.raises(WeightsError) as caught:
        plan_target(published, Wanted(to="megatron", parallelism=Parallelism(24)))
    assert "tensors that cannot be cut for 24 ranks (10): " in str(caught.value)


def test_what_hugging_face_cannot_say_is_said_beforehand(tmp_path):
    config = llava()
    wide = ProjectorConfig(input_dim=32, hidden_dims=(64,), output_dim=32, bias=False, norm="layer")
    published, _ = in_memory(replace(config, projector=wide))
    with pytest.raises(ConfigError, match=r"widths \(64,\), not \(32,\); a projector with a layer norm"):
        plan_target(published, Wanted(to="hf"))


def test_everything_left_over_is_listed_at_once(tmp_path):
    published, weights = in_memory(language("llama"))
    spoiled = dict(weights)
    del spoiled["language_model.layers.1.mlp.up_proj.weight"]
    spoiled["language_model.extra"] = torch.ones(1)
    spoiled["language_model.norm.weight"] = torch.ones(3)
    write(published, tmp_path / "own", to="omniloom")
    bad = Published(None, "omniloom", published.config, InMemory(spoiled))
    with pytest.raises(WeightsError, match="up_proj"):
        plan_target(bad, Wanted(to="hf"))
    (tmp_path / "own/model.safetensors").unlink()
    save_file(spoiled, tmp_path / "own/model.safetensors")
    with pytest.raises(WeightsError) as caught:
        open_published(tmp_path / "own")
    text = str(caught.value)
    assert "tensors without a place in this model (1): 'language_model.extra'" in text
    assert "missing, though this model needs them (1): 'language_model.layers.1.mlp.up_proj.weight'" in text
    assert "[3], the model has [32]" in text


def test_a_tied_head_may_be_there_as_a_copy_but_not_as_something_else(tmp_path):
    published, weights = in_memory(language("llama-tied"))
    write(published, tmp_path / "hf", to="hf")
    file = tmp_path / "hf/model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, file)
    assert_same(open_published(tmp_path / "hf").source, weights)
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] * 0}, file)
    with pytest.raises(WeightsError, match="should be tied"):
        open_published(tmp_path / "hf").source.read("language_model.embed_tokens.weight")


def test_parameter_shapes_are_those_of_the_zoo():
    assert parameter_shapes(language("llama"))["language_model.embed_tokens.weight"] == (199, 32)
