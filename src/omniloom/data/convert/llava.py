"""``convert_llava``: from LLaVA-style JSON and images to a prepared data set; see `llava_conversion` for the rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniloom.data.convert.dataset_yaml import check_description, converted_config, described
from omniloom.data.convert.entry_source import EntrySource, JsonEntries
from omniloom.data.convert.findings import Counts, Findings
from omniloom.data.convert.images import open_images
from omniloom.data.convert.journal import Journal
from omniloom.data.convert.llava_conversion import REPORT_NAME, LlavaConversion, LlavaOptions, Progress
from omniloom.data.convert.restart import check_output_folder, drop_stale_shards
from omniloom.data.convert.shard_series import shard_name
from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import DATASET_YAML, meta_path
from omniloom.data.index.sidecar import write_sidecar
from omniloom.data.index.split_plan import plan_splits
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.data.shards.scan import ShardScan
from omniloom.errors import ConfigError, DatasetError, StorageError
from omniloom.storage.files import replace_file

_PART_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaSummary:
    """What a conversion gave.

    Attributes:
        out: the folder of the data set.
        shards: number of shards.
        counts: everything counted.
        dataset_type: ``VQASample``, ``CrudeWebdataset`` or what was asked for.
        report: the file that lists all findings.
        kept_shards: shards that an earlier run had finished.
    """

    out: Path | str
    shards: int
    counts: Counts
    dataset_type: str
    report: Path | str
    kept_shards: int

    @property
    def left_out(self) -> int:
        """Entries that gave no sample."""
        return sum(self.counts.left_out.values())

    def to_json(self) -> dict[str, Any]:
        """The summary as ``--json`` prints it."""
        return {
            "out": str(self.out),
            "shards": self.shards,
            "kept_shards": self.kept_shards,
            "dataset_type": self.dataset_type,
            "report": str(self.report),
            **self.counts.to_json(),
        }


def convert_llava(
    json_path: Path | EntrySource,
    *,
    images: Path | str | None = None,
    out: Path,
    options: LlavaOptions | None = None,
    split_ratio: str = "1,0,0",
    sample_type: str | None = None,
    field_map: Mapping[str, str] | None = None,
    sqlite: bool = True,
    overwrite: bool = False,
    threads: int = 4,
    on_progress: Callable[[Progress], None] | None = None,
) -> LlavaSummary:
    """Convert a LLaVA-style JSON or JSONL file and its images to shards with their sidecar, ready to be loaded.

    Run again after it was stopped, it goes on where it was; run again when it had finished, it does nothing, unless
    images that were missing have come.

    Args:
        json_path: a JSON list of entries, or one entry a line; or the entries of another kind of data set.
        images: folder (a path or URL) or zip archive that the image names are relative to; ``None``: the JSON's folder.
        out: folder of the data set to make.
        options: what decides the bytes of the shards.
        split_ratio: shares of train, val and test, by whole shards.
        sample_type: for ``dataset.yaml``; ``None`` chooses between VQASample and crude, see `converted_config`.
        field_map: for ``dataset.yaml``; needed for sample types other than VQASample.
        sqlite: whether to make the key database (training does not need it).
        overwrite: throw away what an earlier conversion left in ``out``.
        threads: how many images are read at a time; 0 reads them one by one.
        on_progress: called now and then with a `Progress`.

    Raises:
        ConfigError: an argument is unusable, or ``out`` holds something else.
        DatasetError: the JSON is unusable, or not one entry could be converted.
        StorageError: the output cannot be written.
    """
    options = options or LlavaOptions()
    _check(options=options, sample_type=sample_type, field_map=field_map)
    entries = JsonEntries(json_path) if isinstance(json_path, Path) else json_path
    source = open_images(entries.path.parent if images is None else images, follow_links=options.follow_links)
    plan = plan_splits(out, split_ratio=split_ratio, split_config="split.yaml")
    report = out / REPORT_NAME
    try:
        check_output_folder(out, overwrite=overwrite, report_name=REPORT_NAME)
    except OSError as error:
        raise StorageError(f"{out}: cannot be written: {error.strerror or error}. Choose another --out.") from error
    task = {"input": entries.fingerprint(), "images": source.fingerprint(), **options.to_json()}
    with Journal(out, task=task) as journal:
        drop_stale_shards(journal, out=out, report=report, images=source)
        kept_shards = len(journal.shards)
        last = journal.end or journal.last
        counts = Counts.from_json(last.counts)
        with Findings(report, size_bytes=last.report_bytes, counts=counts) as findings:
            conversion = LlavaConversion(
                entries,
                images=source,
                out=out,
                journal=journal,
                findings=findings,
                options=options,
                threads=threads,
                on_progress=on_progress,
            )
            if journal.end is None or not is_prepared(out):
                write_sidecar(out, _some(conversion, entries.path, counts, report), plan=plan, sqlite=sqlite)
        if sample_type is None and entries.description is not None:
            sample_type, field_map = described(entries.description, counts)
        config = converted_config(counts, sample_type=sample_type, field_map=field_map)
        replace_file(meta_path(out, DATASET_YAML), dump_yaml(config))
        shards = len(journal.shards)
    dataset_type = config["__class__"] if "__class__" in config else config["sample_type"]["__class__"]
    return LlavaSummary(
        out=out, shards=shards, counts=counts, dataset_type=dataset_type, report=report, kept_shards=kept_shards
    )


def _some(conversion: LlavaConversion, json_path: Path, counts: Counts, report: Path) -> Iterator[ShardScan]:
    """The scans of a conversion; an error when there is none, before anything is put in place."""
    empty = True
    for scan in conversion:
        empty = False
        yield scan
    if empty:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.left_out.most_common(3))
        raise DatasetError(
            f"{json_path}: not one of {counts.entries:,} entries could be converted: {reasons}. Every entry's reason "
            f"is in {report}. Check --images and the form of the JSON."
        )


def _check(*, options: LlavaOptions, sample_type: str | None, field_map: Mapping[str, str] | None) -> None:
    if options.max_count < 1 or options.max_size_bytes < 1:
        raise ConfigError(
            f"max_count={options.max_count}, max_size_bytes={options.max_size_bytes}: expected whole numbers from 1 on."
        )
    shard_name(options.pattern, 0)
    if options.image_part is not None and not _PART_NAME.fullmatch(options.image_part):
        raise ConfigError(f"image_part={options.image_part!r}: expected letters and digits, such as jpg.")
    if options.image_part == "json":
        raise ConfigError("image_part='json': that part holds the conversation. Choose another name, such as jpg.")
    check_description(sample_type, field_map)
