"""``omniloom info``: what a prepared data set holds."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from omniloom.data.index.dataset import dataset_config
from omniloom.data.index.dataset_yaml import SampleDescription, describe_samples
from omniloom.data.index.info import Info, read_info
from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML, meta_path
from omniloom.data.index.omniloom_json import OmniloomInfo, read_omniloom_info
from omniloom.data.index.place import DatasetPlace, absolute_root, has_database, place_of
from omniloom.data.index.source_kind import other_source
from omniloom.data.index.sources import list_shards
from omniloom.data.index.splits import Splits, read_splits
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.mix_facts import mix_facts
from omniloom.data.source_tools import source_facts
from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, name_of, redacted
from omniloom.tools.mixes import describe_mix
from omniloom.tools.other_sources import describe_other
from omniloom.tools.place_type import PLACE

_FIRST_PARTS = ("train", "val", "test")
_THREADS = 16
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@click.command(epilog="\b\nExample:\n  omniloom info shards\n  omniloom info shards --json")
@click.argument("dataset", type=PLACE)
@click.option("--split-config", default=SPLIT_YAML, show_default=True, help="Split file in .nv-meta.")
@click.option(
    "--dataset-config", "config_name", default=DATASET_YAML, show_default=True, help="Description of the samples."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of Markdown.")
def command(dataset: str, *, split_config: str, config_name: str, as_json: bool) -> None:
    """Tell what a prepared data set holds.

    Of a metadataset (.yaml), the data sets it comes to, with their rows and shares of the draws.
    """
    if is_metadataset(str(dataset)):
        mix = mix_facts(dataset)
        click.echo(json.dumps(mix) if as_json else describe_mix(mix))
        return
    source = other_source(dataset, config_name=config_name)
    if source is not None:
        found = source_facts(source, split_config=split_config, config_name=config_name)
        click.echo(json.dumps(found) if as_json else describe_other(found))
        return
    info = read_info(dataset)
    splits = read_splits(dataset, split_config=split_config)
    known = read_omniloom_info(dataset)
    description = _description(dataset, config_name)
    facts = _facts(dataset, info, splits, known, description)
    click.echo(json.dumps(facts) if as_json else _markdown(facts))


def _description(dataset: str, name: str) -> SampleDescription | None:
    if not meta_path(dataset, name).is_file():
        return None
    return describe_samples(dataset_config(dataset, name=name), where=name)


def _facts(
    dataset: str, info: Info, splits: Splits, known: OmniloomInfo | None, description: SampleDescription | None
) -> dict[str, Any]:
    sizes = _sizes(place_of(dataset), info)
    order = sorted(splits.parts, key=lambda part: _FIRST_PARTS.index(part) if part in _FIRST_PARTS else 3)
    return {
        "name": name_of(absolute_root(dataset)),
        "path": redacted(dataset),
        "samples": info.samples,
        "size_bytes": sum(size for size in sizes.values() if size is not None),
        "shards": len(info.shard_counts),
        "missing_shards": [name for name, size in sizes.items() if size is None],
        "energon_version": info.energon_version or "unknown",
        "sample_type": description.type_name if description else None,
        "sample_module": description.module if description else None,
        "field_map": _field_map(description),
        "sample_loader": description.sample_loader if description else None,
        "split_parts": {part: _part(splits, part, info) for part in order},
        "excluded": len(splits.exclude),
        "key_database": has_database(dataset),
        "indexed_by": f"omniloom {known.omniloom_version}" if known else "another program",
        "key_rule": known.key_rule if known else "first-dot",
        "readable_by_energon": known.readable_by_energon if known else True,
        "energon_obstacles": known.energon_obstacles if known else [],
        "parts": known.part_counts if known else {},
        "repeated_keys": known.repeated_keys if known else None,
        "bad_shards": known.bad_shards if known else {},
        "empty_shards": known.empty_shards if known else [],
    }


def _part(splits: Splits, part: str, info: Info) -> dict[str, Any]:
    names = [name for name in splits.parts[part] if name not in splits.exclude]
    samples = sum(info.shard_counts.get(name, 0) for name in names)
    return {"samples": samples, "shards": len(names), "percent": round(100 * samples / max(1, info.samples), 2)}


def _field_map(description: SampleDescription | None) -> dict[str, str] | None:
    if description is None or description.fields is None:
        return None
    return {name: ",".join(map(str, options)) for name, options in description.fields.items()}


def _markdown(facts: Mapping[str, Any]) -> str:
    lines = [
        f"* {facts['name']}: `{facts['path']}` ({facts['samples']:,} samples, {_readable(facts['size_bytes'])} in "
        f"{facts['shards']:,} shards)",
        f"  * Created with energon version: {facts['energon_version']}, indexed by {facts['indexed_by']}",
        f"  * Sample type: {_type_text(facts)}",
        "  * Splits:",
    ]
    for part, numbers in facts["split_parts"].items():
        lines.append(
            f"    * `{part}`: {numbers['percent']:.0f}%, {numbers['samples']:,} samples in {numbers['shards']:,} shards"
        )
    if facts["parts"]:
        counted = ", ".join(f"{name} ({count:,})" for name, count in list(facts["parts"].items())[:20])
        lines.append(f"  * Parts: {counted}")
    if facts["excluded"]:
        lines.append(f"  * Excluded: {facts['excluded']:,} shards or samples")
    if not facts["key_database"]:
        lines.append("  * No key database: samples cannot be found by key")
    if facts["repeated_keys"]:
        lines.append(f"  * {facts['repeated_keys']:,} samples have a key of an earlier one")
    for obstacle in facts["energon_obstacles"]:
        lines.append(f"  * Energon will not read it alike: {obstacle}")
    for what in ("missing_shards", "bad_shards", "empty_shards"):
        if facts[what]:
            names = ", ".join(list(facts[what])[:5])
            lines.append(f"  * {what.replace('_', ' ').capitalize()}: {len(facts[what]):,} ({names})")
    return "\n".join(lines)


def _type_text(facts: Mapping[str, Any]) -> str:
    if facts["sample_type"] is None:
        return "not described yet (no dataset.yaml)"
    made = ""
    if facts["field_map"]:
        made = "; " + ", ".join(f"{name}: {description}" for name, description in facts["field_map"].items())
    elif facts["sample_loader"]:
        made = f"; made by {facts['sample_loader']}"
    return f"`{facts['sample_module']}.{facts['sample_type']}`{made}"


def _readable(size_bytes: float) -> str:
    for unit in _UNITS:
        if size_bytes < 1024 or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:.2f} {unit}"


def _sizes(place: DatasetPlace, info: Info) -> dict[str, int | None]:
    """Size of each shard in bytes; ``None`` for one that is not there."""
    if is_url(place.shards):
        try:
            listed = {entry.url: entry.size_bytes for entry in list_shards(place.shards)}
        except StorageError as error:
            if error.errno != errno.ENOTSUP:
                raise
            return _looked_at(place, info)
        return {name: listed.get(name) for name in info.shard_counts}
    return {name: _size_bytes(Path(place.shards, name)) for name in info.shard_counts}


def _looked_at(place: DatasetPlace, info: Info) -> dict[str, int | None]:
    """The same of a web server that lists nothing, shard by shard."""

    def size_of(name: str) -> int | None:
        try:
            return open_store(place.shards).size(place.shard(name))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(info.shard_counts, threads.map(size_of, info.shard_counts), strict=True))


def _size_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
