"""`FileStore`: what stands beside a data set and is read by key, such as images that samples name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from omniloom.data.sample import SourceInfo

T = TypeVar("T")


class FileStore(ABC, Generic[T]):
    """Values by key, under Energon's names. Stores are pickled as the place they are read from."""

    @abstractmethod
    def __getitem__(self, key: str) -> tuple[T, SourceInfo]:
        """The value of a key, and where it came from. Raises KeyError where there is none."""

    @abstractmethod
    def get_path(self) -> str:
        """Where the store lies; tells stores apart."""

    def get(self, key: str, sample: Any = None) -> T:
        """The value of a key; where it came from is added to the sources of ``sample``."""
        value, source = self[key]
        add_source_info(sample, source)
        return value

    def get_media_metadata(self, key: str) -> Any:
        """What was found out about an image, a video or a sound when the store was prepared."""
        raise NotImplementedError(f"{type(self).__name__} {self.get_path()} has no media metadata")

    def _get_raw(self, key: str) -> tuple[Any, SourceInfo]:
        """The value of a key before it is decoded."""
        return self[key]

    def _decode_raw(self, data: Any, *, fname: str) -> T:
        """The value that undecoded data stand for."""
        value: T = data
        return value


SideStore = FileStore[Any]


def add_source_info(sample: Any, *sources: SourceInfo) -> None:
    """Add to what a sample says of where its data came from; nothing for what has no ``__sources__``."""
    if isinstance(sample, dict):
        sample["__sources__"] = (*(sample.get("__sources__") or ()), *sources)
    elif hasattr(sample, "__sources__"):
        sample.__sources__ = (*(sample.__sources__ or ()), *sources)
