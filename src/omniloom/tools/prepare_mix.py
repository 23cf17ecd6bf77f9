"""What ``omniloom prepare`` does with a metadataset."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from omniloom.data.mix_preparation import prepare_metadataset


def prepare_mix(path: Path, *, as_json: bool) -> None:
    """Index the joins of a metadataset and say what was found."""
    joins = prepare_metadataset(path)
    if as_json:
        click.echo(json.dumps({"ok": True, "kind": "metadataset", "joins": [asdict(join) for join in joins]}))
        return
    for join in joins:
        click.echo(f"{join.split_part}: joined {join.rows:,} rows; {join.path}")
    click.echo("Done" if joins else "Done. It has no joins, so there is nothing to prepare.")
