"""The table of Energon's tests in docs/energon.md, and what of each is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

BEGIN, END = "<!-- energon-suite: begin -->", "<!-- energon-suite: end -->"

_ORDER = (
    "all but the last line passes: that writes down the order in which training gives samples. Here rows are shuffled "
    "within a shard even without a buffer; `shuffle_over_epochs_multiplier=None` reads them in order"
)
_SHARES = "reads `workers_slice_offsets` of wrapper objects, the fixed share of a worker. Here each epoch is dealt anew"
_PARTIAL = (
    "Energon ends each worker with a partial batch, so that the number of batches of an evaluation, and a mean over "
    "them, hangs on `num_workers`"
)
_NUMBERS = (
    "writes down sample indices and random numbers that count what a worker made before; here both follow from the "
    "sample's key, so that any number of workers and ranks augments it alike. `current_batch_index` counts as there"
)
_CLASSES = "makes objects of classes within Energon's `prepare`"

INTERNALS: dict[str, str] = {
    "test_av_decoder.TestVideoProbe.test_video_probe_keyframe_data": "",
    "test_av_decoder.TestVideoProbe.test_video_probe_search_timestamps": "",
    "test_crudedataset.TestDataset.test_aux_random_access_with_cache_and_postencode": _ORDER,
    "test_crudedataset.TestDataset.test_media_metadata_webdataset": _ORDER,
    "test_crudedataset.TestDataset.test_prepare_dataset_s3_cmdline": _ORDER,
    "test_dataset.TestDataset.test_dataset_len": f"{_PARTIAL}: 8 with 4 workers, 5 with none; here it is 5 with any",
    "test_dataset.TestDataset.test_multirank_dataset": f"{_PARTIAL}: 4 of a rank with 2 workers; here it is 3 or 2",
    "test_dataset.TestDataset.test_current_batch_index": _NUMBERS,
    "test_dataset.TestDataset.test_current_batch_index_generator": _NUMBERS,
    "test_jsonl_dataset.TestJsonlDataset.test_metadataset_multirank": (
        "ranks get 19, 19 and 17 of 55 samples there; here shares differ by one at most, 18, 18 and 19"
    ),
    "test_metadataset.TestDataset.test_worker_sample_balance": _SHARES,
    "test_metadataset.TestDataset.test_save_restore_state_train": (
        "all places are saved and restored; its end compares the tree of `config()`, with `pin_memory` (true here only "
        "where it is asked for) and `slice_offsets`, the rows that a worker owns for ever"
    ),
    "test_metadataset_fewsamp.TestDataset.test_metadataset_few_samples_save_restore": _SHARES,
    "test_metadataset_fewsamp.TestDataset.test_too_few_samples": (
        "each of 100 ranks has its own one or two of 117 samples for ever; here each epoch is dealt anew to all"
    ),
    "test_metadataset_v2.TestDataset.test_metadataset_fixed_fractional_epochs": (
        "0.7 and 1.5 times 55 samples on 2 ranks: 60 a rank here. The test says 58, and a comment that it should be 60"
    ),
    "test_metadataset_v2.TestDataset.test_watchdog_dataset": (
        "replaces a private method of `WatchdogDataset`; the watchdog itself belongs to the loader here, with the same "
        "arguments and warning"
    ),
    "test_weakref.TestWeakref.test_weakcallbacks": "",
    "test_weakref.TestWeakref.test_fork_weakref": "",
    "test_webdataset_prepare.TestSqliteIndexWriterBatching."
    "test_append_samples_batch_reports_duplicate_sample_key": _CLASSES,
    "test_webdataset_prepare.TestSqliteIndexWriterBatching.test_aggregator_pool_batches_worker_output": _CLASSES,
}
"""Tests of how Energon is built, or of its literal order: what they pin that is another here."""

DIFFERS: dict[str, str] = {}
"""Tests of behaviour that is another one here on purpose: which, and why."""


def write(page: Path, results: Mapping[str, tuple[str, str]]) -> None:
    """Put the table between the marks of the page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page}: the marks {BEGIN} and {END} are missing")
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def table(results: Mapping[str, tuple[str, str]]) -> str:
    """Counts, and one table a file: each test, its kind, its state, the reason."""
    behaviour = [name for name in results if name not in INTERNALS]
    passed = sum(state == "passes" for state, _ in results.values())
    behaving = sum(results[name][0] == "passes" for name in behaviour)
    lines = [
        f"**{passed} of {len(results)} tests pass**: {behaving} of the {len(behaviour)} of behaviour, and "
        f"{passed - behaving} of the {len(results) - len(behaviour)} of internals."
    ]
    for file, names in groupby(results, lambda name: name.partition(".")[0]):
        lines += ["", f"**{file}**", "", "| test | kind | state | reason |", "|---|---|---|---|"]
        lines += [row(name, *results[name]) for name in names]
    return "\n".join(lines)


def row(name: str, state: str, why: str) -> str:
    """The row of a test."""
    kind = "internals" if name in INTERNALS else "behaviour"
    reason = "" if state == "passes" else INTERNALS.get(name) or DIFFERS.get(name) or why
    return f"| {name.rpartition('.')[2]} | {kind} | {state} | {reason} |".replace("  |", " |")
