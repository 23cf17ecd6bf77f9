"""Checkpoints written here are loaded by megatron-core itself, strictly; what it saves is read. Skipped without it.

megatron-core 0.16 installs beside any torch with `pip install --no-deps megatron-core`; it waits for ever when it saves
without psutil. It is tried on the CPU with its local layers, one rank after the other in a process group that counts
ranks and does no more.
"""

import importlib.util

import pytest
import torch
from tests.contract.model_zoo import coded_weights, language

from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.weights.filling import fill
from omniloom.weights.megatron_write import Parallelism
from omniloom.weights.source import InMemory

if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.core") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)
pytest.importorskip("psutil", reason="megatron-core hangs without psutil when it saves")

from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from torch.testing._internal.distributed.fake_pg import FakeStore

FAMILIES = ["llama", "llama-tied", "mistral", "qwen2", "qwen3"]


@pytest.fixture
def ranks():
    """Begins as a rank of so many tensor-parallel ranks and pipeline stages; ends the last one first."""

    def begin(rank, *, tensor, pipeline=1):
        end()
        torch.distributed.init_process_group("fake", rank=rank, world_size=tensor * pipeline, store=FakeStore())
        parallel_state.initialize_model_parallel(tensor, pipeline, create_gloo_process_groups=False)

    def end():
        if torch.distributed.is_initialized():
            parallel_state.destroy_model_parallel()
            torch.distributed.destroy_process_group()

    yield begin
    end()


def megatron_model(config, *, tensor, pipeline=1, padded):
    settings = TransformerConfig(
        num_layers=config.num_layers,
        hidden_size=config.dim,
        num_attention_heads=config.num_heads,
        num_query_groups=config.num_kv_heads,
        kv_channels=config.head_dim,
        ffn_hidden_size=config.mlp_dim,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        add_qkv_bias=config.qkv_bias,
        qk_layernorm=config.qk_norm,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        perform_initialization=False,
    )
    return GPTModel(
        settings,
        get_gpt_layer_local_spec(qk_layernorm=config.qk_norm, normalization="RMSNorm"),
        vocab_size=padded,
        max_sequence_length=64,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=config.tied_head,
        position_embedding_type="rope",
    )


def write(config, folder, *, to="megatron", parallelism=None):
    weights = coded_weights(config)
    published = Published(None, "omniloom", config, InMemory(weights))
    wanted = Wanted(to=to, parallelism=parallelism or Parallelism(), transformer_engine=False)
    target = plan_target(published, wanted)
    fill(target.plan, target.source, folder)
    return weights


def rank_files(folder):
    return sorted(folder.glob("iter_0000001/mp_rank_*/model_optim_rng.pt"))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_megatron_loads_every_rank_strictly(tmp_path, ranks, monkeypatch, name, tensor, pipeline):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)  # asked of a tied head on the last stage
    config = language(name)
    if config.num_kv_heads < tensor:
        pytest.skip("fewer groups than ranks")
    write(config, tmp_path / "m", parallelism=Parallelism(tensor, pipeline))
    files = rank_files(tmp_path / "m")
    assert len(files) == tensor * pipeline
    for stage in range(pipeline):
        for rank in range(tensor):
            ranks(stage * tensor + rank, tensor=tensor, pipeline=pipeline)
            suffix = f"_{stage:03d}" if pipeline > 1 else ""
            saved = torch.load(
                tmp_path / f"m/iter_0000001/mp_rank_{rank:02d}{suffix}/model_optim_rng.pt", weights_only=False
            )
            model = megatron_model(config, tensor=tensor, pipeline=pipeline, padded=saved["args"].padded_vocab_size)
            loaded = model.load_state_dict(saved["model"], strict=False)
            assert not loaded.unexpected_keys
            assert [key for key in loaded.missing_keys if "_extra_state" not in key] == []
            parameters = dict(model.named_parameters())
            assert all(torch.equal(parameters[key], value) for key, value in saved["model"].items())


@pytest.mark.parametrize("name", FAMILIES)
def test_what_megatron_saves_is_read(tmp_path, ranks, name):
    config = language(name)
    weights = write(config, tmp_path / "m")
    ranks(0, tensor=1)
    saved = torch.load(rank_files(tmp_path / "m")[0], weights_only=False)
    model = megatron_model(config, tensor=1, padded=saved["args"].padded_vocab_size)
    model.load_state_dict(saved["model"], strict=False)
    folder = tmp_path / "theirs/iter_0000003/mp_rank_00"
    folder.mkdir(parents=True)
    state = {"args": saved["args"], "model": model.state_dict(), "iteration": 3, "optimizer": {"huge": torch.ones(9)}}
    torch.save(state, folder / "model_optim_rng.pt")
    back = open_published(tmp_path / "theirs")
    assert back.config.dim == config.dim
    assert all(torch.equal(back.source.read(key), value) for key, value in weights.items() if value.shape[0] != 199)
    embedding = back.source.read("language_model.embed_tokens.weight")
    assert torch.equal(embedding[:199], weights["language_model.embed_tokens.weight"])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_distributed_form_is_read_and_written_as_megatron_does(tmp_path, monkeypatch, name):
    # Saving asks for a device, where there is none.
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    config = language(name)
    weights = write(config, tmp_path / "m", to="megatron-dist")
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.FileStore(str(tmp_path / "store"), 1)
    )
    parallel_state.initialize_model_parallel(1, 1)
    try:
        model = megatron_model(config, tensor=1, padded=256)
        folder = tmp_path / "m/iter_0000001"
        loaded = dist_checkpointing.load(
            {"model": model.sharded_state_dict()}, str(folder), validate_access_integrity=False
        )
        model.load_state_dict(loaded["model"], strict=False)
        norm = dict(model.named_parameters())["decoder.final_layernorm.weight"]
        assert torch.equal(norm, weights["language_model.norm.weight"])
        theirs = tmp_path / "theirs/iter_0000005"
        theirs.mkdir(parents=True)
        dist_checkpointing.save(model.sharded_state_dict(), str(theirs))
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
    (tmp_path / "config").mkdir()
    own = plan_target(Published(None, "omniloom", config, InMemory(weights)), Wanted(to="omniloom"))
    fill(own.plan, own.source, tmp_path / "own")
    back = open_published(tmp_path / "theirs", config=tmp_path / "own")
    assert all(torch.equal(back.source.read(key), value) for key, value in weights.items())
