"""Walks every sample of a data set and says what is wrong with it: shard, key, part, byte range, reason."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.dataset import dataset_config
from omniloom.data.index.dataset_yaml import describe_samples
from omniloom.data.index.duplicates import KeyedShard, find_duplicates
from omniloom.data.index.field_map import FieldOption
from omniloom.data.index.info import read_info
from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML, meta_path, parts_path
from omniloom.data.index.lint_parts import ERROR, WARNING
from omniloom.data.index.lint_shard import Finding, LintedShard, LintRequest, lint_shard
from omniloom.data.index.omniloom_json import ShardMark, read_omniloom_info
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.place import normal_root, place_of
from omniloom.data.index.shard_share import ALL_SHARDS, ShardRange
from omniloom.data.index.splits import Splits, read_splits
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.shards.parts_table import read_keys
from omniloom.errors import DatasetError
from omniloom.storage.files import replace_file

FINDINGS_KEPT = 10_000
DEFAULT_DECODER = SampleDecoder()


class _Settings(NamedTuple):
    """What holds for every shard: the decoder, whether images are decoded, where the keys are left, and threads."""

    decoder: SampleDecoder
    decode: bool
    folder: str
    threads: int


@dataclass(slots=True, kw_only=True)
class LintReport:
    """What is wrong with a data set.

    Attributes:
        shards: shards that were walked.
        samples: samples that were walked.
        bad_samples: those with an error.
        skipped_parts: split parts without shards.
        findings: the first ten thousand findings.
        counts: all findings, by level and reason.
        quarantine: what has to be left out for a run without errors: ``<shard>/<key>``, or a whole shard.
    """

    shards: int = 0
    samples: int = 0
    bad_samples: int = 0
    skipped_parts: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    quarantine: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(count for (level, _), count in self.counts.items() if level == ERROR)

    def add(self, finding: Finding) -> None:
        """Count a finding of the data set as a whole and keep it."""
        self.counts[finding.level, finding.reason] += 1
        self.findings.append(finding)

    def merge(self, linted: LintedShard) -> None:
        """Take the findings of a shard in."""
        self.shards += 1
        self.samples += linted.samples
        self.bad_samples += linted.bad_samples
        self.counts.update(linted.counts)
        self.quarantine += [linted.shard] if linted.unusable else [f"{linted.shard}/{key}" for key in linted.bad_keys]
        self.findings += linted.findings[: max(0, FINDINGS_KEPT - len(self.findings))]


def lint_dataset(
    root: str | os.PathLike[str],
    *,
    split_parts: Sequence[str] | None = None,
    split_config: str = SPLIT_YAML,
    config_name: str = DATASET_YAML,
    decoder: SampleDecoder = DEFAULT_DECODER,
    decode: bool = True,
    num_workers: int = 1,
    executor: Executor | None = None,
    share: ShardRange = ALL_SHARDS,
    on_shard: Callable[[LintedShard, int], None] | None = None,
    on_samples: Callable[[int, int, int], None] | None = None,
) -> LintReport:
    """Check a prepared data set: its archives, its index, and every sample of the given split parts.

    Args:
        root: folder of the data set.
        split_parts: parts to walk; ``None`` walks all. Empty ones are skipped and listed.
        split_config: name of the split file.
        config_name: name of the description of the samples.
        decoder: the decoder of the run: what it refuses is an error.
        decode: whether images are decoded whole; otherwise only their headers are read.
        num_workers: processes at most; where there are fewer shards, each process decodes with several threads.
        executor: does the work there instead; its workers have to see the shards, and nothing else of this machine.
        share: which of the shards, for machines that do not talk to each other.
        on_shard: called with what was found in each shard, and the number of shards.
        on_samples: called within a shard with its samples that were checked, all of the shard, and the number of
            shards; where the work is done in this process.

    Raises:
        DatasetError: the data set cannot be opened at all.
        WorkerError: a process was killed.
    """
    root = normal_root(root)
    report = LintReport()
    splits = read_splits(root, split_config=split_config)
    names = _shards_of(splits, split_parts, report)[share.number :: share.shares]
    fields = _fields(root, config_name, report)
    with tempfile.TemporaryDirectory(prefix="omniloom-lint-") as folder:
        # Arrays instead of tensors, and all at once: the same content, without torch.
        threads = 1 if executor is not None else max(1, num_workers // max(1, len(names)))
        settings = _Settings(dataclasses.replace(decoder, lazy=False, late=True), decode, folder, threads)
        requests = _requests(root, names, splits, fields, settings=settings, report=report)
        linted = []
        work = lint_shard
        if on_samples is not None and executor is None and min(num_workers, len(requests)) <= 1:
            work = functools.partial(lint_shard, on_samples=lambda done, of: on_samples(done, of, len(requests)))
        sent = requests if executor is None else [request._replace(new_table="") for request in requests]
        for number, each in enumerate(in_order(work, sent, executor=executor, num_workers=num_workers)):
            report.merge(each)
            if each.keys_table:
                replace_file(requests[number].new_table, each.keys_table)
            if each.key_range is not None:
                read = functools.partial(read_keys, requests[number].new_table)
                linted.append(KeyedShard(number, each.samples, each.key_range, read))
            if on_shard is not None:
                on_shard(each, len(requests))
        _compare_keys(linted, requests, Path(folder), report)
    return report


def _shards_of(splits: Splits, split_parts: Sequence[str] | None, report: LintReport) -> list[str]:
    """Shards of the parts, each once; an excluded shard is not walked."""
    names: dict[str, None] = {}
    for part in split_parts if split_parts is not None else splits.parts:
        if part not in splits.parts:
            if split_parts is not None and part not in ("train", "val", "test"):
                splits.shards_of(part)
            report.skipped_parts.append(part)
            continue
        shards = [name for name in splits.parts[part] if name not in splits.exclude]
        if not shards:
            report.skipped_parts.append(part)
        names |= dict.fromkeys(shards)
    if not names:
        raise DatasetError(f"{splits.path}: there is nothing to check: every split part is empty.")
    return list(names)


def _fields(root: str, config_name: str, report: LintReport) -> dict[str, tuple[FieldOption, ...]] | None:
    if not meta_path(root, config_name).is_file():
        message = f"there is no {config_name}, so fields cannot be checked. Make it: `omniloom prepare`."
        report.add(Finding(WARNING, "no-dataset-yaml", "", "", "", None, None, message))
        return None
    description = describe_samples(dataset_config(root, name=config_name), where=config_name)
    if description.sample_loader is not None:
        message = f"fields are made by {description.sample_loader}, which is code and is not run here"
        report.add(Finding(WARNING, "sample-loader", "", "", "", None, None, message))
    return description.fields


def _requests(
    root: str,
    names: Sequence[str],
    splits: Splits,
    fields: Mapping[str, tuple[FieldOption, ...]] | None,
    *,
    settings: _Settings,
    report: LintReport,
) -> list[LintRequest]:
    info = read_info(root)
    place = place_of(root)
    known = read_omniloom_info(root)
    excluded = splits.excluded_keys(info.shard_counts)
    requests = []
    for name in names:
        if name not in info.shard_counts:
            message = f"{splits.path} lists a shard that .info.json does not. Run `omniloom prepare` again."
            report.add(Finding(ERROR, "unknown-shard", name, "", "", None, None, message))
            continue
        mark: ShardMark | None = known.shards.get(name) if known else None
        requests.append(
            LintRequest(
                shard=name,
                path=place.shard(name),
                samples=info.shard_counts[name],
                rule=known.key_rule if known else "first-dot",
                mark=mark,
                table=place.parts_table(name),
                index_file=place.index_of(name, info.shard_counts[name]),
                fields=fields,
                excluded_keys=excluded.get(name, frozenset()),
                decoder=settings.decoder,
                decode=settings.decode,
                new_table=parts_path(settings.folder, name),
                threads=settings.threads,
            )
        )
    return requests


def _compare_keys(
    linted: Sequence[KeyedShard], requests: Sequence[LintRequest], folder: Path, report: LintReport
) -> None:
    duplicates = find_duplicates(linted, work_folder=folder)
    if not duplicates.repeated:
        return
    report.counts[WARNING, "duplicate-key"] += duplicates.repeated
    for key, places in duplicates.examples:
        told = " and ".join(f"{requests[number].shard} (row {row:,})" for number, row in places[:3])
        message = f"the key is in {told}; a look-up by key alone is ambiguous"
        shard = requests[places[0][0]].shard
        report.findings.append(Finding(WARNING, "duplicate-key", shard, key, "", None, None, message))
