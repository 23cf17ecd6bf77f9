"""Builds the sidecar of a data set from scans, and puts it in place in one go.

Everything is made in a work folder. Until the last step the data set is as it was; in the last step files are only
renamed, ``.info.json`` at the end.
"""

from __future__ import annotations

import errno
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from omniloom.data.index.omniloom_json import OmniloomInfo, encode_omniloom_info
from omniloom.data.index.scanning import ScanDone, ScanRequest, ShardFault, leave_scan
from omniloom.data.index.sidecar_facts import Totals, duplicate_message, facts_of
from omniloom.data.index.split_plan import SplitPlan
from omniloom.data.index.splits import encode_splits
from omniloom.data.index.work_folder import INDEX_FOLDER, move_file, open_work_folder
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.parts_table import read_keys, read_parts_table
from omniloom.data.shards.scan import DuplicatePolicy, ShardScan
from omniloom.data.shards.tar_index import tar_index_path
from omniloom.errors import DatasetError
from omniloom.storage.files import remove_file, replace_file, storage_error
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.urls import is_url

if TYPE_CHECKING:
    from omniloom.data.shards.remote_archive import Transfer

DuplicateKeyPolicy = Literal["allow", "error"]


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
        transfer: what reading the shards cost, where they lie in a store.
        ways: how many shards were read by ``hops`` and how many as a ``stream``, where they lie in a store.
    """

    root: str
    shard_counts: dict[str, int]
    split_parts: dict[str, list[str]]
    facts: OmniloomInfo
    duplicate_keys: DuplicateKeys
    faults: tuple[ShardFault, ...]
    reused: int
    transfer: Transfer | None = None
    ways: Mapping[str, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples of all shards together."""
        return sum(self.shard_counts.values())


@dataclass(frozen=True)
class Elsewhere:
    """Shards that do not lie where their sidecar is made.

    Attributes:
        name: how their data set is known.
        shard_path: path or URL of a shard.
        old_tables: parts tables that a store may have of a shard.
        in_store: whether they lie in a store.
    """

    name: str
    shard_path: Callable[[str], str]
    old_tables: Callable[[str], tuple[StoredFile, ...]]
    in_store: bool


class SidecarBuilder:
    """Collects scans shard by shard, in order, and then commits them. Holds a few hundred bytes a shard.

    Args:
        root: folder in which the sidecar is made: that of the data set, as a rule.
        work: its open work folder.
        rule: how names are split into key and part.
        on_duplicate: what becomes of two parts of one name in a sample.
        sqlite: whether to make the key database.
        database_path: where to build it; ``None`` is the work folder.
        elsewhere: where the shards lie, and what else is known of them, where that is not ``root``.
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
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.name = self.root if elsewhere is None else elsewhere.name
        self._elsewhere = elsewhere
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
        self.done: list[ScanDone] = []
        self._empty: list[str] = []
        self._faults: list[ShardFault] = []
        self._totals = Totals()

    def request(self, shard: str) -> ScanRequest:
        """How a shard of this data set is to be scanned."""
        new_table = parts_path(self._work / PARTS_FOLDER, shard)
        kept = parts_path(meta_path(self.root, PARTS_FOLDER), shard)
        there = self._elsewhere
        return ScanRequest(
            shard=shard,
            path=f"{self.root}/{shard}" if there is None else there.shard_path(shard),
            rule=self.rule,
            on_duplicate=self.on_duplicate,
            new_table=new_table,
            old_tables=(new_table, kept) if there is None else (new_table, kept, *there.old_tables(shard)),
            new_index=f"{self._work}/{INDEX_FOLDER}/{shard}.idx",
            present_index=None if there is None else self._index_path(shard),
        )

    def _index_path(self, shard: str) -> str:
        return tar_index_path(f"{self.root}/{shard}")

    def add(self, done: ScanDone, scan: ShardScan | None = None) -> None:
        """Take a finished shard in. A shard without samples is listed as empty and left out.

        Raises:
            StorageError: the database cannot be written.
        """
        if not done.summary.samples:
            self._empty.append(done.shard)
            return
        if self._database is not None:
            self._database.append(len(self.done), scan or read_parts_table(done.table))
        self.done.append(done)
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
        shard_counts = {done.shard: done.summary.samples for done in self.done}
        if not shard_counts:
            listed = f"; shards without samples: {', '.join(self._empty[:5])}" if self._empty else ""
            raise DatasetError(
                f"{self.name}: there is not one sample{listed}. A sample is made of files such as 0001.jpg and "
                "0001.txt in a tar archive."
            )
        if plan is None:
            self._check_counts(shard_counts)
        parts = plan.deal(list(shard_counts)) if plan else {}
        duplicates = self._find_duplicates()
        if duplicates.repeated and duplicate_keys == "error":
            raise DatasetError(duplicate_message(self.name, duplicates, list(shard_counts)))
        facts = facts_of(
            self._totals,
            self.done,
            empty=self._empty,
            faults=self._faults,
            rule=self.rule,
            key_database=self._database is not None,
            duplicates=duplicates,
            in_store=self._elsewhere is not None and self._elsewhere.in_store,
        )
        texts = {UUID_FILE: facts.index_uuid, OMNILOOM_JSON: encode_omniloom_info(facts)}
        if plan is not None:
            texts[split_config] = encode_splits(parts, name=split_config, exclude=plan.excluded())
            texts[INFO_JSON] = encode_info(shard_counts)
            if meta_path(self.root, INFO_YAML).is_file():
                texts[INFO_YAML] = encode_info_yaml(shard_counts)
        elif not meta_path(self.root, INFO_JSON).is_file():
            texts[INFO_JSON] = encode_info(shard_counts)
        self._put_in_place(texts)
        transfers = [done.transfer for done in self.done if done.transfer is not None]
        return Prepared(
            root=self.name,
            shard_counts=shard_counts,
            split_parts=parts,
            facts=facts,
            duplicate_keys=duplicates,
            faults=tuple(self._faults),
            reused=sum(done.reused for done in self.done),
            transfer=functools.reduce(lambda one, other: one.plus(other), transfers) if transfers else None,
            ways=Counter(transfer.way for transfer in transfers),
        )

    def _find_duplicates(self) -> DuplicateKeys:
        if self._database is not None:
            return self._database.finish()
        keyed = [
            KeyedShard(number, done.summary.samples, done.summary.key_range, functools.partial(read_keys, done.table))
            for number, done in enumerate(self.done)
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
                    f"{self.name}/{shard}: holds {found:,} samples, but .info.json says {expected:,}. An index alone "
                    f"would not fit; run `omniloom prepare {self.name}` without --tar-index-only."
                )

    def _put_in_place(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            replace_file(self._work / name, text)
        self._check_folders()
        mode = self._mode_of(self.done[0].shard)
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
        if self._elsewhere is not None:
            return
        folders = {os.path.dirname(f"{self.root}/{done.shard}") for done in self.done if done.index_waits}  # noqa: PTH120
        for folder in sorted(folders):
            if not os.access(folder, os.W_OK):
                denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
                raise storage_error("write an index into", folder, denied)

    def _mode_of(self, shard: str) -> int:
        """Permission bits of what describes a shard: those of the shard, and that its owner may write."""
        path = f"{self.root}/{shard}" if self._elsewhere is None else self._elsewhere.shard_path(shard)
        return 0o644 if is_url(path) else (Path(path).stat().st_mode & 0o777) | 0o600

    def _place_shard_files(self, mode: int) -> None:
        tables = meta_path(self.root, PARTS_FOLDER)
        kept = set()
        for done in self.done:
            request = self.request(done.shard)
            target = parts_path(tables, done.shard)
            kept.add(target)
            if done.table != target:
                move_file(done.table, target, mode=mode)
            if done.index_waits:
                move_file(request.new_index, self._index_path(done.shard), mode=self._mode_of(done.shard))
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
