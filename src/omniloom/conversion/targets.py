"""Plans a model in the form in which it is wanted; nothing is written before the whole plan stands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from omniloom.conversion import config_json
from omniloom.conversion.llava_export import companions_of_llava, with_vocabulary_for_images
from omniloom.conversion.megatron_parts import table_to_write
from omniloom.conversion.published import LEFTOVER, SIDECAR, Published, common_dtype, with_fresh_values
from omniloom.errors import ConfigError, WeightsError
from omniloom.model.config import DecoderConfig, LlavaConfig
from omniloom.model.families import tables_of, write_config
from omniloom.model.families.family import Config
from omniloom.weights.filling import Plan
from omniloom.weights.hf_folder import SHARD_BYTES, plan_safetensors
from omniloom.weights.layout import Job, Slot
from omniloom.weights.megatron_args import DIVISIBLE_BY, write_args
from omniloom.weights.megatron_dist_write import plan_megatron_dist
from omniloom.weights.megatron_write import Parallelism, plan_megatron
from omniloom.weights.safetensors_file import lay_out_safetensors
from omniloom.weights.source import Cast, Joined, Renamed, Source
from omniloom.weights.view import TheirsView

To = Literal["omniloom", "hf", "megatron", "megatron-dist"]
DTYPES: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
}
_MEGATRON_TOWERS = {"internvl_vision": "internvit300M"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What form is wanted.

    Attributes:
        to: the form.
        dtype: of all floating-point tensors; ``None`` leaves each as it is.
        parallelism: how Megatron's checkpoint is cut.
        transformer_engine: whether Megatron's checkpoint has TE's names of norms.
        divisible_by: Megatron's ``--make-vocab-size-divisible-by``.
        shard_bytes: size that a safetensors file does not exceed unless one tensor does.
        seed: of values that start anew.
        leave_fresh_out: leave what starts anew out of Megatron's checkpoint, which then is loaded with
            ``--allow-missing-vision-projection-checkpoint``.
    """

    to: To
    dtype: torch.dtype | None = None
    parallelism: Parallelism = field(default_factory=Parallelism)
    transformer_engine: bool = True
    divisible_by: int = DIVISIBLE_BY
    shard_bytes: int = SHARD_BYTES
    seed: int = 0
    leave_fresh_out: bool = False


@dataclass(frozen=True)
class Target:
    """A folder that can be filled.

    Attributes:
        plan: its files.
        source: the tensors that the plan names.
        notes: what the user should know, one sentence each.
    """

    plan: Plan
    source: Source
    notes: tuple[str, ...] = ()


def plan_target(published: Published, wanted: Wanted) -> Target:
    """Plan a model in another form.

    Raises:
        WeightsError: the form has no place for a tensor, or ranks do not divide one; all are listed.
        ConfigError: the form has no word for part of the config; all obstacles are listed.
    """
    left_out = published.fresh if wanted.leave_fresh_out and wanted.to.startswith("megatron") else ()
    source = published.source if left_out else with_fresh_values(published, seed=wanted.seed)
    if wanted.dtype is not None:
        source = Cast(source, wanted.dtype)
    notes = [_told(published.fresh, "left out, to start anew in Megatron" if left_out else "starts anew")]
    notes.append(_told(published.neutral, "does nothing: the form it came in has no such norm"))
    if wanted.to == "omniloom":
        target = _omniloom(published, source, wanted)
    elif wanted.to == "hf":
        target = _hf(published, source, wanted)
    else:
        target = _megatron(published, source, wanted, left_out)
    return replace(target, notes=tuple(note for note in (*notes, *target.notes) if note))


def _omniloom(published: Published, source: Source, wanted: Wanted) -> Target:
    small: dict[str, bytes | Path] = {**published.companions, config_json.FILE: _json_of(published.config)}
    return Target(plan_safetensors(source, small=small, shard_bytes=wanted.shard_bytes), source)


def _hf(published: Published, source: Source, wanted: Wanted) -> Target:
    config = published.config
    form = hf_form(config)  # refuses what cannot be said, before anything else is looked at
    notes: list[str] = []
    written: dict[str, bytes | Path] = dict(published.companions)
    if isinstance(config, LlavaConfig) and form == "llava":
        config, source, note = with_vocabulary_for_images(config, source)
        extra, told = companions_of_llava(config, published.companions)
        written |= extra
        notes += [note, *told]
    elif isinstance(config, LlavaConfig) and "processor_config.json" not in written:
        notes.append("written as InternVL, whose processor has to be put beside it: only LLaVA's is made here")
    theirs = TheirsView(source, tables_of(config, form=form)[0])
    given = _with_dtype(write_config(config, form=form), str(common_dtype(source)).removeprefix("torch."))
    written["config.json"] = (json.dumps(given, indent=2) + "\n").encode()
    plan = plan_safetensors(theirs, small=written, shard_bytes=wanted.shard_bytes)
    notes += [f"{name} has no place in this form and is left out" for name in theirs.unplaced]
    return Target(plan, theirs, tuple(note for note in notes if note))


def hf_form(config: Config) -> str:
    """The form of Hugging Face that can say what a model is: LLaVA's where it can, InternVL's otherwise.

    Raises:
        ConfigError: none can; LLaVA's obstacles are listed.
    """
    try:
        write_config(config)
        return "llava"
    except ConfigError:
        with contextlib.suppress(ConfigError):
            write_config(config, form="internvl")
            return "internvl"
        raise


def _megatron(published: Published, source: Source, wanted: Wanted, left_out: tuple[str, ...]) -> Target:
    config = published.config
    table = table_to_write(
        config,
        # In the distributed form Megatron has TE's names for its local layers as well.
        norms="te" if wanted.transformer_engine or wanted.to == "megatron-dist" else "local",
        tensor_parallel_size=wanted.parallelism.tensor,
        divisible_by=wanted.divisible_by,
    )
    if left_out:
        table = replace(table, rows=tuple(row for row in table.rows if not set(row.our_names) & set(left_out)))
    theirs = TheirsView(source, table)
    small: dict[str, bytes | Path] = {f"{SIDECAR}/{config_json.FILE}": _json_of(config)}
    small |= {f"{SIDECAR}/{name}": path for name, path in published.companions.items()}
    notes = [f"{name} has no place in Megatron and is kept in {SIDECAR}/{LEFTOVER}" for name in theirs.unplaced]
    notes += list(_told_about_features(config))
    language = _language_of(config)
    args = None
    if language is not None:
        dtype = common_dtype(source)
        args = write_args(
            language,
            dtype=dtype,
            tensor_parallel_size=wanted.parallelism.tensor,
            te=wanted.transformer_engine,
            divisible_by=wanted.divisible_by,
        )
        vars(args).update(_vision_args(config))
    if wanted.to == "megatron-dist":
        plan = plan_megatron_dist(theirs, args=args, small=small)
    else:
        plan = plan_megatron(
            theirs,
            wanted.parallelism,
            args=args,
            tied=language is not None and language.tied_head,
            transformer_engine=wanted.transformer_engine,
            small=small,
        )
    return _with_leftover(Target(plan, theirs, tuple(notes)), Renamed(source, {name: name for name in theirs.unplaced}))


def expressible(config: Config) -> dict[str, str]:
    """For each form, why a model cannot be written in it; empty where it can."""
    reasons = {"omniloom": ""}
    try:
        hf_form(config)
        reasons["hf"] = ""
    except ConfigError as error:
        reasons["hf"] = str(error)
    try:
        table_to_write(config, norms="te", tensor_parallel_size=1, divisible_by=DIVISIBLE_BY)
        reasons["megatron"] = ""
    except WeightsError as error:
        reasons["megatron"] = str(error)
    return reasons


def _json_of(config: Config) -> bytes:
    return config_json.config_to_json(config)


def _with_dtype(given: dict[str, Any], dtype: str) -> dict[str, Any]:
    # Both spellings: transformers 5 writes `dtype`, everything older and vLLM read `torch_dtype`.
    return {**given, "torch_dtype": dtype, "dtype": dtype}


def _language_of(config: Config) -> DecoderConfig | None:
    if isinstance(config, LlavaConfig):
        return config.language
    return config if isinstance(config, DecoderConfig) else None


def _vision_args(config: Config) -> dict[str, Any]:
    if not isinstance(config, LlavaConfig):
        return {}
    vision = config.vision
    return {
        "vision_model_type": _MEGATRON_TOWERS.get(vision.family, vision.family),
        "img_h": vision.image_size,
        "img_w": vision.image_size,
        "patch_dim": vision.patch_size,
        "disable_vision_class_token": not config.keep_class_token,
        "pixel_shuffle": config.projector.reduction == "pixel_shuffle",
    }


def _told_about_features(config: Config) -> tuple[str, ...]:
    if not isinstance(config, LlavaConfig):
        return ()
    told = []
    if config.feature_layers not in {(-1,), (config.vision.num_layers,)}:
        told.append(f"Megatron takes the tower's last layer; this model takes {config.feature_layers}.")
    if config.projector.reduction not in ("none", "pixel_shuffle"):
        told.append(f"Megatron keeps or folds patches; this model's reduction is {config.projector.reduction}.")
    written = "Its weights are written as they are, but Megatron computes other features from them."
    return tuple(f"{one} {written}" for one in told)


def _with_leftover(target: Target, leftover: Source) -> Target:
    """The same with one more file, for tensors that Megatron has no place for."""
    if not leftover.tensors:
        return target
    layout = lay_out_safetensors(f"{SIDECAR}/{LEFTOVER}", leftover.tensors, metadata={"format": "pt"})
    jobs = tuple(Job(name, (Slot(layout.path, name),)) for name in leftover.tensors)
    plan = replace(target.plan, files=(*target.plan.files, layout), jobs=(*target.plan.jobs, *jobs))
    return replace(target, plan=plan, source=Joined(target.source, leftover))


def _told(names: tuple[str, ...], what: str) -> str:
    if not names:
        return ""
    owners = sorted({name.split(".")[0] for name in names})
    shown = ", ".join(names) if len(names) <= 4 else f"{len(names)} tensors of {', '.join(owners)}"
    return f"{shown}: {what}"
