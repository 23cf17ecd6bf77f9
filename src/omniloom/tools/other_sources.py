"""What ``prepare``, ``info`` and ``lint`` print of sources that are not shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from omniloom.data.index.layout import SPLIT_YAML, meta_path
from omniloom.data.index.source_kind import Source
from omniloom.data.index.split_plan import plan_splits
from omniloom.data.source_tools import ALL, describe_source, prepare_source, split_source
from omniloom.errors import ConfigError
from omniloom.storage.urls import redacted
from omniloom.tools.prepare_media import index_media
from omniloom.tools.prepare_options import PrepareOptions

_SHOWN = 3

NAMES = {
    "jsonl": "JSONL",
    "parquet": "Parquet",
    "arrow": "Arrow, as Hugging Face datasets saves it",
    "llava": "LLaVA JSON with its images",
    "folder": "a folder of files",
}


def prepare_other(source: Source, options: PrepareOptions) -> None:
    """Make the index of a source, deal its files to parts and describe its samples as asked, and say what was found.

    Raises:
        click.UsageError: an option does not go with this kind.
    """
    if options.media_filter is not None and (source.kind != "folder" or options.as_json):
        raise click.UsageError("Media metadata are kept for shards and for folders of files: use prepare-media there.")
    if not options.as_json:
        click.echo(f"Preparing {NAMES[source.kind]}...")
    try:
        made = _made(source, options)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    prepared = prepare_source(source)
    written = [*made, *prepared.written]
    if options.as_json:
        found = {"ok": True, "kind": source.kind, "root": source.path, "samples": prepared.samples}
        click.echo(json.dumps({**found, "written": written}))
        return
    if not prepared.written:
        click.echo("It needs no index.")
    for path in written[:_SHOWN]:
        click.echo(f"Wrote {path}")
    if len(written) > _SHOWN:
        click.echo(f"and {len(written) - _SHOWN:,} more.")
    if options.media_filter is not None:
        index_media(source.root, options.media_filter, options.num_workers, options.tmp_path, shown=options.progress)
    click.echo(f"Done. Found {prepared.samples} samples.")  # Energon's words


def _made(source: Source, options: PrepareOptions) -> list[str]:
    """The split file and the description that were asked for; where there is no place for them, this is told."""
    splits = options.split_ratio is not None or bool(options.split_parts)
    describes = options.sample_type is not None and not options.skip_dataset_yaml
    if not source.has_sidecar or source.kind in ("folder", "llava"):
        if splits:
            click.echo(f"Note: {NAMES[source.kind]} has no split file; the split options are left out.", err=True)
        splits = False
    if not source.has_sidecar and describes:
        click.echo("Note: a single file has no .nv-meta; the description of samples is left out.", err=True)
        describes = False
    made = []
    if splits:
        ratio = options.split_ratio
        plan = plan_splits(source.root, split_ratio=ratio, split_parts=options.split_parts, split_config=SPLIT_YAML)
        split_source(source, plan)
        made.append(str(meta_path(source.root, SPLIT_YAML)))
    if describes:
        name = options.dataset_yaml_name
        made.append(str(describe_source(source, str(options.sample_type), options.fields(), name=name)))
    return made


def describe_other(facts: Mapping[str, Any]) -> str:
    """Facts of a source as Markdown."""
    names = facts.get("columns") or facts.get("parts_of_first_sample") or []
    lines = [
        f"* {facts['name']}: `{facts['path']}` ({facts['samples']:,} samples)",
        f"  * Kind: {NAMES[facts['kind']]}",
        f"  * Sample type: `{facts['sample_type']}`",
        f"  * {'Columns' if 'columns' in facts else 'Parts of the first sample'}: {', '.join(names) or 'none'}",
    ]
    if facts["images"]:
        lines.append(f"  * Images: `{facts['images']}`")
    if not facts["indexed"]:
        shown = redacted(str(facts["path"]))
        lines.append(f"  * No index: it is made at each start; `omniloom prepare {shown}` keeps it")
    if list(facts["split_parts"]) == [ALL]:
        return "\n".join([*lines, "  * No splits: every part is all of it"])
    lines.append("  * Splits:")
    for part, numbers in facts["split_parts"].items():
        files = f" in {numbers['files']:,} files" if numbers["files"] else ""
        lines.append(f"    * `{part}`: {numbers['samples']:,} samples{files}")
    return "\n".join(lines)
