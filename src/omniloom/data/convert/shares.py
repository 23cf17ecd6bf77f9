"""A conversion in shares: machines that do not talk to each other make parts of a data set, and one joins them.

The entries are cut into windows of as many as a shard holds, and share ``i`` of ``n`` takes the windows ``i``,
``i + n``, and so on. What it makes is a data set of its own in ``share-003-of-016`` of the output: it goes on after a
stop, and a share that was lost is made again, byte for byte the same. So the result hangs on the number of shares, and
not on who made them, or how many at a time. Ids that come in several shares keep their names; joining counts them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.convert.entry_source import Description, EntrySource
from omniloom.data.convert.findings import Counts
from omniloom.data.convert.journal import JOURNAL_NAME
from omniloom.data.convert.json_entries import RawEntry
from omniloom.data.convert.llava import LlavaSummary, convert_llava
from omniloom.data.convert.llava_conversion import REPORT_NAME, LlavaOptions
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.convert.staged_output import staged_output
from omniloom.data.index.dataset import dataset_config
from omniloom.data.index.dataset_yaml import dataset_config_of
from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import DATASET_YAML, write_sidecar_file
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.sample_types import CRUDE_TYPE
from omniloom.data.index.shard_share import ShardRange
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.errors import ConfigError, DatasetError
from omniloom.storage.files import folder_exists
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, redacted

EMPTY_SHARE = "no-entries.txt"
_FOLDER = re.compile(r"share-(\d+)-of-(\d+)")


def share_folder(share: ShardRange) -> str:
    """Name of the folder in which a share is made."""
    return f"share-{share.number:03d}-of-{share.shares:03d}"


class ShareOfEntries:
    """The entries of one share.

    Args:
        source: all of them.
        share: which share.
        window: neighbours that stay in one share.

    Raises:
        ConfigError: such entries do not come in shares.
    """

    def __init__(self, source: EntrySource, share: ShardRange, *, window: int) -> None:
        if not getattr(source, "in_shares", True):
            raise ConfigError(
                f"{source.path}: what is made of it is worked out over all samples, by one process. Leave --executor "
                "and --shard-range out."
            )
        self.path: Path = source.path
        self.size_bytes: int = source.size_bytes
        self.description: Description | None = source.description
        self._source, self._share, self._window = source, share, window

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on."""
        if getattr(self._source, "seeks", False):
            yield from self._by_windows(start)
            return
        for raw in self._source.entries(start):
            if raw.position // self._window % self._share.shares == self._share.number:
                yield raw

    def _by_windows(self, start: int) -> Iterator[RawEntry]:
        """The same of a source that need not be read from its begin."""
        for first in itertools.count(self._share.number * self._window, self._share.shares * self._window):
            begin, end = max(first, start), first + self._window
            if begin >= end:
                continue
            position = -1
            for raw in itertools.islice(self._source.entries(begin), end - begin):
                position = raw.position
                yield raw
            if position < end - 1:
                return  # those were the last ones

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What an entry says."""
        return self._source.read(value, position)

    def fingerprint(self) -> str:
        """That of all entries, and which of them these are."""
        return f"{self._source.fingerprint()} share {self._share.number} of {self._share.shares} by {self._window}"


class ShareRequest(NamedTuple):
    """A share that is to be made.

    Attributes:
        shard: its folder, for messages.
        source: all entries.
        share: which of them.
        out: folder of the whole data set, a path or URL.
        settings: arguments of `convert_llava`.
    """

    shard: str
    source: EntrySource
    share: ShardRange
    out: str
    settings: Mapping[str, Any]


def convert_share(request: ShareRequest) -> Counts:
    """Make one share; gives what was counted.

    Raises as `convert_llava` does. A share without entries, of a small data set, leaves a file that says so.
    """
    options: LlavaOptions = request.settings.get("options") or LlavaOptions()
    entries = ShareOfEntries(request.source, request.share, window=options.max_count)
    place = join_url(request.out, share_folder(request.share))
    if next(entries.entries(0), None) is None:
        open_store(place).write(join_url(place, EMPTY_SHARE), b"")
        return Counts()
    anew = bool(request.settings.get("overwrite"))
    if is_url(place) and not anew:
        if is_prepared(place) and _header_of(place).get("input") == entries.fingerprint():
            return _counts_of(place)
        anew = not is_prepared(place)  # what a machine that was lost left of it is nobody's
    with staged_output(place, overwrite=anew) as folder:
        return convert_llava(entries, out=folder, **request.settings).counts


@dataclass(frozen=True)
class SharedConversion:
    """A conversion whose shares are made by an executor, and then put together.

    Attributes:
        source: the entries.
        out: folder of the data set to make, a path or URL that all workers see.
        settings: arguments of `convert_llava`.
    """

    source: EntrySource
    out: str
    settings: Mapping[str, Any]

    def request(self, share: ShardRange) -> ShareRequest:
        """One of the shares."""
        return ShareRequest(share_folder(share), self.source, share, self.out, self.settings)

    def run_one(self, share: ShardRange) -> LlavaSummary:
        """Make one share and leave it for `merge_shares`."""
        counts = convert_share(self.request(share))
        place = redacted(join_url(self.out, share_folder(share)))
        report = f"{place}/{REPORT_NAME}"
        return LlavaSummary(
            out=place, shards=0, counts=counts, dataset_type="a share of it", report=report, kept_shards=0
        )

    def run(self, executor: Executor | None, *, shares: int, num_workers: int = 1) -> LlavaSummary:
        """Make all shares, those that are there already excepted, and put them together. Raises as `convert_llava`."""
        requests = [self.request(ShardRange(number, shares)) for number in range(shares)]
        for _ in in_order(convert_share, requests, executor=executor, num_workers=num_workers):
            pass
        return merge_shares(
            self.out,
            executor=executor,
            split_ratio=self.settings.get("split_ratio"),
            sqlite=bool(self.settings.get("sqlite", True)),
        )


def shares_of(out: str) -> list[str]:
    """Folders of shares in an output folder; none where it was not converted in shares."""
    if not folder_exists(out):
        return []
    return sorted(name[:-1] for name in open_store(out).children(out) if _FOLDER.fullmatch(name.rstrip("/")))


def merge_shares(
    out: str, *, executor: Executor | None = None, split_ratio: str | None = None, sqlite: bool = True
) -> LlavaSummary:
    """Put the shares of a conversion together: one index over all their shards.

    Raises:
        ConfigError: a share is missing or not finished, or there are those of two conversions.
        DatasetError: no share has a sample.
    """
    places = _finished_shares(out)
    configs = [dataset_config(place) for place in places]
    config = joined_config(configs)
    prepared = prepare_dataset(out, split_ratio=split_ratio, sqlite=sqlite, executor=executor)
    write_sidecar_file(out, DATASET_YAML, dump_yaml(config))
    counts = Counts()
    for place in places:
        counts.add(_counts_of(place))
    return LlavaSummary(
        out=redacted(out),
        shards=len(prepared.shard_counts),
        counts=counts,
        dataset_type=_type_named(config),
        report=f"{redacted(out)}/share-*/{REPORT_NAME}",
        kept_shards=0,
    )


def joined_config(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Content of ``dataset.yaml`` for all shares: of their type, with the alternatives of all, or else crude."""
    first = configs[0]
    maps = [dict(config.get("field_map") or {}) for config in configs]
    if all(config == first for config in configs):
        return dict(first)
    alike = all(_type_named(config) == _type_named(first) for config in configs)
    if not alike or not all(maps) or any(one.keys() != maps[0].keys() for one in maps):
        return dataset_config_of(CRUDE_TYPE, None)
    joined = {
        name: ",".join(dict.fromkeys(part for one in maps for part in str(one[name]).split(","))) for name in maps[0]
    }
    return {**first, "field_map": joined}


def _finished_shares(out: str) -> list[str]:
    """The shares that have samples, where all are finished."""
    names = shares_of(out)
    totals = {int(found[2]) for name in names if (found := _FOLDER.fullmatch(name))}
    if len(totals) != 1:
        raise ConfigError(f"{redacted(out)}: shares of {len(totals)} conversions found; expected those of one.")
    (total,) = totals
    wanted = [share_folder(ShardRange(number, total)) for number in range(total)]
    missing = [name for name in wanted if name not in names or not _is_finished(join_url(out, name))]
    if missing:
        raise ConfigError(
            f"{redacted(out)}: {len(missing)} of {total} shares are missing or not finished: {', '.join(missing[:5])}. "
            "Run them again with --shard-range, then merge."
        )
    places = [place for name in wanted if is_prepared(place := join_url(out, name))]
    if not places:
        raise DatasetError(f"{redacted(out)}: not one share has a sample.")
    return places


def _header_of(place: str) -> dict[str, Any]:
    """What a share is made of, by its journal."""
    return dict(json.loads(open_store(place).read(join_url(place, JOURNAL_NAME)).splitlines()[0]))


def _counts_of(place: str) -> Counts:
    """What a share counted, by its journal."""
    text = open_store(place).read(join_url(place, JOURNAL_NAME))
    return Counts.from_json(json.loads(text.splitlines()[-1])["counts"])


def _type_named(config: Mapping[str, Any]) -> str:
    return str(config["__class__"] if "__class__" in config else config["sample_type"]["__class__"])


def _is_finished(place: str) -> bool:
    return is_prepared(place) or open_store(place).exists(join_url(place, EMPTY_SHARE))
