"""Builds the sidecar of a data set from scans, and puts it in place in one go.

Everything is made in a work folder. Until the last step the data set is as it was; in the last step files are only
renamed, ``.info.json`` at the end.
"""

from __future__ import annotations

import errno
import functools
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from omniloom._version import __version__
from omniloom.data.index.database import DatabaseWriter
from omniloom.data.index.duplicates import DuplicateKeys, KeyedShard, find_duplicates
from omniloom.data.index.info import encode_info, encode_info_yaml, read_info
from omniloom.data.index.layout import (
    COMMIT_MARK,
    DATABASE,
    INFO_JSON,
    INFO_YAML,
    OMNILOOM_JSON,
    PARTS_FOLDER,
    PARTS_SUFFIX,
    SPLIT_YAML,
    UUID_FILE,
    meta_path,
    parts_path,
)
from omniloom.data.index.media_tables import has_media_tables
from omniloom.data.index.obstacles import energon_obstacles
from omniloom.data.index.omniloom_json import OmniloomInfo, ShardMark, encode_omniloom_info
from omniloom.data.index.scanning import ScanDone, ScanRequest, ShardFault, leave_scan
from omniloom.data.index.split_plan import SplitPlan
from omniloom.data.index.splits import encode_splits
from omniloom.data.index.work_folder import INDEX_FOLDER, move_file, open_work_folder
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.parts_table import ScanSummary, read_keys, read_parts_table
from omniloom.data.shards.scan import DuplicatePolicy, ShardScan
from omniloom.data.shards.tar_index import tar_index_path
from omniloom.errors import DatasetError
from omniloom.storage.files import remove_file, replace_file, storage_error

DuplicateKeyPolicy = Literal["allow", "error"]
MAX_PART_NAMES = 1_000
_NAMES_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a preparation found and wrote.

    Attributes:
        root: folder of the data set.
        shard_counts: samples by shard, as in ``.info.json``.
        split_parts: shards of each split part.
        facts: as in ``omniloom.json``.
        duplicate_keys: keys that several shards have.
        faults: shards that were left out because they cannot be used.
        reused: shards whose earlier scan still held.
    """

    root: str
    shard_counts: dict[str, int]
    split_parts: dict[str, list[str]]
    facts: OmniloomInfo
    duplicate_keys: DuplicateKeys
    faults: tuple[ShardFault, ...]
    reused: int

    @property
    def samples(self) -> int:
        """Samples of all shards together."""
        return sum(self.shard_counts.values())


@dataclass(slots=True)
class _Totals:
    """Sums over the shards so far."""

    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    parts: dict[str, int] = field(default_factory=dict)
    dotted_names: list[str] = field(default_factory=list)
    without_end_marker: list[str] = field(default_factory=list)

    def add(self, shard: str, summary: ScanSummary) -> None:
        fields = summary.fields
        summed = ("junk_members", "interleaved", "hard_links", "dropped_duplicates", "dotted_keys", "empty_members")
        self.counts.update({name: fields[name] for name in summed})
        self.counts["global_names"] += bool(fields["global_names"])
        self.ignored.update(fields["ignored"])
        for name, count in summary.part_counts.items():
            if name in self.parts or len(self.parts) < MAX_PART_NAMES:
                self.parts[name] = self.parts.get(name, 0) + count
        self.dotted_names += fields["dotted_names"][: 2 - len(self.dotted_names)]
        if not fields["has_end_marker"] and len(self.without_end_marker) < _NAMES_KEPT:
            self.without_end_marker.append(shard)


class SidecarBuilder:
    """Collects scans shard by shard, in order, and then commits them. Holds a few hundred bytes a shard.

    Args:
        root: folder of the data set.
        work: its open work folder.
        rule: how names are split into key and part.
        on_duplicate: what becomes of two parts of one name in a sample.
        sqlite: whether to make the key database.
        database_path: where to build it; ``None`` is the work folder.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        work: Path,
        rule: KeyRule = "first-dot",
        on_duplicate: DuplicatePolicy = "error",
        sqlite: bool = True,
        database_path: Path | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.rule = rule
        self.on_duplicate: DuplicatePolicy = on_duplicate
        self._work = work
        former = meta_path(root, DATABASE)
        if not sqlite and has_media_tables(former):
            raise DatasetError(
                f"{former}: holds media metadata, which would be lost without a key database. Prepare with one (leave "
                "out --no-sqlite), or remove the file first."
            )
        self._database = DatabaseWriter(database_path or work / DATABASE, former=former) if sqlite else None
        self._done: list[ScanDone] = []
        self._empty: list[str] = []
        self._faults: list[ShardFault] = []
        self._totals = _Totals()

    def request(self, shard: str) -> ScanRequest:
        """How a shard of this data set is to be scanned."""
        new_table = parts_path(self._work / PARTS_FOLDER, shard)
        return ScanRequest(
            shard=shard,
            path=f"{self.root}/{shard}",
            rule=self.rule,
            on_duplicate=self.on_duplicate,
            new_table=new_table,
            old_tables=(new_table, parts_path(meta_path(self.root, PARTS_FOLDER), shard)),
            new_index=f"{self._work}/{INDEX_FOLDER}/{shard}.idx",
        )

    def add(self, done: ScanDone, scan: ShardScan | None = None) -> None:
        """Take a finished shard in. A shard without samples is listed as empty and left out.

        Raises:
            StorageError: the database cannot be written.
        """
        if not done.summary.samples:
            self._empty.append(done.shard)
            return
        if self._database is not None:
            self._database.append(len(self._done), scan or read_parts_table(done.table))
        self._done.append(done)
        self._totals.add(done.shard, done.summary)

    def leave_out(self, fault: ShardFault) -> None:
        """Remember a shard that cannot be used."""
        self._faults.append(fault)

    def discard(self) -> None:
        """Give up; finished scans stay on disk."""
        if self._database is not None:
            self._database.discard()

    def commit(
        self,
        plan: SplitPlan | None,
        *,
        split_config: str = SPLIT_YAML,
        duplicate_keys: DuplicateKeyPolicy = "allow",
    ) -> Prepared:
        """Finish every file and put them all in place.

        Args:
            plan: how shards are dealt to parts; ``None`` leaves ``.info.json`` and the split file as they are.
            split_config: name of the split file.
            duplicate_keys: whether a key in several shards is an error.

        Raises:
            DatasetError: there is not one sample, a split part is empty, a key is there twice and must not be, or
                (without a plan) a shard has another number of samples than ``.info.json`` says.
            StorageError: the disk is full.
        """
        shard_counts = {done.shard: done.summary.samples for done in self._done}
        if not shard_counts:
            listed = f"; shards without samples: {', '.join(self._empty[:5])}" if self._empty else ""
            raise DatasetError(
                f"{self.root}: there is not one sample{listed}. A sample is made of files such as 0001.jpg and "
                "0001.txt in a tar archive."
            )
        if plan is None:
            self._check_counts(shard_counts)
        parts = plan.deal(list(shard_counts)) if plan else {}
        duplicates = self._find_duplicates()
        if duplicates.repeated and duplicate_keys == "error":
            raise DatasetError(duplicate_message(self.root, duplicates, list(shard_counts)))
        facts = self._facts(duplicates)
        texts = {UUID_FILE: facts.index_uuid, OMNILOOM_JSON: encode_omniloom_info(facts)}
        if plan is not None:
            texts[split_config] = encode_splits(parts, name=split_config, exclude=plan.excluded())
            texts[INFO_JSON] = encode_info(shard_counts)
            if meta_path(self.root, INFO_YAML).is_file():
                texts[INFO_YAML] = encode_info_yaml(shard_counts)
        elif not meta_path(self.root, INFO_JSON).is_file():
            texts[INFO_JSON] = encode_info(shard_counts)
        self._put_in_place(texts)
        return Prepared(
            root=self.root,
            shard_counts=shard_counts,
            split_parts=parts,
            facts=facts,
            duplicate_keys=duplicates,
            faults=tuple(self._faults),
            reused=sum(done.reused for done in self._done),
        )

    def _find_duplicates(self) -> DuplicateKeys:
        if self._database is not None:
            return self._database.finish()
        keyed = [
            KeyedShard(number, done.summary.samples, done.summary.key_range, functools.partial(read_keys, done.table))
            for number, done in enumerate(self._done)
        ]
        try:
            return find_duplicates(keyed, work_folder=self._work)
        except OSError as error:
            raise storage_error("write", self._work, error) from error

    def _check_counts(self, shard_counts: Mapping[str, int]) -> None:
        for shard, expected in read_info(self.root).shard_counts.items():
            found = shard_counts.get(shard, 0)
            if found != expected:
                raise DatasetError(
                    f"{self.root}/{shard}: holds {found:,} samples, but .info.json says {expected:,}. An index alone "
                    f"would not fit; run `omniloom prepare {self.root}` without --tar-index-only."
                )

    def _facts(self, duplicates: DuplicateKeys) -> OmniloomInfo:
        totals = self._totals
        obstacles = energon_obstacles(totals.counts, rule=self.rule, repeated_keys=duplicates.repeated)
        return OmniloomInfo(
            index_uuid=str(uuid.uuid4()),
            omniloom_version=__version__,
            key_rule=self.rule,
            readable_by_energon=not obstacles,
            energon_obstacles=obstacles,
            key_database=self._database is not None,
            samples=sum(done.summary.samples for done in self._done),
            repeated_keys=duplicates.repeated,
            part_counts=totals.parts,
            ignored=dict(totals.ignored),
            interleaved=totals.counts["interleaved"],
            hard_links=totals.counts["hard_links"],
            dropped_duplicates=totals.counts["dropped_duplicates"],
            dotted_keys=totals.counts["dotted_keys"],
            dotted_names=totals.dotted_names,
            empty_members=totals.counts["empty_members"],
            without_end_marker=totals.without_end_marker,
            empty_shards=self._empty,
            bad_shards={fault.shard: fault.reason for fault in self._faults},
            shards={
                done.shard: ShardMark(
                    done.summary.fields["size_bytes"], done.summary.fields["fingerprint"], done.summary.irregular
                )
                for done in self._done
            },
        )

    def _put_in_place(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            replace_file(self._work / name, text)
        self._check_folders()
        mode = (Path(self.root, self._done[0].shard).stat().st_mode & 0o777) | 0o600
        replace_file(self._work / COMMIT_MARK, "")
        self._place_shard_files(mode)
        if self._database is not None:
            move_file(self._database.path, meta_path(self.root, DATABASE), mode=mode)
        else:
            remove_file(meta_path(self.root, DATABASE))
        for name in sorted(texts, key=(INFO_JSON,).__contains__):
            move_file(self._work / name, meta_path(self.root, name), mode=mode)
        remove_file(self._work / COMMIT_MARK)

    def _check_folders(self) -> None:
        """See that the indexes can be put next to their shards, before anything is changed."""
        folders = {os.path.dirname(f"{self.root}/{done.shard}") for done in self._done if done.index_waits}  # noqa: PTH120
        for folder in sorted(folders):
            if not os.access(folder, os.W_OK):
                denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
                raise storage_error("write an index into", folder, denied)

    def _place_shard_files(self, mode: int) -> None:
        tables = meta_path(self.root, PARTS_FOLDER)
        kept = set()
        for done in self._done:
            request = self.request(done.shard)
            target = parts_path(tables, done.shard)
            kept.add(target)
            if done.table != target:
                move_file(done.table, target, mode=mode)
            if done.index_waits:
                own_mode = (Path(request.path).stat().st_mode & 0o777) | 0o600
                move_file(request.new_index, tar_index_path(request.path), mode=own_mode)
        for folder, _, names in os.walk(tables):
            for name in names:
                path = f"{folder}/{name}"
                if name.endswith(PARTS_SUFFIX) and path not in kept:
                    remove_file(path)


def write_sidecar(
    root: str | os.PathLike[str],
    scans: Iterable[ShardScan],
    *,
    plan: SplitPlan | None = None,
    split_config: str = SPLIT_YAML,
    rule: KeyRule = "first-dot",
    on_duplicate: DuplicatePolicy = "error",
    sqlite: bool = True,
    duplicate_keys: DuplicateKeyPolicy = "allow",
) -> Prepared:
    """Write the sidecar of shards that have just been made, from scans that are at hand.

    Args:
        root: folder of the data set; the shards lie in it under their names.
        scans: one per shard, in the order of the samples; taken one by one.
        plan: how shards are dealt to parts; ``None`` puts all into ``train``.
        split_config: name of the split file.
        rule: the rule of the scans.
        on_duplicate: the duplicate policy of the scans.
        sqlite: whether to make the key database.
        duplicate_keys: whether a key in several shards is an error.

    Raises:
        DatasetError: there is not one sample, or a split part is empty.
        StorageError: the disk is full. Nothing is half written.
    """
    with open_work_folder(root) as work:
        builder = SidecarBuilder(root, work=work, rule=rule, on_duplicate=on_duplicate, sqlite=sqlite)
        try:
            for scan in scans:
                request = builder.request(scan.shard)
                mtime_ns = Path(request.path).stat().st_mtime_ns
                builder.add(leave_scan(request, scan, mtime_ns=mtime_ns), scan)
            return builder.commit(plan or SplitPlan(), split_config=split_config, duplicate_keys=duplicate_keys)
        except BaseException:
            builder.discard()
            raise


def duplicate_message(root: str, duplicates: DuplicateKeys, shards: list[str]) -> str:
    """What is told of keys that several shards have."""
    first = duplicates.examples[0]
    places = " and ".join(f"{shards[number]} (row {row:,})" for number, row in first.places[:3])
    return (
        f"{root}: {duplicates.repeated:,} samples have a key that an earlier sample has; {first.key!r} is in {places}. "
        f"Make the keys unique: `omniloom prepare --fix-duplicates {root}` puts each shard's name before them."
    )
