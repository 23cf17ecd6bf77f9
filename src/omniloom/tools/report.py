"""``omniloom report``: what runs did and what their models are worth, as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from omniloom.report.page import report_page
from omniloom.report.records import read_items, read_result, read_runs
from omniloom.storage.files import replace_file
from omniloom.tools.outputs import keep_apart


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  omniloom report runs/sft --out report.html\n"
        "  omniloom report runs/sft --result result.json --items items.jsonl --images images --out report.html\n"
        "  omniloom report runs/a runs/b --result a.json --result b.json --out compared.html"
    )
)
@click.argument("runs", metavar="RUN...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--result", "result_paths", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
    help="A file of `omniloom evaluate --output`; may be given several times.",
)  # fmt: skip
@click.option(
    "--items", "items_path", type=click.Path(path_type=Path, dir_okay=False),
    help="A file of `omniloom evaluate --items`, for a gallery.",
)  # fmt: skip
@click.option(
    "--images", type=click.Path(path_type=Path, file_okay=False, exists=True), help="The folder of the items' images."
)
@click.option("--count", default=24, show_default=True, type=click.IntRange(1, 200), help="Items in the gallery.")
@click.option("--title", help="Heading of the page.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The page.")
def command(
    runs: tuple[Path, ...],
    *,
    result_paths: tuple[Path, ...],
    items_path: Path | None,
    images: Path | None,
    count: int,
    title: str | None,
    out: Path,
) -> None:
    """Show runs and scores as one HTML page.

    RUN is the folder of a run; several are told apart by colour. The page needs no network and no other file. It is
    made of what `omniloom train` and `omniloom evaluate` wrote, so it can be made while a run goes on, and on a machine
    without torch.
    """
    if images is not None and items_path is None:
        raise click.UsageError("--images has no use without --items.")
    keep_apart({"--out": out}, [*runs, *result_paths, items_path])
    text = report_page(
        read_runs(runs),
        results=[read_result(path) for path in result_paths],
        items=read_items(items_path) if items_path is not None else (),
        images=images,
        most_items=count,
        title=title,
    )
    data = text.encode("utf-8", "backslashreplace")
    replace_file(out, data)
    click.echo(f"Wrote {out} ({len(data) / 1e6:.1f} MB).")
