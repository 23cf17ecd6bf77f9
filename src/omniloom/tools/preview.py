"""``omniloom preview``: look at samples, in the terminal or as an HTML page."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from omniloom.data.index.dataset import dataset_config, open_dataset
from omniloom.data.index.dataset_yaml import SampleDescription, describe_samples
from omniloom.data.index.layout import DATASET_YAML, meta_path
from omniloom.data.index.place import absolute_root
from omniloom.data.index.sample_types import CRUDE_TYPE
from omniloom.data.index.source_kind import Source, other_source
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.row_cook import ColumnCook, FieldCook
from omniloom.data.source_tools import open_leaf
from omniloom.errors import ConfigError
from omniloom.storage.files import replace_file
from omniloom.storage.urls import name_of, redacted
from omniloom.tools.other_sources import NAMES
from omniloom.tools.place_type import PLACE
from omniloom.tools.preview_page import page
from omniloom.tools.preview_samples import Part, PreviewSample, chosen_rows, read_rows, read_samples
from omniloom.tools.preview_terminal import print_samples

THUMBNAIL_PIXELS = 256


@click.command(
    epilog=(
        "\b\nExample:\n"
        "  omniloom preview shards --count 4\n"
        "  omniloom preview shards --spread --count 60 --html preview.html"
    )
)
@click.argument("dataset", type=PLACE)
@click.option("--split-part", default="train", show_default=True, help="Part of the data set to show.")
@click.option("--split-config", default="split.yaml", show_default=True, help="Split file in .nv-meta.")
@click.option("--dataset-config", "config_name", default="dataset.yaml", show_default=True, help="What samples are.")
@click.option("--count", default=8, show_default=True, type=click.IntRange(1), help="How many samples.")
@click.option("--start", default=0, show_default=True, type=click.IntRange(0), help="Number of the first sample.")
@click.option("--spread", is_flag=True, help="Take the samples evenly from the whole part.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page to this file instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a sample instead.")
def command(
    dataset: str,
    *,
    split_part: str,
    split_config: str,
    config_name: str,
    count: int,
    start: int,
    spread: bool,
    html_path: Path | None,
    as_json: bool,
) -> None:
    """Show samples in the terminal or as an HTML page.

    The parts are shown, so that crude data sets work too, and where the data set declares fields, what fills them.
    """
    shown = _open(dataset, split_part, split_config, config_name)
    rows = chosen_rows(shown.samples, count=count, start=start, spread=spread)
    if not rows:
        raise click.UsageError(f"--start {start} is beyond the {shown.samples:,} samples of {split_part}.")
    samples = shown.read(rows)
    if as_json:
        for sample in samples:
            click.echo(json.dumps(_as_json(sample)))
        return
    if html_path is not None:
        text = page(samples, title=f"{name_of(absolute_root(dataset))}: {split_part}", facts=shown.facts)
        replace_file(html_path, text.encode("utf-8", "backslashreplace"))
        click.echo(f"Wrote {html_path} with {len(rows):,} of {shown.samples:,} samples.")
        return
    print_samples(samples, console=Console())


class _Shown(NamedTuple):
    """A data set that is looked at: how many samples it has, what is told of it, and what reads some of them."""

    samples: int
    facts: list[tuple[str, str]]
    read: Callable[[list[int]], Iterator[PreviewSample]]


def _open(dataset: str, split_part: str, split_config: str, config_name: str) -> _Shown:
    if is_metadataset(dataset):
        raise ConfigError(f"{redacted(dataset)}: is a mix: `omniloom inspect` shows it, `omniloom info` its data sets.")
    source = other_source(dataset, config_name=config_name)
    if source is not None:
        return _open_other(source, split_part, split_config, config_name)
    index = open_dataset(dataset, split_part=split_part, split_config=split_config)
    declared = _declared(dataset, config_name)
    facts = [
        ("data set", redacted(str(index.root))),
        ("sample type", declared.type_name),
        ("split part", index.split_part),
        ("samples", f"{index.samples:,}"),
        ("shards", f"{len(index.shards):,}"),
    ]
    read = functools.partial(read_samples, index, thumbnail_pixels=THUMBNAIL_PIXELS, field_map=declared.fields)
    return _Shown(index.samples, facts, read)


def _open_other(source: Source, split_part: str, split_config: str, config_name: str) -> _Shown:
    leaf = open_leaf(source, split_part, split_config=split_config, config_name=config_name)
    facts = [
        ("data set", redacted(source.path)),
        ("kind", NAMES[source.kind]),
        ("split part", split_part),
        ("samples", f"{len(leaf.rows):,}"),
    ]
    cook = leaf.cook_row
    columns = cook.columns if isinstance(cook, ColumnCook) else None
    fields = cook.fields if isinstance(cook, FieldCook | ColumnCook) else None
    read = functools.partial(read_rows, leaf.rows, thumbnail_pixels=THUMBNAIL_PIXELS, field_map=fields, columns=columns)
    return _Shown(len(leaf.rows), facts, read)


def _declared(dataset: str, config_name: str) -> SampleDescription:
    """What the samples are; a set without a description is shown part by part all the same."""
    there = meta_path(dataset, config_name).is_file() or config_name != DATASET_YAML
    config = dataset_config(dataset, name=config_name) if there else {"__class__": CRUDE_TYPE}
    return describe_samples(config, where=config_name)


def _as_json(sample: PreviewSample) -> dict[str, Any]:
    return {
        "row": sample.row,
        "key": sample.key,
        "shard": sample.shard,
        **({"bytes": [sample.start, sample.stop]} if sample.start is not None else {}),
        "parts": {part.name: _part_as_json(part) for part in sample.parts},
        **({"fields": sample.fields} if sample.fields else {}),
        **({"fault": sample.fault} if sample.fault else {}),
    }


def _part_as_json(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": part.kind, "bytes": part.size_bytes}
    if part.shape:
        found["shape"] = part.shape
    if part.value is not None:
        return found | {"value": part.value}
    return found | ({"text": part.text} if part.text else {})
