"""``omniloom lint``: read every sample and report the bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import click

from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.lint import LintReport, lint_dataset
from omniloom.data.index.lint_parts import ERROR
from omniloom.data.index.lint_shard import Finding, LintedShard
from omniloom.errors import OmniloomError
from omniloom.tools.progress_bar import Display, progress_bar

EXIT_BAD = 1


@click.command(
    epilog=("\b\nExample:\n  omniloom lint shards\n  omniloom lint shards --split-parts val --parallel 8 --json")
)
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--split-parts", metavar="A,B", help="Parts to read, separated by commas; all of them by default.")
@click.option("--dataset-config", default=DATASET_YAML, show_default=True, help="Description of the samples.")
@click.option("--split-config", default=SPLIT_YAML, show_default=True, help="Split file in .nv-meta.")
@click.option("--parallel", default=1, show_default=True, type=click.IntRange(0), help="Processes at most.")
@click.option("--decode/--no-decode", default=True, help="Decode images whole, or only look at their headers.")
@click.option("--max-findings", default=1_000, show_default=True, type=click.IntRange(0), help="How many to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(
    dataset: Path,
    *,
    split_parts: str | None,
    dataset_config: str,
    split_config: str,
    parallel: int,
    decode: bool,
    max_findings: int,
    as_json: bool,
) -> None:
    """Read every sample and report the bad ones.

    Checks the archives, that the index still fits them, that fields can be filled, and that JSON, texts and images
    can be decoded. Exits with 1 when a sample is bad.
    """
    try:
        with progress_bar("Checking", shown=not as_json) as display:
            report = lint_dataset(
                dataset,
                split_parts=[part.strip() for part in split_parts.split(",")] if split_parts else None,
                split_config=split_config,
                config_name=dataset_config,
                decode=decode,
                num_workers=parallel,
                on_shard=_Meter(display).show,
            )
    except OmniloomError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"ok": False, "error": type(error).__name__, "message": str(error)}))
        raise SystemExit(EXIT_BAD) from error
    if as_json:
        click.echo(json.dumps(_plain(report, max_findings)))
    else:
        _print(report, max_findings)
    if report.errors:
        raise SystemExit(EXIT_BAD)


class _Meter:
    """Counts what is done for the display."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._done = self._samples = self._bad = 0

    def show(self, linted: LintedShard, total: int) -> None:
        self._done += 1
        self._samples += linted.samples
        self._bad += linted.bad_samples
        bad = f", {self._bad:,} bad" if self._bad else ""
        told = f"{self._done:,}/{total:,} shards, {self._samples:,} samples{bad}"
        self._display.show(self._done / total, told)


def _print(report: LintReport, max_findings: int) -> None:
    for finding in report.findings[:max_findings]:
        click.echo(_line(finding))
    hidden = sum(report.counts.values()) - min(len(report.findings), max_findings)
    if hidden > 0:
        click.echo(f"... {hidden:,} more are counted below.")
    for part in report.skipped_parts:
        click.echo(f"Skipped the empty split part {part}.")
    for (level, reason), count in sorted(report.counts.items()):
        click.echo(f"{count:,} x {level}: {reason}")
    verdict = "bad" if report.errors else "no faults found"
    click.echo(
        f"{report.samples:,} samples in {report.shards:,} shards: {verdict}"
        + (f", {report.bad_samples:,} bad samples, {report.errors:,} errors" if report.errors else "")
    )


def _line(finding: Finding) -> str:
    where = finding.shard or "data set"
    if finding.key:
        where += f" {finding.key}" + (f".{finding.part}" if finding.part else "")
    if finding.start is not None:
        where += (
            f" [bytes {finding.start:,}-{finding.stop:,}]" if finding.stop is not None else f" [byte {finding.start:,}]"
        )
    return f"{finding.level.upper()} {where} {finding.reason}: {finding.message}"


def _plain(report: LintReport, max_findings: int) -> dict[str, object]:
    return {
        "ok": not report.errors,
        "samples": report.samples,
        "shards": report.shards,
        "bad_samples": report.bad_samples,
        "errors": {reason: count for (level, reason), count in sorted(report.counts.items()) if level == ERROR},
        "warnings": {reason: count for (level, reason), count in sorted(report.counts.items()) if level != ERROR},
        "skipped_parts": report.skipped_parts,
        "findings": [finding._asdict() for finding in report.findings[:max_findings]],
    }
