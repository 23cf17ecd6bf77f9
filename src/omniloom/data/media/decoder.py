"""Parts of a sample become values, by the last component of their name: images, texts, JSON, numbers, arrays."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from omniloom.data.media.array_part import decode_array, unpack_gzip
from omniloom.data.media.av_kinds import AV_DECODES, AV_EXTENSIONS, PROBE_BYTES, is_av
from omniloom.data.media.image import decode_image
from omniloom.data.media.image_kinds import IMAGE_EXTENSIONS, sniff_image
from omniloom.data.media.image_options import ImageOptions
from omniloom.data.media.json_part import parse_strict_json
from omniloom.data.media.lazy import Lazy
from omniloom.data.media.text_part import decode_number, decode_text
from omniloom.errors import ConfigError, SampleError

TEXT_EXTENSIONS = frozenset(("txt", "text", "transcript"))
NUMBER_EXTENSIONS = frozenset(("cls", "cls2", "index", "inx", "id"))
JSON_EXTENSIONS = frozenset(("json", "jsn"))
ARRAY_EXTENSIONS = frozenset(("npy", "npz"))

__all__ = [
    "ARRAY_EXTENSIONS",
    "AV_EXTENSIONS",
    "IMAGE_EXTENSIONS",
    "IMAGE_SPECS",
    "JSON_EXTENSIONS",
    "NUMBER_EXTENSIONS",
    "TEXT_EXTENSIONS",
    "SampleDecoder",
    "decode_array",
    "decode_number",
    "decode_text",
    "to_tensor",
]

_WORDS = (
    (TEXT_EXTENSIONS, "a text in UTF-8"),
    (NUMBER_EXTENSIONS, "a whole number"),
    (JSON_EXTENSIONS, "a JSON value"),
    (ARRAY_EXTENSIONS, "an array of numpy"),
)

Function = Callable[[bytes], Any]
_DEFAULT_IMAGES = ImageOptions()

# Container (numpy, torch, pil, raw), mode of Pillow, and scale (uint8, float) of every image spec.
IMAGE_SPECS: dict[str, tuple[str, str, str]] = {
    "uint8": ("torch", "RGB", "uint8"),
    "raw": ("raw", "RGB", "uint8"),
    "torch": ("torch", "RGB", "float"),
    "pil": ("pil", "RGB", "uint8"),
    **{f"pil{mode.lower()}": ("pil", mode, "uint8") for mode in ("L", "RGB", "RGBA")},
    **{
        f"{prefix}{mode.lower()}{suffix}": (prefix or "numpy", mode, scale)
        for prefix in ("", "torch")
        for mode in ("L", "RGB", "RGBA")
        for suffix, scale in (("", "float"), ("8", "uint8"))
    },
}


@dataclass(frozen=True)
class SampleDecoder:
    """Decodes the parts of a sample.

    Attributes:
        image_decode: ``uint8`` (a uint8 tensor (3, height, width), the default), ``raw`` (bytes), or one of
            Energon's: ``[torch|pil]{l,rgb,rgba}[8]``, where ``torch`` gives tensors with channels first, ``pil``
            images of Pillow, and no prefix arrays with channels last; without ``8`` they are float32 from 0 to 1.
        images: what is done with images that are not plain: orientation, background, limits, frames, partial files.
        lazy: media parts become `Lazy` values, decoded when their ``get()`` is first called. ``None``: only in
            samples that are dicts of their parts, which call it themselves when a part is looked at. ``False``: never.
        av_decode: what becomes of video and sound: ``AVDecoder``, which decodes what it is asked for, ``torch``,
            ``pyav`` or ``raw``; see `av_parts.decode_av`.
        video_decode_audio: with ``torch``: the sound of a video too.
        guess_content: parts that hold an image, a video or sound are decoded as such whatever they are called.
        pdf_pages: parts called ``pdf`` are images of the page that ``images.frame`` says; otherwise they stay bytes.
        strict_json: refuse what is no JSON although Python reads it: NaN, keys that come twice, and the like.
        late: leave tensors as arrays with the same content; the caller's process makes tensors of them.
    """

    image_decode: str = "uint8"
    late: bool = False
    images: ImageOptions = _DEFAULT_IMAGES
    lazy: bool | None = None
    av_decode: str = "AVDecoder"
    video_decode_audio: bool = False
    guess_content: bool = False
    pdf_pages: bool = False
    strict_json: bool = True
    _spec: tuple[str, str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.image_decode not in IMAGE_SPECS:
            raise ConfigError(f"image_decode={self.image_decode!r} found; expected one of {', '.join(IMAGE_SPECS)}")
        if self.av_decode not in AV_DECODES:
            raise ConfigError(f"av_decode={self.av_decode!r} found; expected one of {', '.join(AV_DECODES)}")
        object.__setattr__(self, "_spec", IMAGE_SPECS[self.image_decode])

    def eager(self) -> SampleDecoder:
        """The decoder that makes tensors at once (see ``late``)."""
        return replace(self, late=False) if self.late else self

    def gives_array(self, part: str) -> bool:
        """Whether a part of this name becomes an array that stands for no tensor."""
        extension = part.removesuffix(".gz").rpartition(".")[2]
        media = self.guess_content or extension.lower() in IMAGE_EXTENSIONS
        return extension in ARRAY_EXTENSIONS or (media and self._spec[0] == "numpy")

    def function(self, part: str) -> Function | None:
        """The function that decodes a part of this name; ``None``: it stays bytes."""
        by_name = self._by_name(part)
        if not self.guess_content:
            return by_name
        return functools.partial(_by_content, self._image_function(part), self._av_function(part), by_name)

    def decode(self, fname: str, raw: bytes) -> Any:
        """The value of a part, by its file name."""
        function = self.function(fname)
        return raw if function is None else function(raw)

    def describe(self, part: str) -> str:
        """What becomes of a part of this name, in words."""
        extension = part.rpartition(".")[2]
        if self.function(part) is None:
            return "bytes, as they are"
        if extension == "gz":
            return f"unpacked; then {self.describe(part[:-3])}"
        if extension.lower() in AV_EXTENSIONS:
            return f"video or sound, decoded as {self.av_decode!r}"
        if extension.lower() in _MEDIA_TABLE:
            return f"an image, decoded as {self.image_decode!r}"
        return next(words for extensions, words in _WORDS if extension in extensions)

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of a sample decoded by their names; what begins with ``__`` describes the sample and stays."""
        return {name: value if name.startswith("__") else self.decode(name, value) for name, value in sample.items()}

    def config(self) -> dict[str, Any]:
        """The options that Energon's decoder has, under its names."""
        names = ("image_decode", "av_decode", "video_decode_audio", "guess_content")
        return {name: getattr(self, name) for name in names}

    def later(self, fname: str, raw: bytes) -> Any:
        """As `decode`, but a media part is decoded when it is first looked at; for dicts that see to it.

        Where the caller's process makes the tensors (``late``), nobody looks at a part before that: it is decoded now.
        """
        extension = fname.rpartition(".")[2].lower()
        if self.lazy is not None or self.late or extension not in _MEDIA_TABLE:
            return self.decode(fname, raw)
        function = self._by_name(fname)
        return raw if function is None else Lazy(raw, function, name=fname)

    def image(self, data: bytes) -> Any:
        """An image as ``image_decode`` says."""
        container, mode, scale = self._spec
        if container == "raw":
            return data
        pixels = decode_image(data, mode=mode, options=self.images)
        if container == "pil":
            from PIL import Image  # noqa: PLC0415 - only for those who want Pillow's images

            return Image.fromarray(pixels)
        values: Any = pixels if scale == "uint8" else pixels.astype(np.float32) / np.float32(255)
        if container == "numpy":
            return values
        # A view with channels first; the copy into the batch puts the bytes in order.
        values = values if values.ndim == 2 else values.transpose(2, 0, 1)
        return values if self.late else to_tensor(values)

    def av(self, data: bytes) -> Any:
        """Video or sound as ``av_decode`` says."""
        from omniloom.data.media.av_parts import decode_av  # noqa: PLC0415 - only for those who have such parts

        return decode_av(data, av_decode=self.av_decode, video_decode_audio=self.video_decode_audio)

    def json(self, data: bytes) -> Any:
        """A JSON value, read strictly or as Python reads it, as ``strict_json`` says."""
        return parse_strict_json(data) if self.strict_json else _python_json(data)

    def _by_name(self, part: str) -> Function | None:
        name, _, extension = part.rpartition(".")
        if extension == "gz":
            return functools.partial(_unpacked, self._by_name(name))
        row = _TABLE.get(extension) or _MEDIA_TABLE.get(extension.lower())
        return None if row is None else row(self, part)

    def _image_function(self, part: str) -> Function | None:
        if self.image_decode == "raw":
            return None
        # What is decoded after the sample was made is never made a tensor by the caller's process.
        return functools.partial(Lazy, decode=replace(self, late=False).image, name=part) if self.lazy else self.image

    def _av_function(self, part: str) -> Function | None:
        if self.av_decode == "raw":
            return None
        # An AVDecoder is lazy by itself.
        lazy = self.lazy and self.av_decode != "AVDecoder"
        return functools.partial(Lazy, decode=self.av, name=part) if lazy else self.av

    def _pdf_function(self, part: str) -> Function | None:
        return self._image_function(part) if self.pdf_pages else None


def _unpacked(function: Function | None, data: bytes) -> Any:
    """A part that is packed by gzip, unpacked and decoded by the rest of its name, as in ``json.gz``."""
    content = unpack_gzip(data)
    return content if function is None else function(content)


def _rows(extensions: frozenset[str], row: Callable[[SampleDecoder, str], Function | None]) -> dict[str, Any]:
    return dict.fromkeys(extensions, row)


def _by_content(image: Function | None, av: Function | None, by_name: Function | None, data: bytes) -> Any:
    function = by_name
    if sniff_image(data) is not None:
        function = image
    elif is_av(data[:PROBE_BYTES]):
        function = av
    return data if function is None else function(data)


def to_tensor(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over the memory of an array."""
    import torch  # noqa: PLC0415 - the loader works without torch until a tensor is wanted

    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _python_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise SampleError(f"line {error.lineno}, column {error.colno}: {error.msg}", reason="syntax") from error
    except UnicodeDecodeError as error:
        raise SampleError(f"byte {error.start} of the JSON is not UTF-8", reason="encoding") from error
    except RecursionError as error:
        raise SampleError("nested too deeply to be read", reason="depth") from error
    except ValueError as error:  # whole numbers of thousands of digits
        raise SampleError(str(error), reason="number") from error


# Names of media are taken in any case, as Energon does; the rest as they are written.
_MEDIA_TABLE: dict[str, Callable[[SampleDecoder, str], Function | None]] = {
    **_rows(IMAGE_EXTENSIONS, SampleDecoder._image_function),
    **_rows(AV_EXTENSIONS, SampleDecoder._av_function),
    "pdf": SampleDecoder._pdf_function,
}
_TABLE: dict[str, Callable[[SampleDecoder, str], Function | None]] = {
    **_rows(TEXT_EXTENSIONS, lambda decoder, part: decode_text),
    **_rows(NUMBER_EXTENSIONS, lambda decoder, part: decode_number),
    **_rows(JSON_EXTENSIONS, lambda decoder, part: decoder.json),
    **_rows(ARRAY_EXTENSIONS, lambda decoder, part: decode_array),
}
