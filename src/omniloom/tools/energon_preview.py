"""``energon preview``: the fields of each sample, one sample after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from omniloom.data.index.layout import DATASET_YAML
from omniloom.data.index.splits import read_splits
from omniloom.energon.adapters.factories import get_dataset_from_config
from omniloom.energon.adapters.workers import WorkerConfig
from omniloom.errors import ConfigError
from omniloom.tools.place_type import PLACE

_HIDDEN = ("__restore_key__", "__subflavors__", "__sources__")
_SHOWN = 128


@click.command(name="preview")
@click.argument("path", type=PLACE)
@click.option("--split-parts", default="train,val,test", show_default=True, help="Parts to show.")
@click.option("--dataset-config", default=DATASET_YAML, show_default=True, help="Description of the samples.")
def command(path: str, *, split_parts: str, dataset_config: str) -> None:
    """Show samples one by one, and ask after each whether to go on."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    for part in parts_with_shards(path, split_parts=split_parts).split(","):
        factory = get_dataset_from_config(
            path, split_part=part, training=False, worker_config=config, dataset_config=dataset_config
        )
        for number, sample in enumerate(factory.build()):
            click.echo(f"Sample {number}")
            for name, value in _fields(sample):
                click.echo(f" - {name} ({type(value)}): {_text(value)}")
            if not click.confirm("Continue?"):
                return


def parts_with_shards(path: str, *, split_parts: str, split_config: str = "split.yaml", **_options: Any) -> str:
    """Those of some parts that have shards, separated by commas.

    Args:
        path: the data set.
        split_parts: the parts, separated by commas.
        split_config: name of the split file.

    Raises:
        ConfigError: there is nothing in any of them.
    """
    splits = read_splits(path, split_config=split_config)
    found = [part for part in split_parts.split(",") if splits.parts.get(part)]
    if not found:
        raise ConfigError(f"{path}: no shards in the parts {split_parts}; there are {', '.join(splits.parts)}")
    return ",".join(found)


def _fields(sample: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(sample):
        named = [(field.name, getattr(sample, field.name)) for field in dataclasses.fields(sample)]
    else:
        named = list(sample.items())
    return [(name, value) for name, value in named if name not in _HIDDEN]


def _text(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{type(value).__name__}(shape={tuple(value.shape)}, dtype={value.dtype})"
    if isinstance(value, bytes):
        return f"bytes(length={len(value)}, value={value[:_SHOWN]!r})"
    return repr(value)
