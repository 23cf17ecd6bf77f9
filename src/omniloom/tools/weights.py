"""``omniloom weights``: convert, combine, show, compare and check models' weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.tools.weights_adapter import adapter
from omniloom.tools.weights_options import (
    form_options,
    layer_numbers,
    open_model,
    parts_to_start_anew,
    read_options,
    wanted_of,
    write_target,
)

if TYPE_CHECKING:
    from omniloom.model.config import Reduction

_EXAMPLES = (
    "\b\nExamples:\n"
    "  omniloom weights convert Mistral-7B-v0.3 megatron/ --to megatron --tensor-parallel-size 4\n"
    "  omniloom weights combine --language-model Mistral-7B-v0.3 --vision-model ViT-L-14-336px.pt --out llava/\n"
    "  omniloom weights diff llava/ runs/a/exported/"
)


@click.group(epilog=_EXAMPLES)
def command() -> None:
    """Convert, combine, show and check weights."""


command.add_command(adapter)


@command.command(
    epilog="\b\nExample:\n  omniloom weights convert vicuna-7b-v1.5 vicuna-tp4 --to megatron --tensor-parallel-size 4"
)
@click.argument("source", type=click.Path(path_type=Path), required=False)
@click.argument("destination", type=click.Path(path_type=Path), required=False)
@click.option(
    *("--download-root", "--load-dir", "given_source"),
    type=click.Path(path_type=Path),
    help="Same as SOURCE; with it and without --to, Megatron's form is written, as by its converters.",
)
@click.option(
    *("--output", "--output-dir", "--save-dir", "output"), type=click.Path(path_type=Path), help="Same as DESTINATION."
)
@form_options
@read_options
@click.option("--dry-run", is_flag=True, help="Check everything and tell what would be written, but write nothing.")
def convert(
    source: Path | None, *, destination: Path | None, given_source: Path | None, output: Path | None, **options: Any
) -> None:
    """Write a model in another form.

    SOURCE is a folder of Hugging Face, Megatron or omniloom, an archive of OpenAI's CLIP, a GGUF or an ONNX file.
    """
    dry_run = options.pop("dry_run")
    if given_source is not None:
        options["to"] = options["to"] or "megatron"
    source = _one_path(source, given_source, what="SOURCE, or --download-root")
    destination = _one_path(destination, output, what="DESTINATION, or --output")
    published = open_model(source, config=options.pop("config"), fresh=parts_to_start_anew(options))
    click.echo(f"{source}: {published.form}, {published.source.size_bytes / 1e9:.2f} GB")
    wanted = wanted_of(options, openai=published.form == "openai-clip")
    write_target(published, wanted, destination, dry_run=dry_run)


@command.command(
    epilog="\b\nExample:\n  omniloom weights combine --language-model vicuna-7b-v1.5 \\\n"
    "    --vision-model clip-vit-large-patch14-336 --out llava"
)
@click.option("--language-model", type=click.Path(path_type=Path), required=True, help="A language model, any form.")
@click.option("--vision-model", type=click.Path(path_type=Path), required=True, help="A tower, any form.")
@click.option("--out", "--output", "out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--language-config", type=click.Path(path_type=Path), help="Its config, where the weights do not say.")
@click.option("--vision-config", type=click.Path(path_type=Path), help="Its config, where the weights do not say.")
@click.option(
    "--projector",
    type=click.Choice(["llava", "megatron", "linear"]),
    help="The map between both.  [default: llava; with --to megatron: megatron]",
)
@click.option(
    "--projector-norm", type=click.Choice(["layer", "rms"]), help="Norm before the projector.  [default: none]"
)
@click.option("--projector-hidden-dim", type=int, help="Width between the projector's two maps, where it is another.")
@click.option("--pixel-shuffle", is_flag=True, help="Fold a square of patches into one token.")
@click.option("--pool", is_flag=True, help="Take the mean of a square of patches for one token.")
@click.option("--summary", is_flag=True, help="Make one token of the class token and the mean of all patches.")
@click.option(
    "--reduction-factor", type=click.IntRange(2), default=2, show_default=True, help="Patches on a side of the square."
)
@click.option("--norm-features", is_flag=True, help="Apply the tower's last norm to its features; for DINOv2.")
@click.option("--feature-layers", help="Layers of the tower that are used, such as -2 or -2,-5.")
@click.option("--keep-class-token/--drop-class-token", default=None, help="Whether the tower's first tokens are used.")
@click.option("--image-token-id", type=int, help="Id of <image>.  [default: the tokenizer's, or the first free one]")
@form_options
@click.option("--init", multiple=True, hidden=True, help="Accepted: the projector always starts anew here.")
@click.option("--allow-missing-vision-projection-checkpoint", is_flag=True, help="Leave the projector to Megatron.")
@click.option("--dry-run", is_flag=True, help="Check everything and tell what would be written, but write nothing.")
def combine(**options: Any) -> None:
    """Put a language model and a tower together; the projector between them starts anew."""
    from omniloom.conversion.combine import combine as put_together  # noqa: PLC0415 - loads torch

    to = options["to"] or "omniloom"
    language = open_model(options["language_model"], config=options["language_config"])
    vision = open_model(options["vision_model"], config=options["vision_config"])
    published = put_together(
        language,
        vision,
        projector=options["projector"] or ("megatron" if to.startswith("megatron") else "llava"),
        projector_hidden_dim=options["projector_hidden_dim"],
        projector_norm=options["projector_norm"],
        reduction=_reduction(options),
        reduction_factor=options["reduction_factor"],
        norm_features=options["norm_features"],
        feature_layers=layer_numbers(options["feature_layers"]),
        keep_class_token=options["keep_class_token"],
        image_token_id=options["image_token_id"],
    )
    out, dry_run = options["out"], options["dry_run"]
    wanted = wanted_of(options, leave_fresh_out=options["allow_missing_vision_projection_checkpoint"])
    click.echo(f"{options['language_model']}: {language.form}, {options['vision_model']}: {vision.form}")
    write_target(published, wanted, out, dry_run=dry_run)


@command.command(epilog="\b\nExample:\n  omniloom weights show llava/ --json")
@click.argument("path", type=click.Path(path_type=Path))
@read_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(path: Path, *, as_json: bool, **options: Any) -> None:
    """Tell what model it is, and list its tensors under our names."""
    from omniloom.tools.weights_report import shown  # noqa: PLC0415 - loads torch

    published = open_model(path, config=options.pop("config"), fresh=parts_to_start_anew(options))
    click.echo(shown(published, as_json=as_json))


@command.command(epilog="\b\nExample:\n  omniloom weights diff vicuna-7b-v1.5 vicuna-megatron")
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
@read_options
@click.option("--tolerance", type=float, default=0.0, show_default=True, help="Largest difference of two numbers.")
@click.pass_context
def diff(ctx: click.Context, /, *, left: Path, right: Path, tolerance: float, **options: Any) -> None:
    """Compare two models tensor by tensor, in whatever forms they are; exit code 1 where they differ."""
    from omniloom.tools.weights_report import compared  # noqa: PLC0415 - loads torch

    config, fresh = options.pop("config"), parts_to_start_anew(options)
    one, two = (open_model(path, config=config, fresh=fresh) for path in (left, right))
    text, same = compared(one, two, tolerance=tolerance)
    click.echo(text)
    if not same:
        ctx.exit(1)


@command.command(epilog="\b\nExample:\n  omniloom weights verify llava/")
@click.argument("path", type=click.Path(path_type=Path))
@read_options
@click.pass_context
def verify(ctx: click.Context, /, *, path: Path, **options: Any) -> None:
    """Read every tensor and see whether it can be right; exit code 1 where one cannot."""
    from omniloom.tools.weights_report import verified  # noqa: PLC0415 - loads torch

    published = open_model(path, config=options.pop("config"), fresh=parts_to_start_anew(options))
    text, sound = verified(published)
    click.echo(text)
    if not sound:
        ctx.exit(1)


def _reduction(options: dict[str, Any]) -> Reduction:
    """The one that is chosen of several flags."""
    known: tuple[Reduction, ...] = ("pixel_shuffle", "pool", "summary")
    chosen = [name for name in known if options[name]]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in chosen).replace('_', '-')} exclude each other.")
    return chosen[0] if chosen else "none"


def _one_path(argument: Path | None, option: Path | None, *, what: str) -> Path:
    chosen = argument or option
    if chosen is None or (argument is not None and option is not None):
        raise click.UsageError(f"Name one path: {what}.")
    return chosen
