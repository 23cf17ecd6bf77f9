"""``omniloom prepare-media``: index sizes and lengths of images, video and audio."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import click

from omniloom.data.index.executors import open_executor
from omniloom.data.index.media_extract import MediaFault
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_looking import MediaProgress
from omniloom.data.index.media_prepare import DEFAULT_WORKERS, MediaPrepared, add_media_metadata
from omniloom.data.index.media_shares import look_at_share
from omniloom.data.index.shard_share import ShardRange, parse_shard_range
from omniloom.errors import ConfigError, OmniloomError
from omniloom.tools.place_type import PLACE
from omniloom.tools.prepare_options import MEDIA_OPTIONS
from omniloom.tools.progress_bar import progress_bar

EXIT_ERROR = 1
_FAULTS_SHOWN = 5


def _with_media_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(MEDIA_OPTIONS):
        function = option(function)
    return function


@click.command(
    name="prepare-media",
    epilog=(
        "\b\nExamples, the second as an array of jobs with a last one that puts all together:\n"
        "  omniloom prepare-media shards --media-metadata-by-extension\n"
        "  omniloom prepare-media s3://bucket/set --media-metadata-by-extension --shard-range $SLURM_ARRAY_TASK_ID/16\n"
        "  omniloom prepare-media s3://bucket/set --media-metadata-by-extension"
    ),
)
@click.argument("path", type=PLACE)
@click.option("--progress/--no-progress", default=True, help="Show how far it is.")
@click.option(
    "--num-workers", default=DEFAULT_WORKERS, show_default=True, type=click.IntRange(0), help="Processes at most."
)
@_with_media_options
@click.option("--executor", metavar="URL", help="Look elsewhere: dask://host:port, ray://, mpi://, processes://8.")
@click.option(
    "--shard-range",
    metavar="I/N",
    help="Look at each N-th shard or file from the I-th on; without it, put all together.",
)
@click.option("--tmp-path", type=click.Path(path_type=Path), help="Build index.sqlite in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    *,
    path: str,
    progress: bool,
    num_workers: int,
    executor: str | None,
    media_metadata_by_glob: str | None,
    media_metadata_by_header: bool,
    media_metadata_by_extension: bool,
    shard_range: str | None,
    tmp_path: Path | None,
    as_json: bool,
) -> None:
    """Index sizes and lengths of images, video, audio.

    They are those of a prepared data set, or of a folder of files. Packers and buckets read them without opening the
    media. Run it again after an interruption or when shards were added: what is unchanged is not looked at again.
    """
    try:
        media_filter = MediaFilterConfig.parse(
            media_metadata_by_glob, media_metadata_by_header, media_metadata_by_extension
        )
        share = None if shard_range is None else parse_shard_range(shard_range)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if share is not None:
        with open_executor(executor) as workers:
            _look_at_share(path, share, media_filter, num_workers, executor=workers, as_json=as_json)
        return
    if not as_json:
        with open_executor(executor) as workers:
            index_media(path, media_filter, num_workers, tmp_path, shown=progress, executor=workers)
        return
    try:
        with open_executor(executor) as workers:
            found = find_media(path, media_filter, num_workers, tmp_path, executor=workers)
    except OmniloomError as error:
        click.echo(json.dumps({"ok": False, "error": type(error).__name__, "message": str(error)}))
        raise SystemExit(EXIT_ERROR) from error
    click.echo(json.dumps({"ok": True, "root": found.root, **media_summary(found)}))


def _look_at_share(
    dataset: str,
    share: ShardRange,
    media_filter: MediaFilterConfig,
    num_workers: int,
    *,
    executor: Executor | None,
    as_json: bool,
) -> None:
    """Look at a share of the media and say what was found."""
    found = look_at_share(dataset, share=share, media_filter=media_filter, num_workers=num_workers, executor=executor)
    if as_json:
        faults = [fault._asdict() for fault in found.faults]
        click.echo(json.dumps({"ok": True, "media_found": found.rows, "looked_at": found.total, "faults": faults}))
        return
    click.echo(f"Found {found.rows:,} media in {found.total:,} shards or files of the share.")
    _tell_faults(found.faults)
    click.echo("Once all shares are done, run the same command without --shard-range.")


def find_media(
    dataset: str,
    media_filter: MediaFilterConfig,
    num_workers: int,
    tmp_path: Path | None,
    progress: Callable[[MediaProgress], None] | None = None,
    *,
    executor: Executor | None = None,
) -> MediaPrepared:
    """Index the media of a data set without a word. Raises as `add_media_metadata` does."""
    return add_media_metadata(
        dataset,
        media_filter=media_filter,
        num_workers=num_workers,
        executor=executor,
        tmp_path=tmp_path,
        progress=progress,
    )


def index_media(
    dataset: str,
    media_filter: MediaFilterConfig,
    num_workers: int,
    tmp_path: Path | None,
    *,
    shown: bool,
    executor: Executor | None = None,
) -> None:
    """Index the media of a data set, show how far it is, and tell what was found."""
    begin = time.monotonic()
    with progress_bar("Looking at media", shown=shown) as display:

        def show(progress: MediaProgress) -> None:
            rate = progress.rows / max(time.monotonic() - begin, 0.001)
            bad = f", {progress.faults:,} bad" if progress.faults else ""
            told = f"{progress.sources:,}/{progress.sources_total:,}{bad}, {rate:,.0f} media/s"
            display.show(progress.sources / max(progress.sources_total, 1), told)

        found = find_media(dataset, media_filter, num_workers, tmp_path, show, executor=executor)
    units = "shards" if found.kind == "webdataset" else "files"
    kept = f" {found.unchanged:,} {units} are unchanged since an earlier run." if found.unchanged else ""
    click.echo(f"Found {found.rows:,} media in {found.looked_at:,} {units}.{kept}")
    _tell_faults(found.faults)
    click.echo(f"Done. Metadata of {found.rows_total:,} media are in index.sqlite.")


def _tell_faults(faults: Sequence[MediaFault]) -> None:
    if not faults:
        return
    reasons = Counter(fault.reason for fault in faults).most_common()
    counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    click.echo(f"Warning: nothing could be found out of {len(faults):,} media: {counts}.", err=True)
    for fault in faults[:_FAULTS_SHOWN]:
        click.echo(f"- [{fault.reason}] {fault.message}", err=True)


def media_summary(found: MediaPrepared) -> dict[str, Any]:
    """What was found, for a machine."""
    return {
        "kind": found.kind,
        "media_found": found.rows,
        "media_indexed": found.rows_total,
        "looked_at": found.looked_at,
        "unchanged": found.unchanged,
        "faults": [fault._asdict() for fault in found.faults],
    }
