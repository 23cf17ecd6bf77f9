"""Factories of a user's own that say themselves how their data set is iterated, as a ``dataset.yaml`` names them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from omniloom.data.index.layout import DATASET_YAML, meta_name, meta_path
from omniloom.data.index.mirror import refresh
from omniloom.data.index.sample_types import CRUDE_TYPE, LEGACY_CLASSES
from omniloom.data.index.source_kind import ENDINGS
from omniloom.data.index.trusted_code import is_trusted, named_class
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.kinds import SAMPLE_CLASSES
from omniloom.data.mix.flatten import flatten
from omniloom.data.mix.paths import is_metadataset
from omniloom.data.mix.read import as_node
from omniloom.data.mix.values import Source
from omniloom.data.mixed import OPENERS
from omniloom.energon.adapters.building import accepted
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.factories import BaseCoreDatasetFactory
from omniloom.energon.adapters.opening import arguments_of
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.energon.finder import ENERGON, OURS
from omniloom.errors import ConfigError, OmniloomError
from omniloom.storage.urls import is_url, name_of

_CLASS_AT_TOP = re.compile(rb"""^(?:\{\s*)?["']?__class__["']?\s*:|[,{]\s*["']?__class__["']?\s*:""", re.MULTILINE)
_KNOWN = {*LEGACY_CLASSES, *SAMPLE_CLASSES, CRUDE_TYPE}


def own_factory(path: Any, *, dataset_config: str | None = None, **settings: Any) -> Any:
    """The factory that the description of a data set names, where it has a ``build`` of its own; else ``None``.

    Args:
        path: where it lies.
        dataset_config: name of the description.
        settings: its arguments, as far as it takes them; what the description says is stronger.

    Raises:
        ConfigError: the class is not there, or cannot be made so.
    """
    found = _described(path, dataset_config)
    if found is None:
        return None
    kind, content, where = found
    said = arguments_of(content, where=where)
    if settings.get("subflavors") or "subflavors" in said:
        said["subflavors"] = {**(said.get("subflavors") or {}), **(settings.get("subflavors") or {})}
    try:
        return kind(path=EPath(path), **{**accepted(kind, settings), **said})
    except TypeError as error:
        raise ConfigError(f"{where}: {kind.__name__} cannot be made of what is said here: {error}") from error


def names_own_factory(path: Source, *, split_part: str, training: bool, dataset_config: str | None = None) -> bool:
    """Whether a data set, or one of a mix, is described by such a factory."""
    if isinstance(path, str | os.PathLike) and not is_metadataset(os.fspath(path)):
        return _described(path, dataset_config) is not None
    leaves = flatten(as_node(path), split_part=split_part, training=training).leaves
    described = [(leaf.path, leaf.dataset_config) for leaf in leaves if leaf.join is None]
    if not any(is_url(name) for name, _ in described):
        return any(_described(*one) is not None for one in described)
    with ThreadPoolExecutor(OPENERS, "omniloom-described") as threads:
        return any(found is not None for found in threads.map(lambda one: _described(*one), described))


def _described(path: Any, dataset_config: str | None) -> tuple[Any, Mapping[str, Any], str] | None:
    """The class, the content that names it, and where that stands."""
    root, file = os.fspath(path), dataset_config or DATASET_YAML
    data = _description(root, file) if is_trusted(AS_ENERGON) else None
    if data is None or _CLASS_AT_TOP.search(data) is None:
        return None
    where = meta_name(root, file)
    content = load_yaml(data, name=where)
    known = not isinstance(content, Mapping) or content.get("__class__") is None or content["__class__"] in _KNOWN
    if known or str(content.get("__module__", "")).startswith((ENERGON, OURS)):
        return None
    kind: Any = named_class(str(content["__module__"]), str(content["__class__"]), where=where)
    build = getattr(kind, "build", None)
    return None if build in (None, BaseCoreDatasetFactory.build) else (kind, content, where)


def _description(root: str, file: str) -> bytes | None:
    """The description of a folder's samples; ``None`` where it has none, or a store does not say: opening it tells."""
    try:
        if is_url(root):
            if PurePosixPath(name_of(root)).suffix in ENDINGS:  # a file, which has no sidecar
                return None
            refresh(root)
        path = meta_path(root, file)
        return path.read_bytes() if path.is_file() else None
    except (OSError, OmniloomError):
        return None
