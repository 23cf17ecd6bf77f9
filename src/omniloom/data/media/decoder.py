"""Parts of a sample become values, by the last component of their name: images, texts, JSON, numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from omniloom.data.media.image import decode_image
from omniloom.errors import ConfigError, SampleError

IMAGE_EXTENSIONS = frozenset(
    "bmp dib gif ico jfif jpe jpeg jpg jp2 png pbm pgm ppm pnm tga tif tiff webp".split()  # noqa: SIM905 - a list to read
)
TEXT_EXTENSIONS = frozenset(("txt", "text", "transcript"))
NUMBER_EXTENSIONS = frozenset(("cls", "cls2", "index", "inx", "id"))
JSON_EXTENSIONS = frozenset(("json", "jsn"))

_COLORS = {"l": "L", "rgb": "RGB", "rgba": "RGBA"}


def _image_spec(spec: str) -> tuple[str, str, str]:
    """Container (numpy, torch, pil, raw), Pillow mode and scale (uint8, float) of an image spec."""
    if spec == "raw":
        return "raw", "RGB", "uint8"
    if spec == "uint8":
        return "torch", "RGB", "uint8"
    for prefix, container in (("torch", "torch"), ("pil", "pil"), ("", "numpy")):
        if spec.startswith(prefix):
            color = spec.removeprefix(prefix)
            scale = "uint8" if color.endswith("8") or container == "pil" else "float"
            color = color.removesuffix("8") or "rgb"
            if color in _COLORS:
                return container, _COLORS[color], scale
    raise ConfigError(
        f"image_decode={spec!r} found; expected 'uint8', 'raw', or 'l', 'rgb', 'rgba' with 'torch', 'pil' or nothing "
        "in front and '8' or nothing behind, such as 'torchrgb8'"
    )


@dataclass(frozen=True)
class SampleDecoder:
    """Decodes the parts of a sample.

    Attributes:
        image_decode: ``uint8`` (a uint8 tensor (3, height, width), the default), ``raw`` (bytes), or one of
            Energon's: ``[torch|pil]{l,rgb,rgba}[8]``, where ``torch`` gives tensors with channels first, ``pil``
            images of Pillow, and no prefix arrays with channels last; without ``8`` they are float32 from 0 to 1.
        late: leave tensors as arrays with the same content; the caller's process makes tensors of them.
    """

    image_decode: str = "uint8"
    late: bool = False

    def __post_init__(self) -> None:
        _image_spec(self.image_decode)

    def function(self, part: str) -> Callable[[bytes], Any] | None:
        """The function that decodes a part of this name; ``None``: it stays bytes."""
        extension = part.rpartition(".")[2].lower()
        if extension in IMAGE_EXTENSIONS:
            return None if self.image_decode == "raw" else self.image
        if part.rpartition(".")[2] in TEXT_EXTENSIONS:
            return bytes.decode  # UTF-8, natively; `reason_of` knows its error
        if part.rpartition(".")[2] in NUMBER_EXTENSIONS:
            return decode_number
        return decode_json if part.rpartition(".")[2] in JSON_EXTENSIONS else None

    def decode(self, fname: str, raw: bytes) -> Any:
        """The value of a part, by its file name."""
        function = self.function(fname)
        return raw if function is None else function(raw)

    def image(self, data: bytes) -> Any:
        """An image as ``image_decode`` says."""
        container, mode, scale = _image_spec(self.image_decode)
        pixels = decode_image(data, mode=mode)
        if container == "pil":
            from PIL import Image  # noqa: PLC0415 - only for those who want Pillow's images

            return Image.fromarray(pixels, mode)
        values: Any = pixels if scale == "uint8" else pixels.astype(np.float32) / np.float32(255)
        if container == "numpy":
            return values
        # A view with channels first; the copy into the batch puts the bytes in order.
        values = values if values.ndim == 2 else values.transpose(2, 0, 1)
        return values if self.late else to_tensor(values)


def to_tensor(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over the memory of an array."""
    import torch  # noqa: PLC0415 - the loader works without torch until a tensor is wanted

    return torch.from_numpy(array if array.flags.writeable else array.copy())


def decode_number(data: bytes) -> int:
    """A whole number in decimal digits."""
    try:
        return int(data)
    except ValueError:
        raise SampleError(f"{data[:40]!r} found, a whole number expected", reason="not-a-number") from None


def decode_json(data: bytes) -> Any:
    """A JSON value. Raises SampleError with line and column of the fault."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise SampleError(f"not JSON: {message}", reason="json") from None
    except UnicodeDecodeError as error:
        raise SampleError(f"byte {error.start} of the JSON is not UTF-8", reason="encoding") from None
    except RecursionError:
        raise SampleError("JSON nested too deeply", reason="depth") from None
