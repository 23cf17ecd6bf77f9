"""Sources that are not shards, prepared, described and checked: what the commands of those names do with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.convert.llava_rows import find_llava_entries
from omniloom.data.index.dataset import dataset_config
from omniloom.data.index.dataset_yaml import dataset_config_of
from omniloom.data.index.file_splits import files_of_part, source_files, split_parts
from omniloom.data.index.folder_rows import part_folders, write_folder_index
from omniloom.data.index.layout import (
    DATASET_YAML,
    FOLDER_INDEX,
    SPLIT_YAML,
    meta_name,
    meta_path,
    remove_sidecar_file,
    write_sidecar_file,
)
from omniloom.data.index.lint import FINDINGS_KEPT, LintReport
from omniloom.data.index.lint_parts import ERROR
from omniloom.data.index.lint_shard import Finding
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.sample_types import CRUDE_TYPE
from omniloom.data.index.source_kind import Source
from omniloom.data.index.split_plan import SplitPlan
from omniloom.data.index.splits import encode_splits
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.data.leaf import Leaf
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.pipeline.faults import reason_of
from omniloom.data.pipeline.rows_in_order import rows_fetched_ahead
from omniloom.data.sample import SampleKey
from omniloom.data.shards.line_index import find_lines, has_line_index, line_index_path, write_line_index
from omniloom.data.shards.rows import FileRows
from omniloom.data.source import LeafOpener
from omniloom.errors import ConfigError, SkipSample, StoreAwayError

LINT_CHUNK_ROWS = 256
ALL = "all"
"""Stands for the one part of a source that has no split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSource:
    """What a preparation found and wrote.

    Attributes:
        source: what it is.
        samples: its samples, of all parts.
        written: files that were written; none where a source needs no index.
    """

    source: Source
    samples: int
    written: tuple[str, ...]


def prepare_source(source: Source) -> PreparedSource:
    """Make the index of a source: ``.idx`` files beside JSONL (Energon's) and LLaVA JSON, a list of a folder's files.

    Tables have indexes of their own; they are only opened, which finds damaged ones.

    Raises:
        DatasetError: it is damaged, or has no samples.
        StorageError: a file cannot be written.
    """
    if source.kind == "folder":
        samples = write_folder_index(source.root)
        return PreparedSource(source=source, samples=samples, written=(meta_name(source.root, FOLDER_INDEX),))
    if source.kind == "llava":
        offsets = find_llava_entries(source.path)
        write_line_index(source.path, offsets)
        return PreparedSource(source=source, samples=len(offsets) - 1, written=(line_index_path(source.path),))
    if source.kind != "jsonl":
        opened = [open_leaf(source, part) for part in parts_of(source)]
        return PreparedSource(source=source, samples=sum(len(leaf.rows) for leaf in opened), written=())
    paths: dict[str, None] = {}
    for part in parts_of(source):
        files = files_of_part(source, split_part=part, split_config=SPLIT_YAML)
        paths |= dict.fromkeys(file.path for file in files)
    samples = 0
    for path in paths:
        offsets = find_lines(path)
        write_line_index(path, offsets)
        samples += len(offsets) - 1
    return PreparedSource(source=source, samples=samples, written=tuple(map(line_index_path, paths)))


def split_source(source: Source, plan: SplitPlan) -> dict[str, list[str]]:
    """Deal the files of a folder to parts, as shards are dealt, and write the split file; gives the files by part.

    Raises:
        ConfigError: the source has no files to deal.
        DatasetError: a part that was asked for would be empty.
        StorageError: the folder cannot be written to.
    """
    if not source.has_sidecar or source.kind in ("folder", "llava"):
        raise ConfigError(f"{source.path}: only a folder of JSONL, Parquet or Arrow files has files to deal to parts.")
    parts = plan.deal(source_files(source))
    text = encode_splits(parts, name=SPLIT_YAML, exclude=plan.excluded())
    write_sidecar_file(source.root, SPLIT_YAML, text)
    return parts


def describe_source(source: Source, sample_type: str, field_map: Mapping[str, str] | None, *, name: str) -> str:
    """Write what samples of a folder are made of its columns or parts; gives the file.

    What the file declares of the source itself stays.

    Raises:
        ConfigError: there is no such type or column, or a single file, which has no place for it.
        StorageError: the folder cannot be written to.
    """
    path = meta_path(source.root, name)
    if not source.has_sidecar:
        raise ConfigError(f"{source.path}: a single file has no .nv-meta to describe its samples in; use its folder.")
    if field_map is None and sample_type != CRUDE_TYPE:
        raise ConfigError(f"{source.path}: samples of type {sample_type} need a field map.")
    config = dataset_config_of(sample_type, field_map)
    former = dataset_config(source.root, name=name) if path.is_file() else {}
    kept = {key: former[key] for key in ("source", "subflavors") if key in former}
    before = path.read_text("utf-8") if path.is_file() else None
    written = write_sidecar_file(source.root, name, dump_yaml({**config, **kept}))
    try:
        open_leaf(source, parts_of(source)[0], config_name=name)
    except ConfigError:  # no such column
        if before is not None:
            write_sidecar_file(source.root, name, before)
        else:
            remove_sidecar_file(source.root, name)
        raise
    return written


def parts_of(source: Source, *, split_config: str = SPLIT_YAML) -> list[str]:
    """The parts of a source's split; `ALL` where it has none. Raises as `split_parts`."""
    if source.kind == "folder":
        return list(part_folders(source.root)) or [ALL]
    return split_parts(source, split_config=split_config) or [ALL]


def open_leaf(
    source: Source,
    part: str,
    *,
    split_config: str = SPLIT_YAML,
    config_name: str = DATASET_YAML,
    decoder: SampleDecoder | None = None,
) -> Leaf:
    """The rows of one part of a source, and what makes samples of them. Raises as `LeafOpener.open`."""
    opener = LeafOpener(decoder, part, split_config, config_name, None)
    return opener.open(source.root if source.has_sidecar else source.path, Path(source.path).name)


def source_facts(source: Source, *, split_config: str = SPLIT_YAML, config_name: str = DATASET_YAML) -> dict[str, Any]:
    """What a source holds, as ``omniloom info --json`` prints it.

    Raises:
        DatasetError: it cannot be opened.
        ConfigError: its description or its split file is malformed.
    """
    parts = {}
    for part in parts_of(source, split_config=split_config):
        leaf = open_leaf(source, part, split_config=split_config, config_name=config_name)
        files = getattr(leaf.rows, "files", ())
        parts[part] = {"samples": len(leaf.rows), "files": len(files) or None}
        columns = getattr(leaf.rows, "kinds", None)
        found = sorted(columns) if columns is not None else sorted(leaf.rows.parts_of_first_row())
        sample_type = getattr(getattr(leaf.cook_row, "sample_type", None), "__name__", "CrudeWebdataset")
    return {
        "name": Path(source.path).name,
        "path": source.path,
        "kind": source.kind,
        "samples": sum(part["samples"] for part in parts.values()),
        "sample_type": sample_type,
        "columns" if columns is not None else "parts_of_first_sample": found,
        "images": source.images if source.kind == "llava" else None,
        "indexed": source.kind in ("parquet", "arrow") or bool(_indexes(source)),
        "split_parts": parts,
    }


def lint_source(
    source: Source,
    *,
    asked_parts: Sequence[str] | None = None,
    split_config: str = SPLIT_YAML,
    config_name: str = DATASET_YAML,
    decoder: SampleDecoder | None = None,
    decode: bool = True,
    num_workers: int = 1,
    on_rows: Callable[[int, int, int], None] | None = None,
) -> LintReport:
    """Read every sample of a source as a run would, and report those that it would leave out.

    Args:
        source: the source.
        asked_parts: parts of the split; ``None``: all.
        split_config: name of the split file.
        config_name: name of the description of the samples.
        decoder: the decoder of the run.
        decode: whether images are decoded.
        num_workers: processes at most.
        on_rows: called now and then with samples that were read, bad ones, and all there are.

    Raises:
        DatasetError: it cannot be opened at all.
    """
    used = dataclasses.replace(decoder or SampleDecoder(), lazy=False, late=True)
    if not decode:
        used = dataclasses.replace(used, image_decode="raw")
    known = parts_of(source, split_config=split_config)
    names = [name for name in asked_parts or known if name in known] if known != [ALL] else known
    report = LintReport(skipped_parts=[name for name in asked_parts or () if name not in names and known != [ALL]])
    leaves = [open_leaf(source, n, split_config=split_config, config_name=config_name, decoder=used) for n in names]
    total = sum(len(leaf.rows) for leaf in leaves)
    report.shards = sum(len(getattr(leaf.rows, "files", "1")) for leaf in leaves)
    chunks = [
        LintChunk(leaf.name, leaf, start, min(start + LINT_CHUNK_ROWS, len(leaf.rows)))
        for leaf in leaves
        for start in range(0, len(leaf.rows), LINT_CHUNK_ROWS)
    ]
    for found in in_order(lint_rows, chunks, executor=None, num_workers=num_workers):
        report.samples += found.samples
        report.bad_samples += found.bad_samples
        report.counts.update(found.counts)
        report.quarantine += found.quarantine
        report.findings += found.findings[: max(0, FINDINGS_KEPT - len(report.findings))]
        if on_rows is not None:
            on_rows(report.samples, report.bad_samples, total)
    return report


class LintChunk(NamedTuple):
    """Some rows to check: name of the source, the leaf, first row and the row after the last."""

    shard: str
    leaf: Leaf
    start: int
    stop: int


def lint_rows(chunk: LintChunk) -> LintReport:
    """Check some rows. What is wrong with them is found; only StoreAwayError is raised, which says nothing of them."""
    report = LintReport()
    for row in rows_fetched_ahead(chunk.leaf, range(chunk.start, chunk.stop)):
        _lint_row(chunk.leaf, row, report)
    return report


def _lint_row(leaf: Leaf, row: int, report: LintReport) -> None:
    name = ""
    try:
        raw = leaf.read(row)
        name = raw.name
        leaf.cook(raw, SampleKey(0, 0, row))
    except SkipSample:
        return
    except StoreAwayError:
        raise
    except Exception as error:
        origin = leaf.origin(row)
        start, stop = origin.byte_range or (None, None)
        shard = origin.shard or ""
        report.counts[ERROR, reason_of(error)] += 1
        report.bad_samples += 1
        report.quarantine.append(_exclude_entry(leaf, row, shard, name))
        place = (shard, name or str(row), "", start, stop)
        report.findings.append(Finding(ERROR, reason_of(error), *place, str(error)))
    report.samples += 1


def _exclude_entry(leaf: Leaf, row: int, shard: str, name: str) -> str:
    """What leaves a row out in a split file: rows of files by their number there."""
    if isinstance(leaf.rows, FileRows):
        return f"{shard}/{leaf.rows.find(row)[1]}"
    return f"{shard}/{name or row}"


def _indexes(source: Source) -> list[str]:
    """Indexes of a source that are there."""
    if source.kind == "folder":
        known = meta_path(source.root, FOLDER_INDEX).is_file()
        return [meta_name(source.root, FOLDER_INDEX)] if known else []
    paths = [source.path]
    if source.kind == "jsonl":
        parts = parts_of(source)
        files = [files_of_part(source, split_part=part, split_config=SPLIT_YAML) for part in parts]
        paths = [file.path for part in files for file in part]
    found = [line_index_path(path) for path in paths if has_line_index(path)]
    return found if len(found) == len(paths) else []
