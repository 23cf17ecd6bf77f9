"""What ``omniloom prepare`` tells and asks about the samples, in Energon's order of questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from omniloom.data.index.dataset_yaml import dataset_config_of, sample_loader_text
from omniloom.data.index.field_map import parse_field
from omniloom.data.index.layout import SAMPLE_LOADER, meta_name, meta_path, write_sidecar_file
from omniloom.data.index.place import place_of
from omniloom.data.index.sample_types import CRUDE_TYPE, SAMPLE_TYPES, Field, menu
from omniloom.data.index.sidecar import Prepared
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.data.shards.parts_table import PartsTable
from omniloom.storage.open import open_store
from omniloom.tools.prepare_options import PrepareOptions

MAX_PARTS_FOR_MAP = 10
_SAMPLES_SHOWN = 2
_TEXT_SHOWN = 25
_ITEMS_SHOWN = 3
_JSON_LIMIT_BYTES = 1 << 20


def tell_findings(prepared: Prepared) -> None:
    """Say what was indexed, and all that was out of the ordinary on standard error."""
    facts = prepared.facts
    reused = f", {prepared.reused:,} of them unchanged since an earlier scan" if prepared.reused else ""
    click.echo(f"Indexed {prepared.samples:,} samples in {len(prepared.shard_counts):,} shards{reused}.")
    if prepared.transfer is not None:
        ways = " and ".join(f"{count:,} by {way}" for way, count in sorted(prepared.ways.items()))
        click.echo(
            f"Read {prepared.transfer.size_bytes:,} bytes in {prepared.transfer.requests:,} requests, which took "
            f"{prepared.transfer.seconds:,.1f} s one after the other (shards: {ways})."
        )
    for part, names in prepared.split_parts.items():
        samples = sum(prepared.shard_counts[name] for name in names)
        click.echo(f"- {part}: {samples:,} samples in {len(names):,} shards")
    if prepared.duplicate_keys.repeated:
        _warn(_repeated(prepared))
    for fault in prepared.faults:
        _warn(f"left out [{fault.reason}]: {fault.message}")
    if facts.empty_shards:
        _warn(f"{len(facts.empty_shards):,} shards without samples are left out: {_some(facts.empty_shards)}")
    if facts.ignored:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(facts.ignored.items()))
        click.echo(f"Members that belong to no sample: {counts}.")
    if facts.without_end_marker:
        _warn(f"the archive's end marker is missing in {_some(facts.without_end_marker)}; was a copy cut?")
    if facts.dotted_keys:
        _warn(
            f"{facts.dotted_keys:,} files have more than one dot, such as {_some(facts.dotted_names)}: the key ends at "
            "the first. If it should end at the last, prepare with --key-rule last-dot."
        )
    if facts.interleaved:
        _warn(f"{facts.interleaved:,} samples have scattered parts; they are put together, but read more slowly.")
    for obstacle in facts.energon_obstacles:
        _warn(f"Energon will not read this set alike: {obstacle}.")


def describe_samples(prepared: Prepared, options: PrepareOptions) -> None:
    """Show the first samples and write ``dataset.yaml``, asking for what was not given."""
    found = list(prepared.facts.part_counts)
    _show_first_samples(prepared)
    more = " and more" if len(found) > MAX_PARTS_FOR_MAP else ""
    click.echo(f"Parts found: {', '.join(found[:MAX_PARTS_FOR_MAP])}{more}")
    described = meta_path(prepared.root, options.dataset_yaml_name).is_file()
    if options.skip_dataset_yaml:
        wanted = False
    elif options.sample_type is not None:
        wanted = True
    elif not options.may_ask:
        wanted = False
        if not described:
            click.echo("Without --sample-type no dataset.yaml is made.")
    else:
        wanted = click.confirm("Describe the samples now, in a dataset.yaml?", default=True)
    if not wanted and described:
        click.echo(f"{meta_name(prepared.root, options.dataset_yaml_name)} is there, and stays as it is.")
        return
    if not wanted:
        click.echo(f"A {options.dataset_yaml_name} has to be added by hand before the set can be loaded.")
        return
    name = options.sample_type or _ask_sample_type()
    fields = options.fields()
    if name == CRUDE_TYPE:
        click.echo("Crude samples need no field map; a cooker in the task encoder makes typed samples of them.")
        click.echo("Subflavors in the metadataset tell cookers which samples are theirs.")
    elif fields is None and options.may_ask:
        fields = _ask_fields(name, found)
    elif fields is not None:
        _warn_of_missing_parts(fields, found)
    _write(prepared.root, options, name, fields, found)


def write_description(prepared: Prepared, options: PrepareOptions) -> str | None:
    """Write what the options alone describe, without a word; returns the path, or ``None`` if they describe nothing."""
    if options.sample_type is None or options.skip_dataset_yaml:
        return None
    found = list(prepared.facts.part_counts)
    return _write(prepared.root, options, options.sample_type, options.fields(), found, quiet=True)


def shortened(value: Any) -> Any:
    """JSON data cut down to what fits on a screen."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value[:_ITEMS_SHOWN]] + ["..."] * (len(value) > _ITEMS_SHOWN)
    if isinstance(value, str) and len(value) > _TEXT_SHOWN:
        return value[:_TEXT_SHOWN] + "..."
    return value


def _show_first_samples(prepared: Prepared) -> None:
    shard = next(iter(prepared.shard_counts))
    place = place_of(prepared.root)
    table = PartsTable(place.parts_table(shard))
    for row in range(min(_SAMPLES_SHOWN, len(table))):
        key, parts = table.row(row)
        click.echo(f"Sample {row} of {shard}, {key!r}, has the parts:")
        for name, start, stop in parts:
            click.echo(f"- {name} ({stop - start:,} bytes)")
        for name, start, stop in parts:
            if name == "json" and stop - start <= _JSON_LIMIT_BYTES:
                click.echo(f"Content of {key}.json, shortened:\n{_json_text(place.shard(shard), start, stop)}")


def _json_text(path: str, start: int, stop: int) -> str:
    data = open_store(path).read(path, start, stop)
    try:
        return json.dumps(shortened(json.loads(data)), indent=2)
    except (ValueError, RecursionError) as error:
        return f"(no valid JSON: {error})"


def _ask_sample_type() -> str:
    names = menu()
    click.echo("Types of samples:")
    for number, name in enumerate(names):
        told = "crude samples: plain parts, for cookers" if name == CRUDE_TYPE else name
        click.echo(f"{number}. {told}")
    number = click.prompt("Number of the type", type=click.IntRange(0, len(names) - 1))
    return names[number]


def _ask_fields(name: str, found: list[str]) -> dict[str, str] | None:
    """The field map, field by field; ``None`` for a sample loader."""
    fields = SAMPLE_TYPES[name].fields
    click.echo(f"{name} has the fields:")
    for field in fields:
        click.echo(f"- {_told(field)}")
    if len(found) > MAX_PARTS_FOR_MAP:
        click.echo("There are too many kinds of parts for a field map; a sample loader has to be written.")
        return None
    if not click.confirm("Map fields to parts here? (No: write a sample loader)", default=True):
        return None
    click.echo(f"Parts: {', '.join(found)}. A value inside JSON: json[key][0]. Alternatives: jpg,png.")
    click.echo("Leave a field empty if it may be left out.")
    given = {field.name: _ask_field(field, found) for field in fields}
    return {field: description for field, description in given.items() if description}


def _ask_field(field: Field, found: list[str]) -> str:
    while True:
        description: str = click.prompt(f"Part for {_told(field)}", default="", show_default=False)
        if not description and not field.required:
            return ""
        unknown = [option.part for option in parse_field(description) if option.part not in found]
        if description and not unknown:
            return description
        wrong = f"There is no part {unknown[0]!r}" if description else f"{field.name} cannot be left out"
        click.echo(f"{wrong}; choose from {', '.join(found)}.")


def _told(field: Field) -> str:
    return f"{field.name}: {field.kind}" + ("" if field.required else f" (may be left out: {field.default})")


def _warn_of_missing_parts(fields: Mapping[str, str], found: list[str]) -> None:
    for field, description in fields.items():
        parts = [option.part for option in parse_field(description)]
        if not set(parts) & set(found):
            _warn(f"no sample has a part for the field {field!r}: {description!r} asks for {_some(parts)}.")


def _write(
    root: str,
    options: PrepareOptions,
    name: str,
    fields: dict[str, str] | None,
    found: list[str],
    *,
    quiet: bool = False,
) -> str:
    if name != CRUDE_TYPE and fields is None:
        path = meta_path(root, SAMPLE_LOADER)
        overwrite = not path.is_file() or (
            options.may_ask and click.confirm(f"{path} is there. Overwrite it with an empty template?")
        )
        if overwrite:
            where = write_sidecar_file(root, SAMPLE_LOADER, sample_loader_text(name, found))
            if not quiet:
                click.echo(f"Wrote {where}. Fill in which parts make the fields.")
    text = dump_yaml(dataset_config_of(name, None if name == CRUDE_TYPE else fields))
    where = write_sidecar_file(root, options.dataset_yaml_name, text)
    if not quiet:
        click.echo(f"Wrote {where}")
    return where


def _repeated(prepared: Prepared) -> str:
    duplicates = prepared.duplicate_keys
    names = list(prepared.shard_counts)
    first = duplicates.examples[0]
    places = " and ".join(f"{names[number]} (row {row:,})" for number, row in first.places[:3])
    return (
        f"{duplicates.repeated:,} samples have a key that an earlier sample has: {first.key!r} is in {places}. They "
        "can be trained on, but not be found by key. --fix-duplicates makes keys unique."
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)
