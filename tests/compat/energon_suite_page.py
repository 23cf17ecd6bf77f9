"""The table of Energon's tests in docs/energon.md, and what of each is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

BEGIN, END = "<!-- energon-suite: begin -->", "<!-- energon-suite: end -->"

_ORDER = "the training order itself is written down in the test; here it is another one"
_WORKERS = "the samples of each worker are written down in the test; here they are dealt in another way"

INTERNALS: dict[str, str] = {
    "test_av_decoder.TestVideoProbe.test_video_probe_keyframe_data": "",
    "test_av_decoder.TestVideoProbe.test_video_probe_search_timestamps": "",
    "test_crudedataset.TestDataset.test_aux_random_access_with_cache_and_postencode": _ORDER,
    "test_crudedataset.TestDataset.test_media_metadata_webdataset": _ORDER,
    "test_crudedataset.TestDataset.test_prepare_dataset_s3_cmdline": f"preparing and reading work; {_ORDER}",
    "test_dataset.TestDataset.test_dataset_len": (
        "Energon gives each worker its own partial last batch: 8 in all; here an evaluation has 5, one of them partial"
    ),
    "test_dataset.TestDataset.test_multirank_dataset": "the same: 3 batches of a rank; Energon has 4, two partial",
    "test_dataset.TestDataset.test_current_batch_index": (
        "random numbers, and indices that count what came before, are written down in the test"
    ),
    "test_dataset.TestDataset.test_current_batch_index_generator": "the same",
    "test_jsonl_dataset.TestJsonlDataset.test_metadataset_multirank": (
        "lengths 19, 19, 17 of the ranks; here they are dealt more evenly, 18 or 19"
    ),
    "test_metadataset.TestDataset.test_worker_sample_balance": f"workers_slice_offsets of wrapper objects: {_WORKERS}",
    "test_metadataset.TestDataset.test_save_restore_state_train": (
        "places are saved and restored; the tree of config() is written down, with Energon's class names"
    ),
    "test_metadataset_fewsamp.TestDataset.test_metadataset_few_samples_save_restore": _WORKERS,
    "test_metadataset_fewsamp.TestDataset.test_too_few_samples": f"{_WORKERS}, for 100 ranks",
    "test_metadataset_v2.TestDataset.test_metadataset_fixed_fractional_epochs": (
        "length 58 comes of rounding by worker; here it is 60, that of the whole job"
    ),
    "test_metadataset_v2.TestDataset.test_watchdog_dataset": "patches WatchdogDataset._watchdog_trigger",
    "test_weakref.TestWeakref.test_weakcallbacks": "",
    "test_weakref.TestWeakref.test_fork_weakref": "",
    "test_webdataset_prepare.TestSqliteIndexWriterBatching."
    "test_append_samples_batch_reports_duplicate_sample_key": "classes within Energon's prepare",
    "test_webdataset_prepare.TestSqliteIndexWriterBatching."
    "test_aggregator_pool_batches_worker_output": "classes within Energon's prepare",
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
