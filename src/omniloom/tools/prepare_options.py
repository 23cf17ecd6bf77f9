"""The options of ``omniloom prepare``: Energon's names and defaults first, then our own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.data.index.dataset_yaml import dataset_config_of
from omniloom.data.index.layout import DATASET_YAML
from omniloom.data.index.prepare import DEFAULT_WORKERS
from omniloom.data.index.sample_types import CRUDE_TYPE, check_sample_type
from omniloom.data.index.shard_share import parse_shard_range
from omniloom.data.index.sidecar import DuplicateKeyPolicy
from omniloom.data.index.sources import parse_exclude
from omniloom.data.index.splits import parse_part_patterns, parse_ratio
from omniloom.data.shards.keys import KEY_RULES, KeyRule
from omniloom.data.shards.scan import DuplicatePolicy
from omniloom.errors import ConfigError
from omniloom.tools.place_type import PLACE

if TYPE_CHECKING:
    from omniloom.data.index.media_filter import MediaFilterConfig

MEDIA_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option(
        "--media-metadata-by-glob",
        metavar="PATTERNS",
        help="Index sizes and lengths of media with such names; several patterns are separated by commas.",
    ),
    click.option("--media-metadata-by-header", is_flag=True, help="The same of media that their content shows."),
    click.option("--media-metadata-by-extension", is_flag=True, help="The same of media by their extensions."),
)

_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option("--progress/--no-progress", default=True, help="Show how far the scan is."),
    click.option(
        "--split-parts",
        multiple=True,
        metavar="PART:REGEX",
        help="Shards of a part by the beginning of their names, braces allowed; instead of a ratio.",
    ),
    click.option("--exclude", metavar="REGEX", help="Leave out shards with a match anywhere in their names."),
    click.option(
        "--shards",
        multiple=True,
        metavar="NAMES",
        help="The shards by name, braces allowed (s-{000..127}.tar), where the folder cannot be listed; repeatable.",
    ),
    click.option(
        "--num-workers", default=DEFAULT_WORKERS, show_default=True, type=click.IntRange(0), help="Processes at most."
    ),
    click.option("--tar-index-only", is_flag=True, help="Renew the index files alone: no counts, no splits."),
    click.option("--shuffle-tars", is_flag=True, help="Shuffle the shards before they are dealt by ratio."),
    click.option("--fix-duplicates", is_flag=True, help="Rename files so that no key comes twice; rewrites shards."),
    click.option("--non-interactive", is_flag=True, help="Never ask."),
    click.option("--split-ratio", metavar="A,B,C", help="Shares of train, val and test, such as 8,1,1."),
    click.option("--force-overwrite", is_flag=True, help="Prepare a prepared set again without asking."),
    click.option("--skip-dataset-yaml", is_flag=True, help="Do not describe the samples."),
    click.option("--dataset-yaml-name", default=DATASET_YAML, show_default=True, help="Name of the description."),
    click.option("--sample-type", metavar="NAME", help=f"Class of the samples, or {CRUDE_TYPE}."),
    click.option("--field-map", metavar="JSON", help="Which part fills which field of the samples."),
    click.option("--tmp-path", type=click.Path(path_type=Path), help="Build index.sqlite in this folder."),
    click.option(
        "--meta-dir",
        type=PLACE,
        help="Put the sidecar here, for a data set that must not be written to; it is loaded by this path.",
    ),
    click.option(
        "--executor",
        metavar="URL",
        help="Scan elsewhere: dask://host:port, ray://, mpi://, processes://8, threads://32.",
    ),
    click.option("--shard-range", metavar="I/N", help="Scan each N-th shard from the I-th on, and leave it for merge."),
    click.option("--no-sqlite", is_flag=True, help="Make no index.sqlite; training does not need it."),
    click.option("--skip-bad-shards", is_flag=True, help="Leave out shards that cannot be used instead of failing."),
    click.option("--keep-split", is_flag=True, help="Known shards stay in their parts; new ones join train."),
    click.option(
        "--key-rule",
        type=click.Choice(KEY_RULES),
        default="first-dot",
        show_default=True,
        help="Where a file name is cut into key and part.",
    ),
    click.option(
        "--on-duplicate",
        type=click.Choice(["error", "first", "last"]),
        default="error",
        show_default=True,
        help="Two parts of one name in a sample: refuse the shard, or keep one.",
    ),
    click.option(
        "--duplicate-keys",
        type=click.Choice(["allow", "error"]),
        default="allow",
        show_default=True,
        help="One key in several shards: count it, or refuse the set.",
    ),
    *MEDIA_OPTIONS,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object; implies --non-interactive."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What was asked for on the command line; see ``omniloom prepare --help``."""

    progress: bool
    split_parts: tuple[str, ...]
    exclude: str | None
    shards: tuple[str, ...]
    num_workers: int
    tar_index_only: bool
    shuffle_tars: bool
    fix_duplicates: bool
    non_interactive: bool
    split_ratio: str | None
    force_overwrite: bool
    skip_dataset_yaml: bool
    dataset_yaml_name: str
    sample_type: str | None
    field_map: str | None
    tmp_path: Path | None
    meta_dir: str | None
    executor: str | None
    shard_range: str | None
    no_sqlite: bool
    skip_bad_shards: bool
    keep_split: bool
    key_rule: KeyRule
    on_duplicate: DuplicatePolicy
    duplicate_keys: DuplicateKeyPolicy
    media_metadata_by_glob: str | None
    media_metadata_by_header: bool
    media_metadata_by_extension: bool
    as_json: bool

    @property
    def media_filter(self) -> MediaFilterConfig | None:
        """Which parts are media; ``None``: nothing is to be found out of them.

        Raises:
            ConfigError: several ways are given.
        """
        ways = (self.media_metadata_by_glob, self.media_metadata_by_header, self.media_metadata_by_extension)
        if not any(ways):
            return None
        from omniloom.data.index.media_filter import MediaFilterConfig  # noqa: PLC0415 - loads Pillow

        return MediaFilterConfig.parse(*ways)

    def given(self) -> dict[str, Any]:
        """The options as they were given, by name."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    @property
    def may_ask(self) -> bool:
        """Whether questions are allowed."""
        return not (self.non_interactive or self.as_json)

    @property
    def deals_by_ratio(self) -> bool:
        """Whether a ratio is needed."""
        return not (self.split_parts or self.tar_index_only or self.keep_split)

    def fields(self) -> dict[str, str] | None:
        """The field map as a mapping.

        Raises:
            ConfigError: it is no JSON object.
        """
        if self.field_map is None:
            return None
        try:
            fields = json.loads(self.field_map)
        except ValueError as error:
            raise ConfigError(f'--field-map is no JSON: {error}. Example: \'{{"image": "jpg"}}\'.') from error
        if not isinstance(fields, dict):
            raise ConfigError(f'--field-map is {fields!r:.60}; expected a JSON object such as {{"image": "jpg"}}.')
        return fields

    def check(self) -> None:
        """See that the options make sense together, before anything is done.

        Raises:
            ConfigError: they do not.
        """
        if self.media_filter is not None and (self.tar_index_only or self.no_sqlite):
            raise ConfigError("media metadata go to index.sqlite: leave out --tar-index-only and --no-sqlite.")
        if self.shards and (self.exclude is not None or self.tar_index_only or self.fix_duplicates):
            raise ConfigError("--shards names all shards: leave out --exclude, --tar-index-only and --fix-duplicates.")
        if self.shard_range is not None:
            parse_shard_range(self.shard_range)
            if self.tar_index_only or self.fix_duplicates:
                raise ConfigError("--shard-range scans a share and nothing else: give other work to `omniloom merge`.")
        if self.split_ratio is not None:
            parse_ratio(self.split_ratio)
        parse_part_patterns(self.split_parts)
        parse_exclude(self.exclude)
        fields = self.fields()
        if self.sample_type is not None:
            check_sample_type(self.sample_type)
            if fields is not None:
                dataset_config_of(self.sample_type, fields)
        elif fields is not None and not self.may_ask:
            raise ConfigError("--field-map needs --sample-type.")


def prepare_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all options; it is called with a `PrepareOptions` in their place."""

    def with_options(dataset: str, **given: Any) -> None:
        function(dataset, PrepareOptions(**given))

    with_options.__doc__ = function.__doc__
    with_options.__name__ = function.__name__
    wrapped: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
