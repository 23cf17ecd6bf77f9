"""Options that several commands about weights share, and what they mean to the library.

Flags of Megatron's converters are accepted under their own names: ``--use-te``, ``--target-tensor-parallel-size``,
``--allow-missing-vision-projection-checkpoint``, ``--num-layers-per-pp-rank``, ``--bf16``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from omniloom.tools.progress_bar import progress_bar

if TYPE_CHECKING:
    from omniloom.conversion.published import Published
    from omniloom.conversion.targets import To, Wanted

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FORMS = ("omniloom", "hf", "megatron", "megatron-dist")
_DTYPES = ("fp32", "bf16", "fp16", "float32", "bfloat16", "float16")


def form_options(function: _Command) -> _Command:
    """Options that say what form is wanted."""
    for option in reversed(
        (
            click.option("--to", type=click.Choice(_FORMS), help="Form to write.  [default: omniloom]"),
            click.option(
                "--ckpt-format", type=click.Choice(["torch", "torch_dist"]), help="Of Megatron's forms, which."
            ),
            click.option(
                *("--tensor-parallel-size", "--target-tensor-parallel-size", "--tp"),
                "tensor_parallel_size",
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="Ranks that Megatron's tensors are cut for.",
            ),
            click.option(
                *("--pipeline-parallel-size", "--target-pipeline-parallel-size", "--pp"),
                "pipeline_parallel_size",
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="Pipeline stages that Megatron's layers are dealt to.",
            ),
            click.option("--num-layers-per-pp-rank", help="Layers of each stage, such as 7,9,8,8.  [default: equal]"),
            click.option(
                *("--use-te/--no-use-te", "transformer_engine"),
                default=True,
                show_default=True,
                help="Names of Transformer Engine's norms in Megatron's form.",
            ),
            click.option(
                "--make-vocab-size-divisible-by",
                type=click.IntRange(1),
                default=128,
                show_default=True,
                help="Megatron's vocabulary is rounded up to a multiple of this times the ranks.",
            ),
            click.option("--dtype", type=click.Choice(_DTYPES), help="Of all tensors.  [default: as they are]"),
            click.option("--bf16", "dtype", flag_value="bf16", hidden=True, help="Same as --dtype bf16."),
            click.option(
                "--shard-size-gb", type=float, default=5.0, show_default=True, help="Largest safetensors file."
            ),
            click.option("--seed", type=int, default=0, show_default=True, help="Of what starts anew."),
        )
    ):
        function = option(function)
    return function


def read_options(function: _Command) -> _Command:
    """Options that say how a model is read."""
    for option in reversed(
        (
            click.option(
                "--config",
                type=click.Path(path_type=Path),
                help="config.json or omniloom.json of the model, where its weights do not say what they are.",
            ),
            click.option(
                "--init", multiple=True, metavar="PART=fresh", help="A part that may be missing: it starts anew."
            ),
            click.option(
                "--allow-missing-vision-projection-checkpoint",
                is_flag=True,
                help="Same as --init vision_projection=fresh.",
            ),
        )
    ):
        function = option(function)
    return function


def parts_to_start_anew(options: dict[str, Any]) -> tuple[str, ...]:
    """The parts named by ``--init`` and its alias; takes both out of the options."""
    parts = ["vision_projection"] if options.pop("allow_missing_vision_projection_checkpoint", False) else []
    for given in options.pop("init", ()):
        part, _, how = given.partition("=")
        if how != "fresh":
            raise click.BadParameter(
                f"{given!r}: write PART=fresh, such as vision_projection=fresh", param_hint="--init"
            )
        parts.append(part)
    return tuple(parts)


def open_model(path: Path, *, config: Path | None, fresh: tuple[str, ...] = ()) -> Published:
    """Open a model in any form, or what a run has trained; errors name the command that helps."""
    from omniloom.conversion.published import open_published  # noqa: PLC0415 - loads torch
    from omniloom.train.trained import open_run, run_of  # noqa: PLC0415

    if run_of(path) is not None:
        return open_run(path)
    return open_published(path, config=config, fresh=fresh)


def layer_numbers(text: str | None) -> tuple[int, ...] | None:
    """Numbers with commas between them."""
    if text is None:
        return None
    try:
        return tuple(int(one) for one in text.replace(" ", "").split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as -2,-5") from None


def wanted_of(options: Mapping[str, Any], *, openai: bool = False, leave_fresh_out: bool = False) -> Wanted:
    """What the options ask for.

    Args:
        options: those of `form_options`.
        openai: whether the model comes from OpenAI's archive, which Megatron's converter writes in float32.
        leave_fresh_out: leave what starts anew to Megatron.
    """
    from omniloom.conversion.targets import DTYPES, Wanted  # noqa: PLC0415 - loads torch
    from omniloom.weights.megatron_write import Parallelism  # noqa: PLC0415

    to: To = options["to"] or ("megatron" if options["ckpt_format"] else "omniloom")
    if options["ckpt_format"] == "torch_dist" and to == "megatron":
        to = "megatron-dist"
    dtype = options["dtype"] or ("fp32" if openai and to.startswith("megatron") else None)
    return Wanted(
        to=to,
        dtype=None if dtype is None else DTYPES[dtype],
        parallelism=Parallelism(
            options["tensor_parallel_size"],
            options["pipeline_parallel_size"],
            layer_numbers(options["num_layers_per_pp_rank"]),
        ),
        transformer_engine=options["transformer_engine"],
        divisible_by=options["make_vocab_size_divisible_by"],
        shard_bytes=int(options["shard_size_gb"] * 1e9),
        seed=options["seed"],
        leave_fresh_out=leave_fresh_out,
    )


def write_target(published: Published, wanted: Wanted, destination: Path, *, dry_run: bool) -> None:
    """Plan, tell what matters, and write."""
    from omniloom.conversion.targets import plan_target  # noqa: PLC0415 - loads torch
    from omniloom.weights.filling import fill, refuse_existing  # noqa: PLC0415

    refuse_existing(destination)
    target = plan_target(published, wanted)
    for note in target.notes:
        click.echo(f"note: {note}")
    plan = target.plan
    told = f"{len(plan.files)} file{'s' if len(plan.files) != 1 else ''} of weights, {plan.size_bytes / 1e9:.2f} GB"
    if dry_run:
        click.echo(f"would write {destination}: {wanted.to}, {told}")
        for file in plan.files:
            click.echo(f"  {file.path}: {len(file.extents)} tensors, {file.size_bytes / 1e9:.2f} GB")
        for name in sorted(plan.small):
            click.echo(f"  {name}")
        return
    with progress_bar("Converting", shown=True) as display:
        fill(
            plan,
            target.source,
            destination,
            progress=lambda done, total, name: display.show(
                done / max(total, 1), f"{done / 1e9:.1f} of {total / 1e9:.1f} GB, {name}"
            ),
        )
    click.echo(f"wrote {destination}: {wanted.to}, {told}")
