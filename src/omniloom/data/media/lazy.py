"""Values that are made when they are first used: a media part is decoded when somebody looks at it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOTHING: Any = object()


class Lazy(Generic[T]):
    """A part of a sample that is decoded once, when it is first asked for.

    The bytes are kept until then, and given up afterwards. A fault shows at the first `get`, and again at each
    later one. Pickled before its first use it takes the bytes along, afterwards the value.

    Args:
        data: bytes of the part.
        decode: makes the value of them; has to be picklable for a `Lazy` that is sent to another process.
        name: name of the part, such as ``jpg``; for messages.
    """

    __slots__ = ("_data", "_decode", "_lock", "_value", "name")

    def __init__(self, data: bytes, decode: Callable[[bytes], T], *, name: str = "") -> None:
        self.name = name
        self._data: bytes | None = data
        self._decode = decode
        self._value: T = _NOTHING
        self._lock = threading.Lock()

    @property
    def data(self) -> bytes | None:
        """The undecoded bytes, for those who need only a header; ``None`` once they have been decoded."""
        return self._data

    @property
    def is_decoded(self) -> bool:
        """Whether the value has been made."""
        return self._value is not _NOTHING

    def get(self, sample: Any = None) -> T:
        """The value. Raises what decoding raises."""
        if self._value is _NOTHING:
            with self._lock:
                if self._value is _NOTHING and self._data is not None:
                    self._value = self._decode(self._data)
                    self._data = None
        return self._value

    def size(self) -> tuple[int, int]:
        """(width, height) in pixels of an image, from its header alone. Raises SampleError if it is none.

        After decoding it is that of the value: an array or tensor of 8-bit pixels, or an image of Pillow.
        """
        from omniloom.data.media.probe import image_size  # noqa: PLC0415 - Pillow is not imported for texts

        if self._data is not None:
            return image_size(self._data)
        value: Any = self._value
        if hasattr(value, "getbands"):  # an image of Pillow
            return int(value.width), int(value.height)
        # Tensors have their channels first, arrays last.
        height, width = value.shape[-2:] if hasattr(value, "numpy") else value.shape[:2]
        return int(width), int(height)

    def __repr__(self) -> str:
        state = "decoded" if self.is_decoded else f"{len(self._data or b'')} bytes"
        return f"Lazy({self.name!r}, {state})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._data, self._decode, self.name, self._value if self.is_decoded else None)


def _again(data: bytes | None, decode: Callable[[bytes], T], name: str, value: T) -> Lazy[T]:
    lazy = Lazy(data or b"", decode, name=name)
    if data is None:
        lazy._data, lazy._value = None, value
    return lazy


def resolve(value: Any) -> Any:
    """The value itself, or what a `Lazy` stands for."""
    return value.get() if isinstance(value, Lazy) else value


class LazyDict(dict[str, Any]):
    """A dict whose `Lazy` values are decoded when they are looked at: users see values, never a `Lazy`.

    What is not looked at is not decoded, and is pickled as its bytes. `peek` gives a value without decoding it.
    """

    def peek(self, name: str) -> Any:
        """The value as it is: a `Lazy`, which knows its ``size()``, where it has not been decoded. Raises KeyError."""
        return super().__getitem__(name)

    def __getitem__(self, name: str) -> Any:
        return resolve(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:
        # With an __iter__ of its own, `dict(sample)` and `{**sample}` ask for each value instead of copying them.
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, or the default."""
        return resolve(super().get(name, default))

    def pop(self, name: str, *default: Any) -> Any:
        """Take the value of that name out. Raises KeyError where there is none, unless a default is given."""
        return resolve(super().pop(name, *default))

    def popitem(self) -> tuple[str, Any]:
        """Take the last name and its value out."""
        name, value = super().popitem()
        return name, resolve(value)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of that name, which is set to the default where there is none."""
        return resolve(super().setdefault(name, default))

    def values(self) -> Any:
        """All values, each decoded when its turn comes."""
        return map(self.__getitem__, self)

    def items(self) -> Any:
        """All names and values, each decoded when its turn comes."""
        return ((name, self[name]) for name in self)

    def copy(self) -> Any:
        """A copy that has decoded as much, and no more."""
        return type(self)({name: self.peek(name) for name in self})

    def __or__(self, other: Any) -> Any:
        return type(self)({**{name: self.peek(name) for name in self}, **other})

    def __ror__(self, other: Any) -> Any:
        return {**other, **self}  # a plain dict, in which a `Lazy` would not become its value

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({name: self.peek(name) for name in self},)
