"""``omniloom lint``: read every sample and report the bad ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from omniloom.data.index.executors import open_executor
from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.lint import LintReport, lint_dataset
from omniloom.data.index.lint_names import explain_name
from omniloom.data.index.lint_parts import ERROR
from omniloom.data.index.lint_quarantine import exclude_entries, exclude_from_split, write_quarantine
from omniloom.data.index.lint_shard import Finding, LintedShard
from omniloom.data.index.shard_share import ALL_SHARDS, parse_shard_range
from omniloom.data.index.source_kind import other_source
from omniloom.data.media.decoder import IMAGE_SPECS, SampleDecoder
from omniloom.data.media.image_options import MAX_PIXELS, ImageOptions
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.source_tools import lint_source
from omniloom.errors import ConfigError, OmniloomError
from omniloom.storage.urls import redacted
from omniloom.tools.place_type import PLACE
from omniloom.tools.progress_bar import Display, progress_bar

EXIT_BAD = 1


@click.command(
    epilog=(
        "\b\nExamples:\n  omniloom lint shards\n  omniloom lint shards --split-parts val --parallel 8 --json\n"
        "  omniloom lint shards --quarantine bad.yaml\n  omniloom lint --explain v1.0/0001.seg.png"
    )
)
@click.argument("dataset", type=PLACE, required=False)
@click.option("--split-parts", metavar="A,B", help="Parts to read, separated by commas; all of them by default.")
@click.option("--dataset-config", default=DATASET_YAML, show_default=True, help="Description of the samples.")
@click.option("--split-config", default=SPLIT_YAML, show_default=True, help="Split file in .nv-meta.")
@click.option("--parallel", default=0, type=click.IntRange(0), help="Processes at most.  [default: one per core]")
@click.option("--executor", metavar="URL", help="Check elsewhere: dask://host:port, ray://, mpi://, processes://8.")
@click.option("--shard-range", metavar="I/N", help="Check each N-th shard from the I-th on, for an array of jobs.")
@click.option("--decode/--no-decode", default=True, help="Decode images whole, or only look at their headers.")
@click.option(
    "--image-decode",
    default="uint8",
    type=click.Choice(list(IMAGE_SPECS)),
    metavar="SPEC",
    show_default=True,
    help="How the run will decode images.",
)
@click.option("--max-pixels", default=MAX_PIXELS, type=click.IntRange(1), show_default=True, help="Largest image.")
@click.option(
    "--min-fraction",
    default=1.0,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="Least part of an image that is cut short.",
)
@click.option("--max-findings", default=1_000, show_default=True, type=click.IntRange(0), help="How many to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.option("--quarantine", type=click.Path(path_type=Path), metavar="FILE", help="Write bad samples as YAML here.")
@click.option("--exclude-bad", is_flag=True, help="Add bad samples to 'exclude' of the split file.")
@click.option("--explain", metavar="NAME", help="Show how a member's name becomes key and part, and stop.")
def command(
    dataset: str | None,
    *,
    split_parts: str | None,
    dataset_config: str,
    split_config: str,
    parallel: int,
    executor: str | None,
    shard_range: str | None,
    decode: bool,
    image_decode: str,
    max_pixels: int,
    min_fraction: float,
    max_findings: int,
    as_json: bool,
    quarantine: Path | None,
    exclude_bad: bool,
    explain: str | None,
) -> None:
    """Read every sample and report the bad ones.

    Checks the archives, that the index still fits them, that fields can be filled, and that every part can be decoded
    as a run with the same options decodes it. Exits with 1 when a sample is bad.
    """
    images = ImageOptions(max_pixels=max_pixels, min_fraction=min_fraction)
    decoder = SampleDecoder(image_decode=image_decode, images=images)
    if explain is not None:
        _explain(explain, decoder, as_json=as_json)
        return
    if dataset is None:
        raise click.UsageError("Missing argument 'DATASET'. Give the folder of a prepared data set.")
    if shard_range is not None and exclude_bad:
        raise click.UsageError("--exclude-bad of several jobs would overwrite one another: give each a --quarantine.")
    share = ALL_SHARDS if shard_range is None else parse_shard_range(shard_range)
    try:
        parts = [part.strip() for part in split_parts.split(",")] if split_parts else None
        if is_metadataset(dataset):
            raise ConfigError(f"{redacted(dataset)}: is a mix. Check the data sets that `omniloom info` lists of it.")
        source = other_source(dataset, config_name=dataset_config)
        with progress_bar("Checking", shown=not as_json) as display:
            how: dict[str, Any] = {
                "split_config": split_config,
                "config_name": dataset_config,
                "decode": decode,
                "num_workers": parallel or os.cpu_count() or 1,
            }
            if source is not None:
                report = lint_source(source, asked_parts=parts, decoder=decoder, on_rows=_Rows(display).show, **how)
            else:
                how |= {"split_parts": parts, "decoder": decoder, "share": share, "on_shard": _Meter(display).show}
                with open_executor(executor) as workers:
                    report = lint_dataset(dataset, executor=workers, **how)
        _set_aside(report, dataset, quarantine, split_config if exclude_bad else None, quiet=as_json)
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


def _explain(name: str, decoder: SampleDecoder, *, as_json: bool) -> None:
    readings = explain_name(name, decoder=decoder)
    if as_json:
        click.echo(json.dumps([reading._asdict() for reading in readings]))
        return
    for reading in readings:
        if reading.key is None:
            click.echo(f"{reading.rule}: belongs to no sample: {reading.ignored}")
        else:
            click.echo(f"{reading.rule}: key {reading.key!r}, part {reading.part!r}: {reading.becomes}")


def _set_aside(
    report: LintReport, dataset: str, quarantine: Path | None, split_config: str | None, *, quiet: bool
) -> None:
    """Write what is bad where it was asked for."""
    if quarantine is not None:
        write_quarantine(quarantine, report.quarantine)
        if not quiet:
            click.echo(f"{quarantine}: {len(report.quarantine):,} entries for 'exclude'")
    if split_config is not None:
        path, new = exclude_from_split(dataset, report.quarantine, split_config=split_config)
        if not quiet:
            click.echo(f"{path}: {new:,} new entries in 'exclude'")


class _Rows:
    """Shows how far a source of another kind is read."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def show(self, samples: int, bad: int, total: int) -> None:
        self._display.show(samples / max(total, 1), f"{samples:,}/{total:,} samples, {bad:,} bad")


class _Meter:
    """Counts what is done for the display."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._done = self._samples = self._bad = 0

    def show_samples(self, samples: int, of_samples: int, total: int) -> None:
        told = f"{self._done:,}/{total:,} shards, {self._samples + samples:,} samples"
        self._display.show((self._done + samples / of_samples) / total, told)

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
        "quarantine": exclude_entries(report.quarantine),
        "findings": [finding._asdict() for finding in report.findings[:max_findings]],
    }
