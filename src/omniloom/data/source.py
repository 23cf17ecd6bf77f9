"""From a path to a leaf: what kind of data set lies there, and how its rows become samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.index.dataset import dataset_config, open_dataset
from omniloom.data.index.dataset_yaml import describe_samples
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.kinds import SAMPLE_CLASSES
from omniloom.data.leaf import Leaf
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.row_cook import CrudeCook, FieldCook
from omniloom.data.side.store import SideStore
from omniloom.errors import ConfigError


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
            path: absolute path of a prepared data set.
            name: stable name of the leaf in the mix.
        """
        index = open_dataset(path, split_part=self.split_part, split_config=self.split_config)
        where = f"{path}/.nv-meta/{self.dataset_config}"
        config = dataset_config(path, name=self.dataset_config)
        cook = self._cook(config, where)
        rows = TarRows(index, split_config=self.split_config, wanted=cook.wanted)
        return Leaf(name, rows, cook, path, aux=self.aux, primary=self.aux.get("primary"))

    def _cook(self, config: dict[str, Any], where: str) -> FieldCook | CrudeCook:
        described = describe_samples(config, where=where)
        subflavors = {**(config.get("subflavors") or {}), **(self.subflavors or {})} or None
        if described.crude:
            return CrudeCook(self.decoder, subflavors)
        if described.type_name not in SAMPLE_CLASSES:
            raise ConfigError(
                f"{where}: sample type {described.module}.{described.type_name} is not one of omniloom's: "
                f"{', '.join(SAMPLE_CLASSES)}, CrudeWebdataset"
            )
        if described.fields is None:
            raise ConfigError(
                f"{where}: no field_map; `sample_loader` runs code of the data set, which is not done here.\n"
                "  Write a field_map, or declare the data set crude and make the samples in encode_sample."
            )
        return FieldCook(SAMPLE_CLASSES[described.type_name], described.fields, self.decoder, subflavors)
