"""`hf:PATH`: language models that transformers runs become part of a LLaVA on disk, and leave it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from omniloom.conversion.loading import load_model
from omniloom.conversion.published import open_published
from omniloom.errors import ConfigError
from omniloom.model.attention import AttendPacked
from omniloom.model.documents import Documents
from omniloom.model.hugging_face import HuggingFaceDecoder
from omniloom.model.initialize import initialize
from omniloom.model.llava import Llava
from omniloom.parallel.plan import ParallelConfig, Ranks, parallelize
from omniloom.tools.main import commands
from tests.contract.hub_server import hub_server
from tests.unit.hugging_face_pairs import random_model, saved_tensors, transformers

SIZES = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
KINDS: dict[str, dict[str, Any]] = {
    "Olmo2": {**SIZES, "intermediate_size": 48, "pad_token_id": 0},
    "StableLm": {**SIZES, "intermediate_size": 48, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "GPTNeoX": {**SIZES, "intermediate_size": 48},  # its parts have other names
    "OPT": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32},  # positions it does not take; a tied head
    "GPT2": {"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 4},  # files without a prefix, dropout
}
NOT_A_PART = ("GPTNeoX", "OPT", "GPT2")
IMAGE = 300


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4
    )
    folder = tmp_path_factory.mktemp("tower")
    random_model(config, transformers.SiglipVisionModel).save_pretrained(folder)
    return folder


def run(*words: object) -> str:
    result = CliRunner().invoke(commands, ["weights", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path, tower: Path) -> tuple[str, Any, Path]:
    """The name, transformers' model, and the folder of a LLaVA with it."""
    name = request.param
    config = getattr(transformers, f"{name}Config")(**KINDS[name])
    model = random_model(config, getattr(transformers, f"{name}{'LMHeadModel' if name == 'GPT2' else 'ForCausalLM'}"))
    model.save_pretrained(tmp_path / "language")
    (tmp_path / "language/tokenizer_config.json").write_text("{}")
    run(
        *("combine", "--language-model", f"hf:{tmp_path / 'language'}", "--vision-model", tower),
        *("--out", tmp_path / "llava"),
    )
    return name, model, tmp_path / "llava"


@torch.no_grad()
def test_it_computes_what_transformers_computes(made: tuple[str, Any, Path]) -> None:
    name, theirs, folder = made
    assert (folder / "tokenizer_config.json").is_file()
    model = load_model(folder)
    assert isinstance(model, Llava)
    assert isinstance(model.language_model, HuggingFaceDecoder)
    model.eval()
    tokens = torch.arange(40, 52)
    documents = Documents.of_lengths([7, 5])
    stream = model.language_model(model.language_model.embed(tokens), AttendPacked(documents, torch.device("cpu")))
    for start, stop in documents.spans():
        expected = theirs(input_ids=tokens[None, start:stop]).logits[0]
        assert (model.language_model.logits(stream[start:stop]) - expected).abs().max() <= 1e-5
    assert model.language_model.packs is (name != "OPT")


def test_every_value_is_the_files(made: tuple[str, Any, Path]) -> None:
    _, theirs, folder = made
    ours = saved_tensors(folder)
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours[f"language_model.model.{name}"], parameter)
    assert sum(name.startswith("language_model.") for name in ours) == len(dict(theirs.named_parameters()))


@torch.no_grad()
def test_it_leaves_as_a_llava_of_transformers(made: tuple[str, Any, Path], tmp_path: Path) -> None:
    name, _, folder = made
    if name in NOT_A_PART:
        with pytest.raises(ConfigError, match="not expressible as a part of another model"):
            run("convert", folder, tmp_path / "hf", "--to", "hf")
        assert not (tmp_path / "hf").exists()
        return
    assert "to 320" in run("convert", folder, tmp_path / "hf", "--to", "hf")
    told = json.loads((tmp_path / "hf/config.json").read_text())["text_config"]
    assert told["vocab_size"] == 320
    theirs, told = transformers.LlavaForConditionalGeneration.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(told.values()), told
    ours = load_model(folder).eval()
    tokens = torch.tensor([5, *[IMAGE] * 4, 9, 10, 11])
    image = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    expected = theirs.eval()(input_ids=tokens[None], pixel_values=image).logits[0, :, :300]
    found = ours(tokens, documents=Documents.of_lengths([8]), images=image)
    assert (found - expected).abs().max() <= 1e-5


def test_what_it_cannot_do_is_refused(made: tuple[str, Any, Path], tmp_path: Path) -> None:
    name, _, folder = made
    result = CliRunner().invoke(commands, ["weights", "convert", str(folder), str(tmp_path / "m"), "--to", "megatron"])
    assert "no form for a language model that transformers runs" in str(result.exception)
    config = open_published(folder).config
    with pytest.raises(ConfigError, match="trained by one process, or under FSDP"):
        parallelize(load_model(folder), ParallelConfig(pad_tokens=2), Ranks())
    if name in {"Olmo2", "GPT2"}:
        with pytest.raises(ConfigError, match="no fresh values are known"):
            initialize(Llava(config))  # type: ignore[arg-type]


def test_a_name_on_the_hub(tmp_path: Path) -> None:
    """In a process of its own: the hub's client takes its address and its cache from the environment once."""
    model = random_model(transformers.Olmo2Config(**KINDS["Olmo2"]), transformers.Olmo2ForCausalLM)
    model.save_pretrained(tmp_path / "hub")
    (tmp_path / "hub/weights.bin").write_bytes(b"a pickle that nobody asked for")
    code = (
        "from pathlib import Path\n"
        "from omniloom.conversion.published import open_published\n"
        "opened = open_published(Path('hf:owner/name'))\n"
        "print(len(opened.source.tensors), opened.config.vocab_size)\n"
    )
    with hub_server(tmp_path / "hub") as (endpoint, seen):
        variables = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert found.stdout.split() == [str(len(dict(model.named_parameters()))), "300"], found.stderr
    assert not any("weights.bin" in path for _, path, _ in seen)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="transformers does not open it"):
        open_published(Path(f"hf:{tmp_path / 'empty'}"))
