"""The model's annotations are true, it imports nothing distributed, and the loader needs none of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "src" / "omniloom" / "model"

# Every function below omniloom.model checks the shapes and types of its arguments and results while it runs.
CHECKED = """
from jaxtyping import install_import_hook
with install_import_hook(["omniloom.model", "omniloom.generate"], "beartype.beartype"):
    import torch
    from omniloom.generate.greedy import generate_greedily
    from omniloom.model.build import build
    from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
    from omniloom.model.documents import Documents
    from omniloom.model.initialize import initialize
    from omniloom.model.llava import Llava

language = DecoderConfig(family="qwen3", vocab_size=50, dim=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4,
                         mlp_dim=24, qk_norm=True, window=6)
vision = VisionConfig(family="dinov2", image_size=16, patch_size=4, position_rows=4, dim=8, num_layers=2, num_heads=2,
                      mlp_dim=16, class_tokens=1, register_tokens=2, class_positions=1, post_norm=True, qk_norm=True,
                      layer_scale=True)
projector = ProjectorConfig(input_dim=8, output_dim=16, hidden_dims=(12,), norm="rms", reduction="pixel_shuffle")
model = build(LlavaConfig(language=language, vision=vision, projector=projector, image_token_id=49))
initialize(model, generator=torch.Generator().manual_seed(0))
ids = torch.tensor([1] + [49] * 4 + [2, 3] + [4, 5, 6] + [49] * 8 + [7])
documents = Documents.of_lengths([7, 12])
images = [torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 32)]
loss = model.loss(ids, labels=ids.where(ids != 49, -100), documents=documents, images=images,
                  token_weights=torch.ones(19))
loss.total.backward()
assert model(ids, documents=documents, images=images).shape == (19, 50)
answers = generate_greedily(model.eval(), [[1, 2], [3, 4, 5]], max_new_tokens=3)
assert [len(answer.token_ids) for answer in answers] == [3, 3]
try:
    model.language_model.embed(torch.zeros(2, 3, dtype=torch.int64))
except Exception as error:
    print(type(error).__name__)
"""


def test_shapes_in_annotations_are_true() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECKED], check=False, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "TypeCheckError" in done.stdout, "the checker let a wrong shape pass, so it checked nothing"


@pytest.mark.parametrize("file", sorted(MODEL.rglob("*.py")), ids=lambda file: str(file.relative_to(MODEL)))
def test_models_know_nothing_of_ranks(file: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not [name for name in imported if name.startswith(("torch.distributed", "omniloom.data"))]


def test_the_loader_needs_no_library_of_the_models() -> None:
    program = (
        "import sys\n"
        "for name in ('jaxtyping', 'safetensors', 'transformers'): sys.modules[name] = None\n"
        "import omniloom, omniloom.data.open, omniloom.tools.main\n"
        "assert not [name for name in sys.modules if name.startswith('omniloom.model')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_missing_library_is_named_with_its_extra() -> None:
    program = "import importlib.util as u; u.find_spec = lambda name, *rest: None; import omniloom.model"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert "pip install omniloom[train]" in done.stderr
