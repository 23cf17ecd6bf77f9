"""What ``prepare``, ``info`` and ``lint`` print of sources that are not shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from omniloom.data.index.source_kind import Source
from omniloom.data.source_tools import ALL, prepare_source

NAMES = {
    "jsonl": "JSONL",
    "parquet": "Parquet",
    "arrow": "Arrow, as Hugging Face datasets saves it",
    "llava": "LLaVA JSON with its images",
    "folder": "a folder of files",
}


def prepare_other(source: Source, *, as_json: bool) -> None:
    """Make the index of a source and say what was found."""
    if not as_json:
        click.echo(f"Preparing {NAMES[source.kind]}...")
    prepared = prepare_source(source)
    if as_json:
        found = {"ok": True, "kind": source.kind, "root": source.path, "samples": prepared.samples}
        click.echo(json.dumps({**found, "written": list(prepared.written)}))
        return
    if not prepared.written:
        click.echo("It needs no index.")
    for path in prepared.written[:3]:
        click.echo(f"Wrote {path}")
    if len(prepared.written) > 3:
        click.echo(f"and {len(prepared.written) - 3:,} more.")
    click.echo(f"Done. Found {prepared.samples} samples.")  # Energon's words


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
        lines.append(f"  * No index: it is made at each start; `omniloom prepare {Path(facts['path'])}` keeps it")
    if list(facts["split_parts"]) == [ALL]:
        return "\n".join([*lines, "  * No splits: every part is all of it"])
    lines.append("  * Splits:")
    for part, numbers in facts["split_parts"].items():
        files = f" in {numbers['files']:,} files" if numbers["files"] else ""
        lines.append(f"    * `{part}`: {numbers['samples']:,} samples{files}")
    return "\n".join(lines)
