"""What ``omniloom prepare`` and ``omniloom info`` do with a metadataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from omniloom.data.mix_preparation import prepare_metadataset


def prepare_mix(path: str, *, as_json: bool) -> None:
    """Index the joins of a metadataset and say what was found."""
    joins = prepare_metadataset(path)
    if as_json:
        click.echo(json.dumps({"ok": True, "kind": "metadataset", "joins": [asdict(join) for join in joins]}))
        return
    for join in joins:
        click.echo(f"{join.split_part}: joined {join.rows:,} rows; {join.path}")
    click.echo("Done" if joins else "Done. It has no joins, so there is nothing to prepare.")


def describe_mix(facts: Mapping[str, Any]) -> str:
    """Facts of a metadataset as Markdown: a table for each part of its split."""
    lines = [f"* `{facts['path']}`"]
    for part, found in facts["split_parts"].items():
        lines += ["", f"## {part} ({found['mode']})", "", *_table(found["mode"], found["leaves"])]
    return "\n".join(lines)


def _table(mode: str, leaves: list[dict[str, Any]]) -> list[str]:
    columns = ["data set", "rows", "share of draws", "repetitions", "rows of it", "joined with", "subflavors"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for leaf in leaves:
        cells = [
            f"{leaf['name']} (`{leaf['path']}`)",
            f"{leaf['rows']:,}",
            f"{leaf['share']:.2%}",
            f"{leaf['repetitions']:g}" if mode == "repetitions" else "",
            f"{leaf['split_part']} {leaf['subset'] or ''}".strip(),
            ", ".join(leaf["joined"]),
            ", ".join(f"{name}: {value}" for name, value in leaf["subflavors"].items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
