"""How a factory opens its data set: by a description that was given, and by a class of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from omniloom.data.index.dataset_settings import DatasetSettings
from omniloom.data.index.dataset_yaml import SampleDescription
from omniloom.data.index.source_kind import Source
from omniloom.data.index.trusted_code import PartFilter, named_object, require_trust
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.row_cook import LoaderCook, RowCook
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.data.source import LeafOpener, Opened
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.reading import load_yaml
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.energon.finder import ENERGON, OURS
from omniloom.errors import SkipSample


@dataclass(frozen=True)
class Description:
    """What stands in place of a ``dataset.yaml``.

    Attributes:
        config: its content, as far as that is plain values.
        sample_type: class of the samples; ``None``: the one that ``config`` names.
        sample_loader: a function that makes the fields, where it is not named in ``config``.
        part_filter: says of the name of a part whether it is read, likewise.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    sample_type: type | None = None
    sample_loader: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    part_filter: Callable[[str], bool] | None = None


@dataclass(frozen=True)
class DescribedOpener(LeafOpener):
    """Opens a leaf by a description that was given, in place of the one in its ``dataset.yaml``."""

    given: Description | None = None

    def _config(self, source: Source) -> dict[str, Any]:
        return super()._config(source) if self.given is None else dict(self.given.config)

    def _wanted(
        self, described: SampleDescription, settings: DatasetSettings, source: Source, where: str
    ) -> Container[str] | None:
        if self.given is not None and self.given.part_filter is not None:
            return PartFilter(self.given.part_filter)
        return super()._wanted(described, settings, source, where)

    def _cook(
        self, described: SampleDescription, opened: Opened, wanted: Container[str] | None, source: Source, where: str
    ) -> RowCook:
        if self.given is not None and self.given.sample_loader is not None:
            made = self._sample_type(described, where)
            return LoaderCook(made, self.given.sample_loader, self.decoder, self.subflavors, wanted)
        return super()._cook(described, opened, wanted, source, where)

    def _sample_type(self, described: SampleDescription, where: str) -> Callable[..., Any]:
        own = None if self.given is None else self.given.sample_type
        return super()._sample_type(described, where) if own is None else own


@dataclass(frozen=True)
class FactoryCook:
    """Makes a sample by the ``load_sample`` of a factory of the user's own.

    Attributes:
        factory: the factory; its ``sample_filter`` says of a key whether it is wanted.
        described: what it would be without that; of it come the parts that are read and the subflavors.
    """

    factory: Any
    described: RowCook
    calls_users: ClassVar[bool] = True

    def eager(self) -> FactoryCook:
        """The same: a factory is given a decoder that makes tensors at once."""
        return self

    @property
    def wanted(self) -> Container[str] | None:
        """The parts that are read; ``None``: all."""
        return self.described.wanted

    @property
    def decoder(self) -> SampleDecoder | None:
        """Decodes parts; ``None``: they stay bytes."""
        return self.described.decoder

    @property
    def subflavors(self) -> dict[str, Any] | None:
        """What the configuration says of the samples."""
        return getattr(self.described, "subflavors", None)

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample; its restore key is that of its row."""
        if not self.factory.sample_filter(raw.name):
            raise SkipSample("sample_filter")
        base = {"__key__": raw.name, "__shard__": raw.shard, "__restore_key__": tuple(key), "__sources__": (source,)}
        made = self.factory.load_sample({**base, **raw.parts})
        if isinstance(made, dict):
            made["__restore_key__"] = tuple(key)
        elif hasattr(made, "__restore_key__"):
            made.__restore_key__ = tuple(key)
        return made


def sample_of(described: RowCook, sample: Mapping[str, Any]) -> Any:
    """The sample that a described data set makes of undecoded parts, given as a factory's ``load_sample`` has them."""
    parts = {name: one for name, one in sample.items() if not name.startswith("__")}
    raw = RawSample(sample["__key__"], sample["__shard__"], parts)
    return described(raw, SampleKey(*sample["__restore_key__"]), sample["__sources__"][0])


def arguments_of(config: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """What the content of a ``dataset.yaml`` says to the class that it names.

    Classes and functions that are named within it are looked up, and objects are made of their arguments.

    Args:
        config: the content; it is trusted.
        where: its name, for messages.

    Raises:
        ConfigError: something is named that is not there.
    """
    said = {name: one for name, one in config.items() if name not in _NAMES}
    if isinstance(said.get("subset"), Mapping):
        said["subset"] = said["subset"].get("range")
    if isinstance(said.get("sample_type"), Mapping):
        said["sample_type"] = _named(said["sample_type"], where)
    return {name: object_of(one, where=where) for name, one in said.items()}


def load_config(
    path: EPath | Mapping[str, Any], *, default_type: Any, default_kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The object that a YAML file, or a dict of its form, describes: a class by ``__module__`` and ``__class__``.

    Args:
        path: the file, or the content; it is trusted.
        default_type: the class where none is named.
        default_kwargs: arguments that the content does not say.
    """
    where = "a dict" if isinstance(path, Mapping) else str(path)
    content = path if isinstance(path, Mapping) else load_yaml(path.read_bytes(), name=where)
    require_trust(AS_ENERGON, where=where, what="a class that it names")
    kind = _named(content, where) if "__class__" in content else default_type
    return kind(**{**(default_kwargs or {}), **arguments_of(content, where=where)})


_NAMES = ("__module__", "__class__", "__function__")


def object_of(value: Any, *, where: str) -> Any:
    """What a mapping with ``__module__`` stands for: an object of a class, or a function. All else is itself."""
    if not isinstance(value, Mapping) or "__module__" not in value:
        return value
    found = _named(value, where)
    return found(**arguments_of(value, where=where)) if "__class__" in value else found


def _named(value: Mapping[str, Any], where: str) -> Any:
    """The class or function that a mapping names; Energon's names are those of this package."""
    module, name = value["__module__"], str(value.get("__class__") or value.get("__function__"))
    if module.startswith(ENERGON):
        module = module.replace(ENERGON, OURS, 1)
    return named_object(module, name, where=where)
