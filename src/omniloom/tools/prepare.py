"""``omniloom prepare``: index a folder of shards."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any

import click

from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import WORK_FOLDER, meta_path
from omniloom.data.index.prepare import Progress, prepare_dataset
from omniloom.data.index.sidecar import Prepared
from omniloom.data.index.source_kind import other_source
from omniloom.data.index.sources import find_sources
from omniloom.data.index.splits import SHUFFLE_SEED, parse_ratio, read_splits
from omniloom.data.mix.paths import is_metadataset
from omniloom.errors import BadShardsError, ConfigError, DatasetError, OmniloomError
from omniloom.storage.urls import is_url
from omniloom.tools.place_type import PLACE
from omniloom.tools.prepare_dialogue import describe_samples, tell_findings, write_description
from omniloom.tools.prepare_options import PrepareOptions, prepare_options
from omniloom.tools.progress_bar import Display, progress_bar

EXIT_ERROR = 1


@click.command(
    epilog=(
        "\b\nExample:\n"
        "  omniloom prepare shards\n"
        "  omniloom prepare shards --split-ratio 9,1,0 --sample-type VQASample \\\n"
        '    --field-map \'{"image": "jpg", "context": "json[0][value]", "answers": "json[1][value]"}\''
    )
)
@click.argument("dataset", type=PLACE)
@prepare_options
def command(dataset: str, options: PrepareOptions) -> None:
    """Index a folder of shards, so that it can be loaded.

    Also a JSONL file, a folder of such, a LLaVA JSON or a plain folder of files: they get indexes of their own kinds;
    and a metadataset (.yaml), whose joins are indexed.
    For shards it writes .nv-meta and one .tar.idx per shard, the files that Energon reads too, and asks for what is not
    given.
    Run it again after a failure or when shards were added: finished scans are not repeated.
    """
    try:
        options.check()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    # What shards do not need is imported where it is: starting is a quarter of the time that a small set takes, and
    # numpy's threads would keep the scanning processes from being forked.
    if is_metadataset(str(dataset)):
        from omniloom.tools.mixes import prepare_mix  # noqa: PLC0415

        prepare_mix(dataset, as_json=options.as_json)
        return
    source = None if options.shards else other_source(dataset)
    if source is not None:
        from omniloom.tools.other_sources import prepare_other  # noqa: PLC0415

        prepare_other(source, options)
        return
    if options.shard_range is not None:
        from omniloom.tools.prepare_share import prepare_share  # noqa: PLC0415

        prepare_share(dataset, options)
        return
    if options.as_json:
        _prepare_as_json(dataset, options)
        return
    if not _agreed(dataset, options):
        return
    if not options.tar_index_only and not options.shards:
        _announce(dataset, options)
    options = _with_ratio(options)
    _warn_of_lost_excludes(dataset, options)
    with progress_bar("Indexing", shown=options.progress) as display:
        prepared = _prepare(dataset, options, functools.partial(_show, display, time.monotonic()))
    tell_findings(prepared)
    if options.tar_index_only:
        return
    if options.media_filter is not None:
        from omniloom.tools.prepare_media import index_media  # noqa: PLC0415

        index_media(prepared.root, options.media_filter, options.num_workers, options.tmp_path, shown=options.progress)
    describe_samples(prepared, options)
    click.echo("Done")


def _agreed(dataset: str, options: PrepareOptions) -> bool:
    """Whether a set that is prepared may be prepared again."""
    if (
        options.tar_index_only
        or options.force_overwrite
        or options.keep_split
        or not is_prepared(options.meta_dir or dataset)
    ):
        return True
    if not options.may_ask:
        raise DatasetError(
            f"{dataset}: is prepared already. Use --force-overwrite to deal its shards anew, or --keep-split to add "
            "new ones."
        )
    return click.confirm("This data set is prepared already. Prepare it again and deal its shards anew?")


def _announce(dataset: str, options: PrepareOptions) -> None:
    names = find_sources(dataset, exclude=options.exclude).shards
    if names:
        click.echo(f"Found {len(names):,} shards, from the first to the last:")
        click.echo(f"- {names[0]}")
        click.echo(f"- {names[-1]}")
        if options.may_ask:
            click.echo("To leave some out, stop with Ctrl-C and give --exclude.")


def _with_ratio(options: PrepareOptions) -> PrepareOptions:
    if options.split_ratio is not None or not options.deals_by_ratio:
        return options
    if not options.may_ask:
        raise click.UsageError("--split-ratio is missing, such as 8,1,1; or give --split-parts or --keep-split.")
    text = click.prompt("Shares of train, val and test, such as 8,1,1 or 0.9,0.1,0", type=str)
    try:
        parse_ratio(text)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return dataclasses.replace(options, split_ratio=text)


def _warn_of_lost_excludes(dataset: str, options: PrepareOptions) -> None:
    if options.keep_split or options.tar_index_only or not is_prepared(options.meta_dir or dataset):
        return
    with contextlib.suppress(OmniloomError):  # a split file that cannot be read is about to be replaced
        excluded = read_splits(options.meta_dir or dataset).exclude
        if excluded:
            names = ", ".join(sorted(excluded)[:3])
            click.echo(
                f"Warning: the new split excludes nothing; the old one excludes {len(excluded):,} shards or samples "
                f"({names}). --keep-split keeps them.",
                err=True,
            )


def _prepare(dataset: str, options: PrepareOptions, report: Callable[[Progress], None] | None) -> Prepared:
    # sqlite sorts in files of its own; the data set's disk has room for them where /tmp may not.
    if options.tmp_path or not (options.meta_dir or is_url(dataset)):
        os.environ.setdefault("SQLITE_TMPDIR", str(options.tmp_path or meta_path(dataset, WORK_FOLDER)))
    if options.fix_duplicates:
        _fix_duplicates(dataset, options)
    try:
        with opened_executor(options.executor) as executor:
            return prepare_dataset(
                dataset,
                shards=options.shards or None,
                exclude=options.exclude,
                split_ratio=options.split_ratio,
                split_parts=options.split_parts,
                shuffle_seed=SHUFFLE_SEED if options.shuffle_tars else None,
                keep_split=options.keep_split,
                num_workers=options.num_workers,
                executor=executor,
                rule=options.key_rule,
                on_duplicate=options.on_duplicate,
                duplicate_keys=options.duplicate_keys,
                skip_bad_shards=options.skip_bad_shards,
                sqlite=not options.no_sqlite,
                tar_index_only=options.tar_index_only,
                tmp_path=options.tmp_path,
                meta_path=options.meta_dir,
                progress=report,
            )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def opened_executor(text: str | None) -> AbstractContextManager[Executor | None]:
    """Where shards are scanned; nothing of it is imported where that is this machine. Raises ConfigError."""
    if text is None:
        return contextlib.nullcontext()
    from omniloom.data.index.executors import open_executor  # noqa: PLC0415

    return open_executor(text)


def _show(display: Display, begin: float, progress: Progress) -> None:
    rate = progress.samples / max(time.monotonic() - begin, 0.001)
    bad = f", {progress.bad:,} bad" if progress.bad else ""
    told = f"{progress.shards:,}/{progress.shards_total:,} shards{bad}, {rate:,.0f} samples/s"
    if progress.phase == "write":
        told = f"{progress.samples:,} samples, writing the index"
    display.show(progress.size_bytes / max(progress.size_bytes_total, 1), told)


def _fix_duplicates(dataset: str, options: PrepareOptions) -> None:
    from omniloom.data.index.fix_duplicates import fix_duplicates  # noqa: PLC0415 - rewrites shards; rarely needed

    fixed = fix_duplicates(dataset, exclude=options.exclude, num_workers=options.num_workers, rule=options.key_rule)
    if not options.as_json:
        click.echo(f"Rewrote {len(fixed):,} shards." if fixed else "No duplicate keys found.")


def _prepare_as_json(dataset: str, options: PrepareOptions) -> None:
    try:
        _agreed(dataset, options)
        prepared = _prepare(dataset, _with_ratio(options), None)
        media = None
        if options.media_filter is not None:
            from omniloom.tools.prepare_media import find_media, media_summary  # noqa: PLC0415

            media = media_summary(
                find_media(prepared.root, options.media_filter, options.num_workers, options.tmp_path)
            )
        written = None if options.tar_index_only else write_description(prepared, options)
    except OmniloomError as error:
        click.echo(json.dumps({"ok": False, "error": type(error).__name__, "message": str(error), **_faults(error)}))
        raise SystemExit(EXIT_ERROR) from error
    facts = dataclasses.asdict(prepared.facts)
    facts.pop("shards")
    found = {
        "ok": True,
        "root": prepared.root,
        "samples": prepared.samples,
        "shards": len(prepared.shard_counts),
        "reused_scans": prepared.reused,
        "split_parts": {
            part: {"shards": len(names), "samples": sum(prepared.shard_counts[name] for name in names)}
            for part, names in prepared.split_parts.items()
        },
        "bad_shards": [fault._asdict() for fault in prepared.faults],
        "dataset_yaml": written,
        "facts": facts,
        "media": media,
        "transfer": None if prepared.transfer is None else {**prepared.transfer._asdict(), **prepared.ways},
    }
    click.echo(json.dumps(found))


def _faults(error: OmniloomError) -> dict[str, Any]:
    return {"bad_shards": [fault._asdict() for fault in error.faults]} if isinstance(error, BadShardsError) else {}
