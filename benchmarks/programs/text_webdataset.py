"""Text records through webdataset: shuffled and batched in the workers, as its documentation advises."""

from pathlib import Path

import webdataset
from meter import arguments, report, throughput

options = arguments("data", "workers", "batch_size", "shuffle", "run_length", "warm_up_batches", "window_seconds")
shards = sorted(str(path) for path in Path(options.data).glob("*.tar"))
dataset = (
    webdataset.WebDataset(shards, shardshuffle=len(shards), nodesplitter=webdataset.split_by_node, empty_check=False)
    .shuffle(options.shuffle)
    .map(lambda sample: {**sample, "txt": sample["txt"].decode()})  # faster than .decode(), which tries every kind
    .to_tuple("__key__", "txt")
    .batched(options.batch_size)
    .repeat()
)
batches = iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=options.workers))
report(
    **throughput(
        batches,
        size=lambda batch: len(batch[1]),
        warm_up_batches=options.warm_up_batches,
        window_seconds=options.window_seconds,
    )
)
