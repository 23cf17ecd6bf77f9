"""Recipes out of Megatron-LM's scripts: those written here in their form, and the real ones where a checkout is given.

``OMNILOOM_MEGATRON`` names a checkout of Megatron-LM.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from omniloom.errors import ConfigError
from omniloom.model.dropout import DropoutConfig
from omniloom.tools.main import run as omniloom
from omniloom.train.from_megatron import Converted, convert_script
from omniloom.train.megatron_flags import ALWAYS, MISSING, MODEL, SETTINGS
from omniloom.train.model_files import model_config
from omniloom.train.parts import PartConfig
from omniloom.train.recipe import Recipe, read_recipe
from omniloom.train.schedule import learning_rate

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
MODEL_NAME="stage-two"
if [[ -z $WORKSPACE ]]; then
    echo "no workspace"
    exit 1
fi
OUT="${WORKSPACE}/output/${MODEL_NAME}"
FROM="${WORKSPACE}/${LOAD_NAME}/checkpoints"
DEBUG=0
if [[ $DEBUG -eq 1 ]]; then BZ=8; EXTRA_ARGS=" --freeze-LM"; else BZ=64; EXTRA_ARGS=""; fi
USE_TILING=1
if [[ $USE_TILING -eq 1 ]]; then
    EXTRA_ARGS+=" --pixel-shuffle --use-tiling --max-num-tiles 6 --use-thumbnail --use-tile-tags"
fi
OPTIONS=" \\
    --num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 \\
    --group-query-attention --num-query-groups 4 --normalization RMSNorm --norm-epsilon 1e-06 \\
    --position-embedding-type rope --rotary-base 1000000 --swiglu --add-qkv-bias \\
    --untie-embeddings-and-output-weights --max-position-embeddings 32768 \\
    --language-model-type=qwen2.5_7B --vision-model-type internvit --img-h 448 --img-w 448 --patch-dim 14 \\
    --disable-vision-class-token --image-tag-type internvl --special-tokens <image> <img> </img> \\
    --tokenizer-model Qwen/Qwen2.5-7B-Instruct --tokenizer-prompt-format qwen2p5 \\
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --sequence-parallel \\
    --recompute-granularity full --recompute-method block --recompute-num-layers 14 --recompute-vision \\
    --micro-batch-size 1 --global-batch-size ${BZ} --train-samples 6400 --lr-warmup-samples 640 \\
    --lr 2e-5 --min-lr 2e-6 --lr-decay-style cosine --clip-grad 0.5 --weight-decay 0.05 \\
    --adam-beta1 0.9 --adam-beta2 0.98 --bf16 --freeze-ViT --decoder-seq-length 4096 \\
    --packing-seq-length 8192 --packing-buffer-size 300 --num-workers 3 \\
    --data-path data/sft.yaml --prompt-path my_prompts.json --save ${OUT}/checkpoints --load ${OUT}/checkpoints \\
    --pretrained-checkpoint ${FROM} --save-interval 50 --eval-interval 25 --eval-iters 4 --log-interval 5 \\
    --tensorboard-dir ${OUT}/tensorboard --exit-duration-in-mins 110 --distributed-timeout-minutes 60 \\
    --hidden-dropout 0.0 --attention-dropout 0.1 --use-loss-scaling --init-method-std 0.014 --new-in-2031 7 \\
    --eod-mask-loss --use-te ${EXTRA_ARGS} \\
"
if [[ $BATCH -eq 0 ]]; then
    torchrun --nproc_per_node 8 examples/multimodal/train.py ${OPTIONS}
else
    run_cmd="python -u examples/multimodal/train.py ${OPTIONS}"
    srun -l sh -c "${run_cmd}"
fi
"""


def converted(tmp_path: Path, text: str = SCRIPT, **environment: str) -> Converted:
    path = tmp_path / "sft.sh"
    path.write_text(text)
    return convert_script(path, environment={"WORKSPACE": "/w", "LOAD_NAME": "output/one", **environment})


def test_a_script_in_megatrons_form(tmp_path: Path) -> None:
    made = converted(tmp_path)
    assert made.recipe == {
        "status": "unrun",
        "folder": "/w/output/stage-two",
        "model": {"folder": "models/qwen2.5-7b-instruct-internvit", "start": "/w/output/one"},
        "data": {
            "train": "data/sft.yaml",
            "validation": "data/sft.yaml",
            "rules": "megatron",
            "template": "qwen2p5",
            "layout": "tiles",
            "max_tiles": 6,
            "thumbnail": True,
            "tile_choice": "closest",
            "tile_tags": True,
            "image_tags": "internvl",
            "special_tokens": ["<img>", "</img>"],
            "max_tokens": 4096,
            "pack_tokens": 8192,
            "packing_buffer_size": 300,
            "prompts": "my_prompts.json",
            "batch_size": 1,
            "global_batch_size": 64,
            "num_workers": 3,
        },
        "parts": {"vision_tower": {"train": False}},
        "loop": {"steps": 100, "clip_norm": 0.5, "limit_seconds": 6600.0},
        "optimizer": {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8, "weight_decay": 0.05},
        "schedule": {"decay": "cosine", "peak": 2e-5, "end": 2e-6, "warmup_steps": 10},
        "parallel": {
            "tensor": 2,
            "sequence": True,
            "precision": "bfloat16",
            "recompute": {"language_model": 2, "vision_tower": 1},
        },
        "checkpoint": {"every_steps": 50},
        "log": {"every_steps": 5, "tensorboard": True},
        "evaluation": {"every_steps": 25, "batches": 4},
        "seed": 1234,
        "hang": {"after_seconds": 3600.0},
    }
    assert made.model is not None
    assert (made.model.vision.dim, made.model.projector.hidden_dims, made.model.projector.norm) == (
        3200,
        (3584,),
        "rms",
    )
    assert made.model.image_tokens(448, 448) == 256


@pytest.mark.parametrize(
    ("kind", "sizes"), [("radio", (32, 1280, 16, 5120)), ("cradio-g", (40, 1536, 24, 6144))], ids=["radio", "cradio-g"]
)
def test_a_tower_of_radio(tmp_path: Path, kind: str, sizes: tuple[int, ...]) -> None:
    """Sizes of the example's own table: class tokens 8, patches of 16 pixels, 1,024 of them in 512 folded to 256."""
    text = SCRIPT.replace("internvit --img-h 448 --img-w 448 --patch-dim 14", f"{kind} --img-h 512 --img-w 512")
    script = tmp_path / "sft.sh"
    script.write_text(text.replace("USE_TILING=1", 'USE_TILING=0; EXTRA_ARGS+=" --pixel-shuffle"'))
    made = convert_script(script, environment={"WORKSPACE": "/w", "LOAD_NAME": "l"}).model
    assert made is not None
    vision = made.vision
    assert (vision.num_layers, vision.dim, vision.num_heads, vision.mlp_dim) == sizes
    assert (vision.prefix_tokens, vision.patch_size, vision.position_rows) == (8, 16, 128)
    assert (vision.patch_bias, vision.qkv_bias, vision.post_norm) == (False, True, False)
    assert made.image_tokens(512, 512) == 256


def test_each_flag_without_counterpart_is_named_and_no_other(tmp_path: Path) -> None:
    told = [line for line in converted(tmp_path).remarks if line.startswith("--")]
    assert [line.partition(":")[0] for line in told] == [
        "--attention-dropout 0.1",
        "--use-loss-scaling",
        "--new-in-2031 7",
    ]
    assert told[-1].endswith("it is not known here")


def test_hidden_dropout_is_that_of_the_language_model_frozen_or_not(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    for frozen in ("", "--freeze-LM"):
        script.write_text(SCRIPT.replace("--hidden-dropout 0.0", f"--hidden-dropout 0.1 {frozen}"))
        made = convert_script(script, environment={"WORKSPACE": "/w", "LOAD_NAME": "output/one"})
        expected = {"dropout": {"stream": 0.1}} | ({"train": False} if frozen else {})
        assert made.recipe["parts"]["language_model"] == expected
        assert not [line for line in made.remarks if "hidden-dropout" in line]


def test_a_flag_stands_in_one_table() -> None:
    tables = (SETTINGS, MODEL, ALWAYS.keys(), MISSING.keys())
    assert sum(map(len, tables)) == len(frozenset().union(*tables))


def test_the_branch_for_a_cluster_is_taken_when_asked(tmp_path: Path) -> None:
    here, cluster = converted(tmp_path), converted(tmp_path, BATCH="1")
    assert cluster.recipe == here.recipe


def test_load_iter_is_the_step_that_is_started_from(tmp_path: Path) -> None:
    assert converted(tmp_path, LOAD_ITER="500").recipe["model"]["start_step"] == 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--global-batch-size ${BZ}", ""), "--global-batch-size is missing"),
        (("--lr 2e-5", "--lr $(cat rate)"), "--lr: <output of cat rate> found; a number expected.* --env"),
        (("cosine", "inverse-square-root"), "--lr-decay-style inverse-square-root found; one of cosine"),
        (("train.py", "serve.py"), r"starts no train.py or pretrain_vlm.py"),
    ],
)
def test_what_a_recipe_cannot_do_without(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        converted(tmp_path, SCRIPT.replace(*change))


def test_the_command_writes_a_recipe_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sft.sh").write_text(SCRIPT)
    words = ["train", "made.yaml", "--from-megatron", "sft.sh", "--env", "WORKSPACE=w", "--env", "LOAD_NAME=output/one"]
    assert omniloom(words) == 0
    recipe = read_recipe(Path("made.yaml"))
    assert model_config(recipe.model).language.num_layers == 28
    assert "# --use-loss-scaling: no counterpart" in Path("made.yaml").read_text()
    assert omniloom(words) != 0, "a recipe that is there is not written over"
    assert omniloom([*words, "--force"]) == 0


REAL = {
    "pretrain_mistral_clip.sh": "mistral-7b-clip/pretrain",
    "sft_mistral_clip.sh": "mistral-7b-clip/sft",
    "nvlm/pretrain_yi_34b_internvit_6b.sh": "nvlm/pretrain-34b",
    "nvlm/sft_34b_internvit.sh": "nvlm/sft-34b",
    "nvlm/pretrain_qwen20_72b_internvit_6b.sh": "nvlm/pretrain-72b",
    "nvlm/sft_qwen20_72b_internvit_6b.sh": "nvlm/sft-72b",
}


@pytest.mark.parametrize("name", REAL)
def test_our_recipes_have_the_numbers_of_the_real_scripts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "OMNILOOM_MEGATRON" not in os.environ:
        pytest.skip("OMNILOOM_MEGATRON names no checkout of Megatron-LM")
    script = Path(os.environ["OMNILOOM_MEGATRON"]) / "examples/multimodal" / name
    made = convert_script(script, environment={"WORKSPACE": "/w", "LOAD_NAME": "output/one", "LOAD_ITER": "1"})
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(made.recipe))
    theirs = read_recipe(path)
    monkeypatch.chdir(ROOT)
    ours = read_recipe(Path(f"recipes/{REAL[name]}.yaml"))
    assert _numbers(ours) == _numbers(theirs)
    assert made.model is not None
    config = model_config(ours.model)
    same = replace(made.model, image_token_id=config.image_token_id)
    positions = config.language.max_positions
    assert (
        replace(same, language=replace(same.language, max_positions=positions, family=config.language.family)) == config
    )


LEFT_OUT = PartConfig(dropout=DropoutConfig(stream=0.1))
"""The language model of the scripts that train it."""


def _numbers(recipe: Recipe) -> dict[str, Any]:
    data, steps = recipe.data, recipe.loop.steps
    kept = ("template", "rules", "layout", "tile_tags", "image_tags", "max_tokens", "global_batch_size")
    tiles = (data.max_tiles, data.thumbnail, data.tile_choice) if data.layout == "tiles" else None
    rates = [learning_rate(recipe.schedule, step, steps=steps) for step in range(0, steps, max(1, steps // 97))]
    return {
        "data": {name: getattr(data, name) for name in kept} | {"tiles": tiles},
        # Ours leave nothing out, as LLaVA does.
        "parts": {name: replace(part, dropout=None) for name, part in recipe.parts.items() if part != LEFT_OUT},
        "loop": recipe.loop,
        "optimizer": recipe.optimizer,
        "rates": rates,
        "told": (recipe.checkpoint.every_steps, recipe.log.every_steps, recipe.evaluation.every_steps),
    }
