"""`FileStore`: what stands beside a data set and is read by key, such as images that samples name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

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

    def get(self, key: str, sample: Any = None) -> Any:
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


def add_source_info(sample: Any, *sources: SourceInfo) -> Any:
    """Add to what a sample says of where its data came from. Gives the sample; one without ``__sources__`` as it is."""
    if isinstance(sample, dict):
        sample["__sources__"] = (*(sample.get("__sources__") or ()), *sources)
    elif hasattr(sample, "__sources__"):
        sample.__sources__ = (*(sample.__sources__ or ()), *sources)
    return sample


def get_source_info(sample: Any) -> list[SourceInfo] | None:
    """Where the data of a sample, or of each of a list of samples, came from; ``None`` where nothing is known."""
    if isinstance(sample, list):
        found = [source for one in sample for source in get_source_info(one) or ()]
    elif isinstance(sample, dict):
        found = list(sample.get("__sources__") or ())
    else:
        found = list(getattr(sample, "__sources__", None) or ())
    return found or None


class FileStoreWrapper(FileStore[T]):
    """A store that stands before another one.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: FileStore[Any]) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    def __getitem__(self, key: str) -> tuple[T, SourceInfo]:
        return self._inner[key]

    def get_path(self) -> str:
        """Where the store behind it lies."""
        return self._inner.get_path()

    def get_media_metadata(self, key: str) -> Any:
        """What is known of a medium of the store behind it."""
        return self._inner.get_media_metadata(key)

    def _get_raw(self, key: str) -> tuple[Any, SourceInfo]:
        return self._inner._get_raw(key)

    def _decode_raw(self, data: Any, *, fname: str) -> T:
        value: T = self._inner._decode_raw(data, fname=fname)
        return value


class FileStoreDecoder(Protocol):
    """Makes values of bytes by their file name, as `SampleDecoder` does."""

    def decode(self, fname: str, raw: bytes) -> Any:
        """The value of a file."""


class DecodeFileStore(FileStoreWrapper[Any]):
    """A store whose values are decoded when they are read.

    Args:
        inner: the store of bytes.
        decoder: decodes them by key.
    """

    def __init__(self, inner: FileStore[Any], *, decoder: FileStoreDecoder) -> None:
        super().__init__(inner)
        self.decoder = decoder

    def __getitem__(self, key: str) -> tuple[Any, SourceInfo]:
        data, source = self._inner[key]
        return self.decoder.decode(key, data), source

    def _decode_raw(self, data: Any, *, fname: str) -> Any:
        return self.decoder.decode(fname, self._inner._decode_raw(data, fname=fname))


class PrimaryFileStore(FileStoreWrapper[T]):
    """The data set itself as a store, for one sample: a key that starts with a dot is one of its own parts.

    Args:
        inner: the data set as a store.
        current_key: the sample's key.
    """

    def __init__(self, inner: FileStore[T], current_key: str) -> None:
        super().__init__(inner)
        self._current_key = current_key

    def __getitem__(self, key: str) -> tuple[T, SourceInfo]:
        return self._inner[self._whole(key)]

    def get(self, key: str, sample: Any = None) -> Any:
        """The value of a key; where it came from is added to the sources of ``sample``."""
        return self._inner.get(self._whole(key), sample)

    def get_media_metadata(self, key: str) -> Any:
        """What is known of a medium."""
        return self._inner.get_media_metadata(self._whole(key))

    def _get_raw(self, key: str) -> tuple[Any, SourceInfo]:
        return self._inner._get_raw(self._whole(key))

    def _whole(self, key: str) -> str:
        return f"{self._current_key}{key}" if key.startswith(".") else key
