"""A recipe out of the flags of a Megatron-LM training script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from textwrap import wrap
from typing import Any

import yaml

from omniloom.conversion.config_json import config_to_json
from omniloom.errors import ConfigError
from omniloom.model.config import LlavaConfig
from omniloom.train.megatron_flags import remark_on
from omniloom.train.megatron_model import described_model
from omniloom.train.recipe import set_override
from omniloom.train.script_flags import ScriptFlags, flags_of
from omniloom.train.shell_script import read_script
from omniloom.vlm.template_table import chat_template

_COMMENT_WIDTH = 110
_DECAYS = {"cosine": "cosine", "linear": "linear", "constant": "constant", "WSD": "wsd"}


@dataclass
class Converted:
    """What a script becomes.

    Attributes:
        recipe: the settings, as a tree for YAML.
        model: what it trains; ``None`` where the flags do not tell enough.
        remarks: flags without counterpart, what was assumed, what is to be done.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    model: LlavaConfig | None = None
    remarks: list[str] = field(default_factory=list)


def convert_script(path: Path, *, environment: Mapping[str, str], overrides: Sequence[str] = ()) -> Converted:
    """Read a script, without running anything of it.

    Args:
        path: of the script.
        environment: variables that are set when it starts, such as ``WORKSPACE`` and ``LOAD_NAME``.
        overrides: ``key.of.setting=value`` each, in place of what the script says.

    Raises:
        ConfigError: it cannot be read, starts no training, or lacks a flag that a recipe cannot do without.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a script: {error}") from error
    script = read_script(text, environment={"WORKSPACE": ".", "PWD": ".", **environment}, where=str(path))
    flags = flags_of(script.commands, where=str(path))
    made = Converted(remarks=list(script.remarks))
    if "WORKSPACE" not in environment and "WORKSPACE" in text:
        made.remarks.append("WORKSPACE is taken to be this folder; give --env WORKSPACE=DIR for another")
    given: dict[str, Any] = {}
    for override in overrides:
        set_override(given, override)
    steps, batch = _steps(flags, given)
    _model(flags, made, start_step=environment.get("LOAD_ITER", ""))
    made.recipe |= {"data": _data(flags, made, batch), "parts": _parts(flags)}
    made.recipe |= {
        "loop": _loop(flags, steps),
        "optimizer": _optimizer(flags),
        "schedule": _schedule(flags, steps, batch),
    }
    made.recipe |= {"parallel": _parallel(flags, made), "checkpoint": {"every_steps": flags.whole("save-interval", 0)}}
    made.recipe |= {"log": _log(flags), "evaluation": _evaluation(flags), "seed": flags.whole("seed", 1234)}
    if flags.has("distributed-timeout-minutes"):
        made.recipe["hang"] = {"after_seconds": 60.0 * flags.number("distributed-timeout-minutes")}
    if flags.has("profile"):
        made.recipe["profile"] = _profile(flags)
    for override in overrides:
        set_override(made.recipe, override)
    made.recipe = {name: value for name, value in made.recipe.items() if value != {}}
    made.remarks += [told for flag, values in flags.values.items() if (told := remark_on(flag, values))]
    return made


def _steps(flags: ScriptFlags, given: Mapping[str, Any]) -> tuple[int, int]:
    """Steps of the run, and samples of a step."""
    batch = flags.whole("global-batch-size")
    told = given.get("loop", {}).get("steps")
    if isinstance(told, int):
        return told, batch
    if flags.has("train-iters"):
        return flags.whole("train-iters"), batch
    if not flags.has("train-samples"):
        raise ConfigError(
            f"{flags.where}: neither --train-iters nor --train-samples found. Give the steps with --set loop.steps=N."
        )
    return flags.whole("train-samples") // batch, batch


def _model(flags: ScriptFlags, made: Converted, *, start_step: str) -> None:
    """The run's folder, and where its weights come from."""
    language = PurePosixPath(flags.text("tokenizer-model", "language-model")).name
    vision = flags.text("vision-model-type", "clip")
    folder = f"models/{language}-{vision}".lower()
    settings: dict[str, Any] = {"folder": folder}
    made.recipe |= {"status": "unrun", "folder": _run(flags.text("save", "runs/from-megatron")), "model": settings}
    try:
        made.model = described_model(flags)
    except ConfigError as error:
        made.remarks.append(f"the model is not described: {error}")
    shuffled = " --pixel-shuffle" if flags.has("pixel-shuffle") else ""
    norm = made.model.projector.norm if made.model is not None else None
    norms = f" --projector-norm {norm}" if norm else ""
    made.remarks.append(
        f"{folder} is not there yet: omniloom weights combine --projector megatron{norms}{shuffled} --language-model "
        f"{flags.text('tokenizer-model', 'LANGUAGE_MODEL')} --vision-model TOWER --out {folder}"
    )
    if not flags.has("pretrained-checkpoint"):
        return
    first = flags.has("allow-missing-vision-projection-checkpoint") or flags.has("freeze-LM")
    given = flags.text("pretrained-checkpoint")
    if first:
        made.remarks.append(f"or, of Megatron's own checkpoint: omniloom weights convert {given} --out {folder}")
    else:
        settings["start"] = _run(given)
        if start_step.isdecimal():  # the scripts ask for it, and then take the newest whatever it says
            settings["start_step"] = int(start_step)


def _run(path: str) -> str:
    """The folder of a run; there, checkpoints lie in a folder of their own in it."""
    return str(PurePosixPath(path.removesuffix("/").removesuffix("/checkpoints")))


def _data(flags: ScriptFlags, made: Converted, batch: int) -> dict[str, Any]:
    path = str(PurePosixPath(flags.text("data-path", flags.text("train-data-path", "data.yaml"))))
    lengths = ("decoder-seq-length", "total-seq-length", "dataloader-seq-length", "encoder-seq-length", "seq-length")
    length = next((flags.whole(name) for name in lengths if flags.has(name)), 2048)
    data: dict[str, Any] = {"train": path, "validation": flags.text("valid-data-path", path), "rules": "megatron"}
    template = flags.text("tokenizer-prompt-format", "vicuna_v1")
    try:
        data["template"] = chat_template(template).name
    except ConfigError as error:
        made.remarks.append(f"--tokenizer-prompt-format {template}: {error}")
    data |= _images(flags)
    if flags.has("image-tag-type"):
        data["image_tags"] = flags.text("image-tag-type", "")
    tokens = [word.replace("\\", "") for word in flags.values.get("special-tokens", ()) if "image>" not in word]
    if tokens:
        data["special_tokens"] = tokens
    if flags.has("num-frames"):
        data["video_frames"] = flags.whole("num-frames")
    data["max_tokens"] = length
    if flags.has("packing-buffer-size"):
        data |= {
            "pack_tokens": flags.whole("packing-seq-length"),
            "packing_buffer_size": flags.whole("packing-buffer-size"),
        }
    elif flags.has("packing-seq-length"):
        made.remarks.append(
            "--packing-seq-length without --packing-buffer-size: samples are packs already, as they are here"
        )
    pools = PurePosixPath(flags.text("prompt-path", "manual_prompts.json")).name
    if pools not in ("manual_prompts.json", "nvlm_prompts.json"):
        data["prompts"] = flags.text("prompt-path")
    data |= {"batch_size": flags.whole("micro-batch-size", 1), "global_batch_size": batch}
    return data | {"num_workers": flags.whole("num-workers", 2)}


def _images(flags: ScriptFlags) -> dict[str, Any]:
    if not flags.has("use-tiling"):
        return {"layout": "squash"}
    return {
        "layout": "tiles",
        "max_tiles": flags.whole("max-num-tiles", 1),
        "thumbnail": flags.has("use-thumbnail"),
        "tile_choice": "area-weighted" if flags.has("use-area-weighted-aspect-ratio") else "closest",
        "tile_tags": flags.has("use-tile-tags"),
    }


def _parts(flags: ScriptFlags) -> dict[str, Any]:
    frozen = {"language_model": "freeze-LM", "vision_tower": "freeze-ViT"}
    parts: dict[str, Any] = {part: {"train": False} for part, flag in frozen.items() if flags.has(flag)}
    hidden = flags.number("hidden-dropout", 0.0)
    if hidden:  # there, too, a frozen language model leaves something out
        parts.setdefault("language_model", {})["dropout"] = {"stream": hidden}
    return parts


def _loop(flags: ScriptFlags, steps: int) -> dict[str, Any]:
    loop: dict[str, Any] = {"steps": steps, "clip_norm": flags.number("clip-grad", 1.0)}
    if flags.has("exit-duration-in-mins"):
        loop["limit_seconds"] = 60.0 * flags.number("exit-duration-in-mins")
    return loop


def _optimizer(flags: ScriptFlags) -> dict[str, Any]:
    return {
        "beta1": flags.number("adam-beta1", 0.9),
        "beta2": flags.number("adam-beta2", 0.999),
        "epsilon": flags.number("adam-eps", 1e-8),
        "weight_decay": flags.number("weight-decay", 0.01),
    }


def _schedule(flags: ScriptFlags, steps: int, batch: int) -> dict[str, Any]:
    style = flags.text("lr-decay-style", "linear")
    if style not in _DECAYS:
        raise ConfigError(f"{flags.where}: --lr-decay-style {style} found; one of {', '.join(_DECAYS)} expected.")
    made = {"decay": _DECAYS[style], "peak": flags.number("lr"), "end": flags.number("min-lr", 0.0)}
    decay = _in_steps(flags, "lr-decay", batch, steps)
    warmup = _in_steps(flags, "lr-warmup", batch, 0)
    if flags.has("lr-warmup-fraction"):
        warmup = round(flags.number("lr-warmup-fraction") * decay)
    if warmup:
        made["warmup_steps"] = warmup
    if style == "WSD":
        made["decay_steps"] = _in_steps(flags, "lr-wsd-decay", batch, steps // 10)
    elif decay != steps and style != "constant":
        made["decay_steps"] = decay
    return made


def _in_steps(flags: ScriptFlags, name: str, batch: int, default: int) -> int:
    """A span that a flag gives in iterations or in samples."""
    if flags.has(f"{name}-iters"):
        return flags.whole(f"{name}-iters")
    return math.ceil(flags.whole(f"{name}-samples") / batch) if flags.has(f"{name}-samples") else default


def _parallel(flags: ScriptFlags, made: Converted) -> dict[str, Any]:
    axes = {
        "tensor": flags.whole("tensor-model-parallel-size", 1),
        "pipeline": flags.whole("pipeline-model-parallel-size", 1),
        "context": flags.whole("context-parallel-size", 1),
    }
    parallel: dict[str, Any] = {name: size for name, size in axes.items() if size > 1}
    if flags.has("sequence-parallel") and axes["tensor"] > 1:
        parallel["sequence"] = True
    if flags.has("num-layers-per-virtual-pipeline-stage"):
        layers = flags.whole("num-layers") // axes["pipeline"]
        parallel["pipeline_chunks"] = layers // flags.whole("num-layers-per-virtual-pipeline-stage")
    if axes["tensor"] > 1:
        made.remarks.append(
            f"parallel.tensor {axes['tensor']} is the script's; FSDP shards the optimizer as well, so 1 may do"
        )
    parallel["precision"] = "bfloat16" if flags.has("bf16") or flags.has("fp16") else "float32"
    if flags.has("fp16"):
        made.remarks.append("--fp16: bfloat16 takes its place, which needs no loss scale")
    elif not flags.has("bf16"):
        made.remarks.append(
            "neither --bf16 nor --fp16: float32, as the script has it; mind parallel.precision: bfloat16"
        )
    recompute = _recompute(flags, made)
    return parallel | ({"recompute": recompute} if recompute else {})


def _recompute(flags: ScriptFlags, made: Converted) -> dict[str, int]:
    recompute: dict[str, int] = {}
    granularity = flags.text("recompute-granularity", "none")
    if granularity == "full":
        layers = flags.whole("num-layers")
        block = flags.text("recompute-method", "uniform") == "block"
        number = flags.whole("recompute-num-layers", layers) if block else layers
        recompute["language_model"] = max(1, round(layers / max(1, number)))
    elif granularity == "selective" or flags.has("recompute-activations"):
        made.remarks.append(
            "selective recomputation: attention here keeps no scores, so there is nothing to compute again"
        )
    if flags.has("recompute-vision"):
        recompute["vision_tower"] = 1
    return recompute


def _log(flags: ScriptFlags) -> dict[str, Any]:
    log: dict[str, Any] = {"every_steps": flags.whole("log-interval", 100), "tensorboard": flags.has("tensorboard-dir")}
    return log | ({"wandb_project": flags.text("wandb-project")} if flags.has("wandb-project") else {})


def _evaluation(flags: ScriptFlags) -> dict[str, Any]:
    batches = flags.whole("eval-iters", 100)
    return {"every_steps": flags.whole("eval-interval", 1000), "batches": batches} if batches else {}


def _profile(flags: ScriptFlags) -> dict[str, Any]:
    first, end = flags.whole("profile-step-start", 10), flags.whole("profile-step-end", 12)
    ranks = [int(rank) for rank in flags.values.get("profile-ranks", ["0"])]
    return {"first_step": first + 1, "steps": end - first, "ranks": ranks}


def written(made: Converted, path: Path, *, script: Path) -> dict[Path, str]:
    """The files of a converted script: the recipe, with the remarks above it, then the model's description if known.

    Args:
        made: what the script became.
        path: of the recipe.
        script: that it came from.
    """
    recipe = dict(made.recipe)
    files: dict[Path, str] = {}
    if made.model is not None:
        described = path.with_suffix(".model.json")
        recipe["model"] = {**recipe["model"], "config": str(described)}
        files[described] = config_to_json(made.model).decode()
    above = [
        f"# From {script.name}.",
        *(f"# {line}" for remark in made.remarks for line in wrap(remark, _COMMENT_WIDTH)),
    ]
    body = yaml.safe_dump(recipe, sort_keys=False, width=_COMMENT_WIDTH)
    return {path: "\n".join([*above, body]), **files}
