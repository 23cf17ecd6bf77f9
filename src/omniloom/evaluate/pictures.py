"""The images and videos of items: files in a folder, cells of Parquet tables, frames of a video or of a folder."""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError, SampleError
from omniloom.evaluate.tables import cell_bytes
from omniloom.evaluate.task import IMAGE_SUFFIXES, Cell, Inline, Item, Shown, Stored
from omniloom.vlm.frames import frame_indices, video_frames

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")
_FOLDER_FRAMES_PER_SECOND = 3.0  # of TVQA's frames, the one benchmark that brings videos as folders


class Pictures:
    """What prompts show.

    Args:
        folder: of images and videos.
        num_frames: of a video; ``None``: a video is refused.
    """

    def __init__(self, folder: Path, *, num_frames: int | None = None) -> None:
        self._folder, self._num_frames = folder, num_frames

    def of(self, item: Item) -> list[Any]:
        """The content of each image of an item, and of each video the list of its frames.

        Raises:
            SampleError: there is no such file, or it cannot be decoded.
            ConfigError: a video, and no number of frames.
        """
        return [self._one(name, item) for name in item.images]

    def _one(self, name: Shown, item: Item) -> Any:
        if isinstance(name, Cell):
            return cell_bytes(name)
        if isinstance(name, Inline):
            return _decoded(name, item)
        if isinstance(name, Stored):
            return self._stored(name)
        path = self._path(name, str(item.facts.get("part") or ""))
        if not path.is_dir() and path.suffix.lower() not in VIDEO_SUFFIXES:
            return path.read_bytes()
        if self._num_frames is None:
            raise ConfigError(f"{path}: a video found, and no number of frames. Give --num-frames.")
        span = tuple(item.facts.get(edge) for edge in ("start", "end"))
        return frames_of(path, self._num_frames, span=None if None in span else (float(span[0]), float(span[1])))  # type: ignore[arg-type]

    def _stored(self, shown: Stored) -> Any:
        content = shown.data_set.picture(shown)
        if not shown.video:
            return content
        if self._num_frames is None:
            raise ConfigError(f"{shown}: a video found, and no number of frames. Give --num-frames.")
        return video_frames(io.BytesIO(content), count=self._num_frames)

    def _path(self, name: str, part: str) -> Path:
        """A file by its name or the name with a usual suffix; no name leads out of the folder.

        Benchmarks in parts, as MME, have folders of them, with images in them or in a folder ``images`` there.
        """
        root = self._folder.resolve()
        folders: tuple[Path, ...] = (
            self._folder,
            *((self._folder / part, self._folder / part / "images") if part else ()),
        )
        for folder, suffix in product(folders, ("", *IMAGE_SUFFIXES)):
            path = (folder / f"{name}{suffix}").resolve()
            if path.is_relative_to(root) and path != root and path.exists() and (suffix == "" or path.is_file()):
                return path
        raise SampleError(
            f"{self._folder / name}: there is no such image (looked for {', '.join(IMAGE_SUFFIXES)} too)",
            reason="no-image",
        )


def _decoded(image: Inline, item: Item) -> bytes:
    try:
        return b64decode(image.base64, validate=True)
    except ValueError:
        raise SampleError(f"item {item.id}: its image is neither a name nor base64", reason="no-image") from None


def has_videos(items: Iterable[Item], folder: Path) -> bool:
    """Whether an item shows a video, or a folder of its frames."""
    shown = [name for item in items for name in item.images]
    if any(isinstance(name, Stored) and name.video for name in shown):
        return True
    names = (name for name in shown if isinstance(name, str))
    return any(name.lower().endswith(VIDEO_SUFFIXES) or (name and _is_folder(folder / name)) for name in names)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no file system takes: its item fails when it is asked
        return False


def frames_of(path: Path, count: int, *, span: tuple[float, float] | None = None) -> list[Any]:
    """Frames of a video, or of a folder of its frames in order.

    Whole videos give frames from the first to the last at equal distances, as Megatron's example takes them. Of a
    span, and of folders, each of as many equal parts gives its middle, as MVBench's program does.

    Args:
        path: a video, or a folder of three images a second.
        count: frames at most.
        span: seconds of the first and the last.
    """
    if path.is_dir():
        return _of_folder(path, count, span)
    if span is None:
        with path.open("rb") as file:
            return video_frames(file, count=count)
    from omniloom.data.media.video import VideoReader  # noqa: PLC0415 - an extra

    with VideoReader(path) as reader:
        begin, end = reader.span_seconds
        latest = max(begin, end - 1 / reader.fps)
        middles = [min(max(begin + second, begin), latest) for second in _middles(*span, count=count)]
        return list(reader.frames_at(middles).pixels)


def _of_folder(folder: Path, count: int, span: tuple[float, float] | None) -> list[Any]:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise SampleError(f"{folder}: no frames in this folder", reason="no-frames")
    if span is None and len(files) <= count:
        return [file.read_bytes() for file in files]
    if span is None:
        return [files[index].read_bytes() for index in frame_indices(len(files), count=count)]
    places = [int(second * _FOLDER_FRAMES_PER_SECOND) for second in _middles(*span, count=count)]
    return [files[min(max(0, place), len(files) - 1)].read_bytes() for place in places]


def _middles(start: float, end: float, *, count: int) -> Sequence[float]:
    step = (end - start) / count
    return [start + step * (number + 0.5) for number in range(count)]
