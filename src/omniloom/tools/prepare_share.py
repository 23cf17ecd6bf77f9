"""``omniloom prepare --shard-range`` and ``omniloom merge``: preparing by machines that do not talk to each other."""

from __future__ import annotations

import json

import click

from omniloom.data.convert.shares import merge_shares, shares_of
from omniloom.data.index.shard_range import scan_shard_range
from omniloom.data.index.shard_share import parse_shard_range
from omniloom.tools.place_type import PLACE
from omniloom.tools.prepare import command as prepare_command
from omniloom.tools.prepare import opened_executor
from omniloom.tools.prepare_options import PrepareOptions, prepare_options

_FAULTS_SHOWN = 20


def prepare_share(dataset: str, options: PrepareOptions) -> None:
    """Scan a share of the shards and say what was found."""
    with opened_executor(options.executor) as executor:
        found = scan_shard_range(
            dataset,
            share=parse_shard_range(options.shard_range or ""),
            shards=options.shards or None,
            exclude=options.exclude,
            num_workers=options.num_workers,
            executor=executor,
            rule=options.key_rule,
            on_duplicate=options.on_duplicate,
            skip_bad_shards=options.skip_bad_shards,
            meta_path=options.meta_dir,
        )
    if options.as_json:
        faults = [fault._asdict() for fault in found.faults]
        click.echo(json.dumps({"ok": True, **found._asdict(), "faults": faults}))
        return
    reused = f", {found.reused:,} of them scanned before" if found.reused else ""
    click.echo(f"Scanned {found.shards:,} of {found.shards_total:,} shards{reused}: {found.samples:,} samples.")
    for fault in found.faults[:_FAULTS_SHOWN]:
        click.echo(f"Warning: [{fault.reason}] {fault.message}", err=True)
    click.echo("Once all shares are done, run `omniloom merge` with the same options.")


@click.command(
    name="merge",
    epilog=(
        "\b\nExample, as an array of Slurm with 16 tasks and one that waits for it:\n"
        "  omniloom prepare s3://bucket/set --shard-range $SLURM_ARRAY_TASK_ID/16\n"
        "  omniloom merge s3://bucket/set --split-ratio 98,1,1 --sample-type CrudeWebdataset"
    ),
)
@click.argument("dataset", type=PLACE)
@prepare_options
@click.pass_context
def command(context: click.Context, dataset: str, options: PrepareOptions) -> None:
    """Put shares of a preparation or conversion together.

    Shards whose share was lost are scanned now; then it goes on as `omniloom prepare` does, with its options. Of a
    conversion all shares have to be there.
    """
    if options.shard_range is not None:
        raise click.UsageError("merge puts all shares together: leave --shard-range out.")
    if shares_of(dataset):
        _merge_conversion(dataset, options)
        return
    if prepare_command.callback is not None:
        context.invoke(prepare_command.callback, dataset, **options.given())


def _merge_conversion(dataset: str, options: PrepareOptions) -> None:
    with opened_executor(options.executor) as executor:
        merged = merge_shares(dataset, executor=executor, split_ratio=options.split_ratio, sqlite=not options.no_sqlite)
    if options.as_json:
        click.echo(json.dumps(merged.to_json()))
        return
    click.echo(f"{merged.counts.samples:,} samples in {merged.shards:,} shards: {dataset} is {merged.dataset_type}.")
