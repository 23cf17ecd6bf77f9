"""Megatron's own layouts: names, shapes and permutations as its converters write them, from published tables."""

import collections
from argparse import Namespace

import pytest
import torch
import torch.distributed.checkpoint as dcp

from omniloom.conversion.combine import combine
from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.model.build import parameter_shapes
from omniloom.model.families import read_config
from omniloom.weights.filling import fill
from omniloom.weights.megatron_table import padded_vocabulary
from omniloom.weights.megatron_write import Parallelism
from omniloom.weights.source import InMemory, Source, TensorInfo

MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32768,
    "rope_theta": 1e6,
    "sliding_window": None,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}


NORMS = ("ln_1", "ln_2")
LINEARS = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")


class ShapesOnly(Source):
    """A model of true size that has no numbers."""

    def __init__(self, config, dtype):
        self.where = "shapes"
        self.tensors = {name: TensorInfo(shape, dtype) for name, shape in parameter_shapes(config).items()}

    def read(self, name):
        raise AssertionError(f"{name} was read while planning")


def hollow(given, dtype=torch.bfloat16):
    config = read_config(given)
    return Published(None, "hf", config, ShapesOnly(config, dtype))


def rank_shapes(target, rank=0):
    """Names and shapes of one rank's file, from the plan alone."""
    file = target.plan.files[rank]
    shapes = {}
    for job in target.plan.jobs:
        for slot in job.slots:
            if slot.file == file.path:
                shapes[slot.key] = slot.cut.shape_of_slice(target.source.info(job.name).shape, slot.ranks)
    assert set(shapes) == set(file.extents)
    return shapes


def test_mistral_7b_and_clip_combined_for_four_ranks_have_the_published_names_and_shapes():
    combined = combine(hollow(MISTRAL), hollow(CLIP, torch.float32), projector="megatron")
    target = plan_target(combined, Wanted(to="megatron", parallelism=Parallelism(4)))
    shapes = rank_shapes(target, rank=3)
    assert target.plan.files[3].path == "iter_0000001/mp_rank_03/model_optim_rng.pt"
    expected = {
        "vision_model.class_token": (1, 1, 1024),
        "vision_model.conv1.weight": (1024, 3, 14, 14),
        "vision_model.position_embeddings.weight": (577, 1024),
        "vision_model.ln_pre.weight": (1024,),
        "vision_model.ln_pre.bias": (1024,),
        "language_model.embedding.word_embeddings.weight": (8192, 4096),
        "language_model.decoder.final_layernorm.weight": (4096,),
        "language_model.output_layer.weight": (8192, 4096),
        "vision_projection.encoder.linear_fc1.weight": (3584, 1024),
        "vision_projection.encoder.linear_fc2.weight": (4096, 3584),
    }
    for layer in range(24):
        prefix = f"vision_model.decoder.layers.{layer}."
        expected |= {
            f"{prefix}self_attention.linear_qkv.weight": (768, 1024),
            f"{prefix}self_attention.linear_qkv.bias": (768,),
            f"{prefix}self_attention.linear_qkv.layer_norm_weight": (1024,),
            f"{prefix}self_attention.linear_qkv.layer_norm_bias": (1024,),
            f"{prefix}self_attention.linear_proj.weight": (1024, 256),
            f"{prefix}self_attention.linear_proj.bias": (1024,),
            f"{prefix}mlp.linear_fc1.weight": (1024, 1024),
            f"{prefix}mlp.linear_fc1.bias": (1024,),
            f"{prefix}mlp.linear_fc1.layer_norm_weight": (1024,),
            f"{prefix}mlp.linear_fc1.layer_norm_bias": (1024,),
            f"{prefix}mlp.linear_fc2.weight": (1024, 1024),
            f"{prefix}mlp.linear_fc2.bias": (1024,),
        }
    for layer in range(32):
        prefix = f"language_model.decoder.layers.{layer}."
        expected |= {
            f"{prefix}self_attention.linear_qkv.weight": (1536, 4096),
            f"{prefix}self_attention.linear_qkv.layer_norm_weight": (4096,),
            f"{prefix}self_attention.linear_proj.weight": (4096, 1024),
            f"{prefix}mlp.linear_fc1.weight": (7168, 4096),
            f"{prefix}mlp.linear_fc1.layer_norm_weight": (4096,),
            f"{prefix}mlp.linear_fc2.weight": (4096, 3584),
        }
    assert shapes == expected


def test_the_projector_is_left_out_where_megatron_is_to_make_it():
    combined = combine(hollow(MISTRAL), hollow(CLIP), projector="megatron")
    target = plan_target(combined, Wanted(to="megatron", leave_fresh_out=True))
    assert not any(name.startswith("vision_projection") for name in rank_shapes(target))


def test_openai_clip_is_cut_as_its_converter_cuts_it(tmp_path):
    # Two layers of the true width, every number different; the mapping is written out here once more.
    width, heads, ranks = 1024, 16, 4
    head_dim = width // heads
    count = iter(range(10**9))

    def numbered(*shape):
        size = torch.Size(shape).numel()
        start = next(count) * 7919
        return ((torch.arange(size, dtype=torch.int64) + start) % (1 << 24)).float().reshape(shape)

    visual = {
        "class_embedding": numbered(width),
        "positional_embedding": numbered(577, width),
        "conv1.weight": numbered(width, 3, 14, 14),
        "proj": numbered(width, 768),
        **{f"{norm}.{kind}": numbered(width) for norm in ("ln_pre", "ln_post") for kind in ("weight", "bias")},
    }
    for layer in range(2):
        prefix = f"transformer.resblocks.{layer}."
        visual |= {
            f"{prefix}{norm}.{kind}": numbered(width) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")
        }
        visual |= {
            f"{prefix}attn.in_proj_weight": numbered(3 * width, width),
            f"{prefix}attn.in_proj_bias": numbered(3 * width),
            f"{prefix}attn.out_proj.weight": numbered(width, width),
            f"{prefix}attn.out_proj.bias": numbered(width),
            f"{prefix}mlp.c_fc.weight": numbered(4 * width, width),
            f"{prefix}mlp.c_fc.bias": numbered(4 * width),
            f"{prefix}mlp.c_proj.weight": numbered(width, 4 * width),
            f"{prefix}mlp.c_proj.bias": numbered(width),
        }
    text = {"logit_scale": torch.tensor(1.0), "transformer.resblocks.0.ln_1.weight": torch.ones(8)}
    torch.save({**{f"visual.{name}": tensor for name, tensor in visual.items()}, **text}, tmp_path / "ViT.pt")
    published = open_published(tmp_path / "ViT.pt")
    assert published.form == "openai-clip"
    target = plan_target(published, Wanted(to="megatron", parallelism=Parallelism(ranks)))
    fill(target.plan, target.source, tmp_path / "out")

    order = torch.empty(3 * width, dtype=torch.long)
    for t in range(3):
        for h in range(heads):
            for r in range(head_dim):
                order[h * 3 * head_dim + t * head_dim + r] = t * width + h * head_dim + r
    for rank in range(ranks):
        saved = torch.load(tmp_path / f"out/iter_0000001/mp_rank_{rank:02d}/model_optim_rng.pt", weights_only=True)
        model = saved["model"]
        assert set(saved) == {"model"}
        assert torch.equal(model["class_token"], visual["class_embedding"].expand(1, 1, -1))
        assert torch.equal(model["position_embeddings.weight"], visual["positional_embedding"])
        assert not any("ln_post" in name or name == "proj.weight" for name in model)
        for layer in range(2):
            ours, theirs = f"decoder.layers.{layer}.", f"transformer.resblocks.{layer}."
            qkv = visual[f"{theirs}attn.in_proj_weight"][order].chunk(ranks)[rank]
            assert torch.equal(model[f"{ours}self_attention.linear_qkv.weight"], qkv)
            bias = visual[f"{theirs}attn.in_proj_bias"][order].chunk(ranks)[rank]
            assert torch.equal(model[f"{ours}self_attention.linear_qkv.bias"], bias)
            out = visual[f"{theirs}attn.out_proj.weight"].chunk(ranks, dim=1)[rank]
            assert torch.equal(model[f"{ours}self_attention.linear_proj.weight"], out)
            first = visual[f"{theirs}mlp.c_fc.weight"].chunk(ranks)[rank]
            assert torch.equal(model[f"{ours}mlp.linear_fc1.weight"], first)
            second = visual[f"{theirs}mlp.c_proj.weight"].chunk(ranks, dim=1)[rank]
            assert torch.equal(model[f"{ours}mlp.linear_fc2.weight"], second)
            norm = visual[f"{theirs}ln_2.weight"]
            assert torch.equal(model[f"{ours}mlp.linear_fc1.layer_norm_weight"], norm)
            for linear in (
                "self_attention.linear_qkv",
                "self_attention.linear_proj",
                "mlp.linear_fc1",
                "mlp.linear_fc2",
            ):
                assert model[f"{ours}{linear}._extra_state"] is None


def test_each_rank_holds_its_gate_rows_and_then_its_up_rows(tmp_path):
    given = {**MISTRAL, "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = read_config({**given, "num_key_value_heads": 2, "head_dim": 2, "vocab_size": 3})
    weights = {name: torch.zeros(shape) for name, shape in parameter_shapes(config).items()}
    weights["language_model.layers.0.mlp.gate_proj.weight"] = torch.arange(8.0).repeat_interleave(4).reshape(8, 4)
    weights["language_model.layers.0.mlp.up_proj.weight"] = torch.arange(10.0, 18).repeat_interleave(4).reshape(8, 4)
    weights["language_model.embed_tokens.weight"] = torch.arange(12.0).reshape(3, 4)
    published = Published(None, "hf", config, InMemory(weights))
    target = plan_target(published, Wanted(to="megatron", parallelism=Parallelism(2), divisible_by=2))
    fill(target.plan, target.source, tmp_path / "m")
    saved = [
        torch.load(tmp_path / f"m/iter_0000001/mp_rank_0{rank}/model_optim_rng.pt", weights_only=False)
        for rank in range(2)
    ]
    rows = [one["model"]["decoder.layers.0.mlp.linear_fc1.weight"][:, 0].tolist() for one in saved]
    assert rows == [[0, 1, 2, 3, 10, 11, 12, 13], [4, 5, 6, 7, 14, 15, 16, 17]]
    embedding = [one["model"]["embedding.word_embeddings.weight"].tolist() for one in saved]
    assert embedding[1] == [[8, 9, 10, 11], [8, 9, 10, 11]]  # 3 words padded to 4 with the last one
    args = saved[0]["args"]
    assert isinstance(args, Namespace)
    assert (args.tensor_model_parallel_size, args.padded_vocab_size, args.attention_dropout) == (2, 4, 0.0)
    assert saved[0]["checkpoint_version"] == 3.0
    assert (tmp_path / "m/latest_checkpointed_iteration.txt").read_text() == "1"


@pytest.mark.parametrize(
    ("words", "ranks", "padded"), [(32768, 4, 32768), (32000, 8, 32768), (128256, 8, 129024), (64000, 1, 64000)]
)
def test_vocabulary_padding(words, ranks, padded):
    assert padded_vocabulary(words, tensor_parallel_size=ranks) == padded


def test_internvit_6b_gets_dummy_heads_of_zeros():
    given = {"model_type": "intern_vit_6b", "num_hidden_layers": 1, "image_size": 448}
    published = hollow(given)
    for ranks, heads in ((1, 25), (2, 26), (4, 28), (8, 32)):
        target = plan_target(published, Wanted(to="megatron", parallelism=Parallelism(ranks)))
        shapes = rank_shapes(target)
        prefix = "decoder.layers.0.self_attention."
        assert shapes[f"{prefix}linear_qkv.weight"] == (3 * 128 * heads // ranks, 3200)
        assert shapes[f"{prefix}q_layernorm.weight"] == (128 * heads // ranks,)
        assert shapes[f"{prefix}linear_proj.weight"] == (3200, 128 * heads // ranks)
        assert shapes["decoder.layers.0.input_layernorm.weight"] == (3200,)  # never fused here


def test_the_distributed_form_is_read_by_torch_alone_and_stacks_layers(tmp_path):
    given = {**MISTRAL, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = read_config({**given, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 128})
    weights = {name: torch.randn(shape) for name, shape in parameter_shapes(config).items()}
    target = plan_target(Published(None, "hf", config, InMemory(weights)), Wanted(to="megatron-dist"))
    fill(target.plan, target.source, tmp_path / "m")
    wanted = {
        "decoder.layers.mlp.linear_fc2.weight": torch.empty(3, 8, 16),
        "decoder.layers.self_attention.linear_qkv.layer_norm_weight": torch.empty(3, 8),
        "embedding.word_embeddings.weight": torch.empty(128, 8),
    }
    dcp.load(wanted, checkpoint_id=tmp_path / "m/iter_0000001", no_dist=True)
    for layer in range(3):
        expected = weights[f"language_model.layers.{layer}.mlp.down_proj.weight"]
        assert torch.equal(wanted["decoder.layers.mlp.linear_fc2.weight"][layer], expected)
    assert torch.equal(wanted["embedding.word_embeddings.weight"], weights["language_model.embed_tokens.weight"])


def test_a_distributed_checkpoint_that_torch_wrote_is_read(tmp_path):
    given = {**MISTRAL, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = read_config({**given, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 128})
    (tmp_path / "hf").mkdir()
    weights = {name: torch.randn(shape) for name, shape in parameter_shapes(config).items()}
    published = Published(None, "hf", config, InMemory(weights))
    own = plan_target(published, Wanted(to="omniloom"))
    fill(own.plan, own.source, tmp_path / "own")
    theirs = plan_target(published, Wanted(to="megatron")).source
    stacked = collections.defaultdict(dict)
    for name in theirs.tensors:
        before, _, after = name.partition("decoder.layers.")
        number, _, rest = after.partition(".")
        key = f"{before}decoder.layers.{rest}" if after else name
        stacked[key][int(number) if after else None] = theirs.read(name)
    state = {
        key: parts[None] if None in parts else torch.stack([parts[n] for n in sorted(parts)])
        for key, parts in stacked.items()
    }
    state["decoder.layers.mlp.linear_fc1._extra_state/shard_0_2"] = {"not": "a tensor"}
    state["optimizer.state.exp_avg.output_layer.weight"] = torch.zeros(2)
    dcp.save(state, checkpoint_id=tmp_path / "m/iter_0000007", no_dist=True)
    (tmp_path / "m/latest_checkpointed_iteration.txt").write_text("7")
    back = open_published(tmp_path / "m", config=tmp_path / "own")
    assert back.form == "megatron-dist"
    assert all(torch.equal(back.source.read(name), tensor) for name, tensor in weights.items())
    part = back.source.read_slice("language_model.layers.1.mlp.down_proj.weight", axis=1, part=1, parts=2)
    assert torch.equal(part, weights["language_model.layers.1.mlp.down_proj.weight"][:, 8:])
