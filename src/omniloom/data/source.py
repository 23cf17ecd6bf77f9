"""From a path to a leaf: what kind of data set lies there, and how its rows become samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.index.dataset import dataset_config, open_dataset
from omniloom.data.index.dataset_settings import DatasetSettings, read_settings
from omniloom.data.index.dataset_yaml import SampleDescription, describe_samples
from omniloom.data.index.field_map import part_names
from omniloom.data.index.file_splits import files_of_part
from omniloom.data.index.folder_rows import FolderRows
from omniloom.data.index.layout import meta_path
from omniloom.data.index.sample_types import CRUDE_TYPE, LEGACY_CLASSES, check_field_names
from omniloom.data.index.source_kind import Source, SourceKind, find_source
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.index.trusted_code import PartFilter, file_function, is_trusted, named_class, require_trust
from omniloom.data.kinds import SAMPLE_CLASSES
from omniloom.data.leaf import Leaf
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.media.own_decoder import as_decoder
from omniloom.data.mix.place import Place
from omniloom.data.mix.subset import Subset
from omniloom.data.row_cook import ColumnCook, CrudeCook, FieldCook, LoaderCook, RowCook
from omniloom.data.shards.jsonl import JSON_PART, open_jsonl
from omniloom.data.shards.rows import Rows, SubRows
from omniloom.data.side.store import DecodeFileStore, SideStore
from omniloom.data.side.stores import JsonlFileStore, SystemFileStore, WebdatasetFileStore
from omniloom.data.tables.columns import ColumnKind
from omniloom.errors import ConfigError, DatasetError

PRIMARY = "primary"
_CRUDE: dict[str, Any] = {"__class__": "CrudeWebdataset"}
_OUR_MODULES = ("omniloom", "megatron.energon")


@dataclass(frozen=True)
class Opened:
    """A source at work, before it is known how its samples are made.

    Attributes:
        rows: its rows.
        columns: kinds of its columns that are read, where its parts are columns (see `columns`).
        names: all columns that there are.
        primary: makes the source itself a store; ``None``: it cannot be one.
    """

    rows: Rows
    columns: Mapping[str, ColumnKind] | None = None
    names: Sequence[str] = ()
    primary: Callable[[], SideStore] | None = None


@dataclass(frozen=True)
class LeafOpener:
    """Opens leaves that are read alike.

    Attributes:
        decoder: decodes the parts of samples; ``None``: they stay bytes.
        split_part: part of the split.
        split_config: name of the split file in ``.nv-meta``.
        dataset_config: name of the description of samples in ``.nv-meta``.
        subflavors: added to each sample's subflavors.
        aux: stores that cookers are handed, by name; ``primary`` stands for the data set itself.
        trust: whether code that the data set names may be run: its ``sample_loader.py`` and classes outside the table
            of known ones. ``OMNILOOM_TRUST=0`` forbids it in any case.
    """

    decoder: SampleDecoder | None
    split_part: str
    split_config: str
    dataset_config: str
    subflavors: dict[str, Any] | None
    aux: Mapping[str, SideStore] = field(default_factory=dict)
    trust: bool = False

    def open(self, path: str, name: str) -> Leaf:
        """The leaf at a path.

        Args:
            path: absolute path of a source: a prepared data set, a file or folder of another kind.
            name: stable name of the leaf in the mix.

        Raises:
            DatasetError: there is none, or it is not prepared where it has to be.
            ConfigError: its description does not fit it, or names code that is not trusted.
        """
        source = find_source(path, config_name=self.dataset_config)
        if source.kind == "metadataset":
            raise ConfigError(f"{path}: is a mix of data sets; a single one is expected here.")
        where = f"{path}/.nv-meta/{self.dataset_config}"
        config = self._config(source)
        described = describe_samples(config, where=where)
        own = self._own_class(config, where)
        if own is not None:
            leaf: Leaf = own.open_leaf(path, config=config, opener=self)
            return dataclasses.replace(leaf, name=name)
        settings = read_settings(config, where=where)
        decoder = self._own_decoder(settings, where) or decoder_with(self.decoder, settings, where=where)
        opener = dataclasses.replace(
            self,
            decoder=as_decoder(decoder),
            split_part=settings.split_part or self.split_part,
            split_config=settings.split_config or self.split_config,
            subflavors={**settings.subflavors, **(self.subflavors or {})},
        )
        wanted = opener._wanted(described, settings, source, where)
        opened = _OPENERS[source.kind](opener, source, wanted)
        cook = opener._cook(described, opened, wanted, source, where)
        rows = opened.rows
        if settings.subset is not None:
            subset = Subset.parse(settings.subset, place=Place(where, ("subset", "range")))
            rows = SubRows(rows, *subset.of(len(rows), where=where))
        return Leaf(name, rows, cook, path, aux=opener._aux(described, where), primary=opener._primary(opened))

    def _config(self, source: Source) -> dict[str, Any]:
        """Content of the description. Only shards have to have one; another source without one is crude."""
        if source.kind == "webdataset":
            return dataset_config(source.root, name=self.dataset_config)
        if not source.has_sidecar or not meta_path(source.root, self.dataset_config).is_file():
            return _CRUDE
        found = dataset_config(source.root, name=self.dataset_config)
        return found if found.keys() & {"sample_type", "__class__"} else {**found, **_CRUDE}

    def _wanted(
        self, described: SampleDescription, settings: DatasetSettings, source: Source, where: str
    ) -> Container[str] | None:
        """The parts that are read."""
        if described.fields is not None and not described.crude:
            if settings.part_filter is not None:
                raise ConfigError(
                    f"{where}: part_filter stands beside a field_map, which says itself which parts are read."
                )
            return part_names(described.fields)
        if isinstance(settings.part_filter, str):
            require_trust(self.trust, where=where, what=f"part_filter ({settings.part_filter})")
            return PartFilter(file_function(settings.part_filter, root=source.root, default="part_filter"))
        return settings.part_filter

    def _cook(
        self, described: SampleDescription, opened: Opened, wanted: Container[str] | None, source: Source, where: str
    ) -> RowCook:
        if described.crude:
            if opened.columns is not None:
                return ColumnCook(opened.columns, self.decoder, self.subflavors)
            return CrudeCook(self.decoder, self.subflavors, wanted)
        sample_type = self._sample_type(described, where)
        if described.fields is not None and opened.columns is not None:
            _check_columns(described, opened, where)
            return ColumnCook(opened.columns, self.decoder, self.subflavors, sample_type, described.fields)
        if described.fields is not None:
            return FieldCook(sample_type, described.fields, self.decoder, self.subflavors)
        if described.sample_loader is None:
            raise ConfigError(f"{where}: neither field_map nor sample_loader; one of them makes the fields of samples.")
        require_trust(self.trust, where=where, what=f"sample_loader ({described.sample_loader})")
        if wanted is None:
            raise ConfigError(f"{where}: sample_loader needs a part_filter beside it, which says what it is given.")
        loader = file_function(described.sample_loader, root=source.root, default="sample_loader")
        if opened.columns is not None:
            raise ConfigError(f"{where}: sample_loader goes with parts; this source has columns. Write a field_map.")
        return LoaderCook(sample_type, loader, self.decoder, self.subflavors, wanted)

    def _own_class(self, config: Mapping[str, Any], where: str) -> Any:
        """The class of the user's that a trusted description names at its top, where it opens its data set itself."""
        name, module = config.get("__class__"), str(config.get("__module__", ""))
        known = name is None or name in {*LEGACY_CLASSES, *SAMPLE_CLASSES, CRUDE_TYPE}
        if known or module.startswith(_OUR_MODULES) or not is_trusted(self.trust):
            return None
        found = named_class(module, str(name), where=where)
        return found if hasattr(found, "open_leaf") else None

    def _own_decoder(self, settings: DatasetSettings, where: str) -> Any:
        """The decoder of a class that a trusted description names; ``None`` where it names none."""
        said = settings.own_decoder
        if said is None:
            return None
        module, name = str(said["__module__"]), str(said["__class__"])
        require_trust(self.trust, where=where, what=f"decoder ({module}.{name})")
        kind = named_class(module, name, where=where)
        try:
            return kind(**{key: one for key, one in said.items() if key not in ("__module__", "__class__")})
        except TypeError as error:
            raise ConfigError(f"{where}: decoder {module}.{name} cannot be made so: {error}") from error

    def _sample_type(self, described: SampleDescription, where: str) -> Callable[..., Any]:
        ours = described.module.split(".")[0] == "omniloom" or described.module.startswith(_OUR_MODULES)
        if described.type_name in SAMPLE_CLASSES and (ours or not is_trusted(self.trust)):
            if described.fields is not None:
                check_field_names(described.type_name, described.fields, where=where)
            return SAMPLE_CLASSES[described.type_name]
        if is_trusted(self.trust) and described.module:
            return named_class(described.module, described.type_name, where=where)
        raise ConfigError(
            f"{where}: sample type {described.module}.{described.type_name} is not one of omniloom's: "
            f"{', '.join(SAMPLE_CLASSES)}, CrudeWebdataset. Classes of others are imported only with trust=True."
        )

    def _aux(self, described: SampleDescription, where: str) -> dict[str, SideStore]:
        if self.aux and not described.crude:
            raise ConfigError(
                f"{where}: the mix gives stores ({', '.join(self.aux)}) to samples of type {described.type_name}; only "
                "cookers of crude data sets are handed stores."
            )
        return {name: self._decoding(store) for name, store in self.aux.items()}

    def _primary(self, opened: Opened) -> SideStore | None:
        if PRIMARY in self.aux:
            return self._decoding(self.aux[PRIMARY])
        try:
            return None if opened.primary is None else self._decoding(opened.primary())
        except DatasetError:
            return None  # a data set without a key database; missed only by cookers that need it

    def _decoding(self, store: SideStore) -> SideStore:
        return store if self.decoder is None else DecodeFileStore(store, decoder=self.decoder)


def decoder_with(decoder: SampleDecoder | None, settings: DatasetSettings, *, where: str) -> SampleDecoder | None:
    """The decoder with the options that a ``dataset.yaml`` says.

    Raises:
        ConfigError: it has no such option.
    """
    options = settings.decoder_options
    if options is None:
        return None
    if not options:
        return decoder
    known = [one.name for one in dataclasses.fields(SampleDecoder) if one.init]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"{where}: the decoder has no option {unknown[0]!r}; its options are {', '.join(known)}.")
    return dataclasses.replace(decoder or SampleDecoder(), **options)


def _check_columns(described: SampleDescription, opened: Opened, where: str) -> None:
    """See that every field can be filled from some column. Raises ConfigError."""
    for name, options in (described.fields or {}).items():
        if not any(option.part in opened.names for option in options):
            raise ConfigError(
                f"{where}: field {name!r} is mapped to {','.join(map(str, options))}, but there is no such column; "
                f"there are {', '.join(opened.names)}."
            )


def _open_webdataset(opener: LeafOpener, source: Source, wanted: Container[str] | None) -> Opened:
    index = open_dataset(source.path, split_part=opener.split_part, split_config=opener.split_config)
    rows = TarRows(index, split_config=opener.split_config, wanted=wanted)
    return Opened(rows, primary=lambda: WebdatasetFileStore(source.path))


def _open_jsonl(opener: LeafOpener, source: Source, wanted: Container[str] | None) -> Opened:
    rows = open_jsonl(files_of_part(source, split_part=opener.split_part, split_config=opener.split_config))
    columns: dict[str, ColumnKind] = {JSON_PART: "json"}
    primary = None if source.has_sidecar else lambda: JsonlFileStore(source.path)
    return Opened(rows, columns, [JSON_PART], primary)


def _open_table(opener: LeafOpener, source: Source, wanted: Container[str] | None) -> Opened:
    files = files_of_part(source, split_part=opener.split_part, split_config=opener.split_config)
    if source.kind == "parquet":
        from omniloom.data.tables.parquet import open_parquet_rows as open_rows  # noqa: PLC0415 - pyarrow is an extra
    else:
        from omniloom.data.tables.arrow import open_arrow_rows as open_rows  # noqa: PLC0415
    rows = open_rows(files, root=source.root, wanted=wanted)
    return Opened(rows, rows.kinds, rows.names)


def _open_folder(opener: LeafOpener, source: Source, wanted: Container[str] | None) -> Opened:
    rows = FolderRows(source.root, split_part=opener.split_part, wanted=wanted)
    return Opened(rows, primary=lambda: SystemFileStore(source.root))


def _open_llava(opener: LeafOpener, source: Source, wanted: Container[str] | None) -> Opened:
    from omniloom.data.convert.llava_rows import LlavaRows  # noqa: PLC0415 - brings the converter's reader of entries

    images = source.images or source.root
    rows = LlavaRows(source.path, images=images, wanted=wanted)
    return Opened(rows, primary=lambda: SystemFileStore(images))


_OPENERS: dict[SourceKind, Callable[[LeafOpener, Source, Container[str] | None], Opened]] = {
    "webdataset": _open_webdataset,
    "jsonl": _open_jsonl,
    "parquet": _open_table,
    "arrow": _open_table,
    "folder": _open_folder,
    "llava": _open_llava,
}
