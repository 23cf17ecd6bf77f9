"""`DatasetLoaderInterface`, and loaders of a user's own that the YAML file of a mix names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from omniloom.data.index.trusted_code import is_trusted, named_class
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.mix.read import VERSIONS
from omniloom.energon.adapters.building import accepted
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.opening import arguments_of
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.energon.finder import ENERGON, OURS
from omniloom.errors import ConfigError


class DatasetLoaderInterface:
    """What tells the data sets of a mix. Derive from it, and name the class at the top of a YAML file."""

    def post_initialize(self, mds_path: EPath | None = None) -> None:
        """Called once the file has been read.

        Args:
            mds_path: the file.
        """

    def get_datasets(
        self, *, training: bool, split_part: str | None = None, worker_config: Any, **settings: Any
    ) -> Any:
        """A `LoadedDatasetList`: the data sets, and how they go together.

        Args:
            training: for training.
            split_part: part of the split.
            worker_config: rank, world and workers.
            settings: as `DatasetLoader` has them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no get_datasets")

    def traverse(self, *, split_part: str | None = None) -> list[Any]:
        """The data sets that it names, without opening one.

        Args:
            split_part: part of the split.
        """
        raise NotImplementedError(f"{type(self).__name__} has no traverse")

    def prepare(self, split_part: str | None = None) -> Sequence[EPath]:
        """Make what has to be made before. Gives the paths of what it made.

        Args:
            split_part: part of the split.
        """
        return ()


def own_loader(path: Any, **settings: Any) -> Any:
    """The loader that a YAML file names at its top by a class of a user's own; ``None`` where it names none.

    Args:
        path: what stands for a data set; only the path of a metadataset can name one.
        settings: arguments of the class, as far as it takes them.

    Raises:
        ConfigError: the class is not there, or cannot be made of what the file says; or it is not trusted.
    """
    if not isinstance(path, str | os.PathLike) or not is_metadataset(os.fspath(path)):
        return None
    file = EPath(path)
    content = load_yaml(file.read_bytes(), name=str(file)) if file.is_file() else {}
    if not isinstance(content, Mapping):
        return None
    name = content.get("__class__")
    if name is None or name in VERSIONS:
        return None
    module = str(content.get("__module__", ""))
    if module.startswith((ENERGON, OURS)) or not is_trusted(AS_ENERGON):
        return None  # what reads metadatasets tells of it
    found = named_class(module, name, where=str(file))
    said = arguments_of(content, where=str(file))
    try:
        made = found(**{**accepted(found, {"path": file, **settings}), **said})
    except TypeError as error:
        raise ConfigError(f"{file}: {name} cannot be made of what is said here: {error}") from error
    made.post_initialize(file)
    return made
