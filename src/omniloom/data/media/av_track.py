"""A video stream of an open container: what its header says of time, and the frames of ranges as they are decoded."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omniloom.data.media.av_open import FARTHEST, MAX_PIXELS, Media, load_av
from omniloom.data.media.av_threads import equal_shares, spare_threads
from omniloom.data.media.av_walk import Range, Walk, decode_all
from omniloom.errors import SampleError

Pixels = npt.NDArray[np.uint8]

_TAG = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_SLACK_SECONDS = 0.5
_ROUNDING_SECONDS = 0.000_5
_SHARE_FRAMES = 16  # fewer take less time than opening the container once more


class Picture(NamedTuple):
    """A decoded frame.

    Attributes:
        time: when it begins, in ticks.
        end: when it ends, in ticks.
        pixels: uint8, (height, width, 3).
    """

    time: float
    end: float
    pixels: Pixels


def stacked(pictures: Sequence[Picture]) -> Pixels:
    """The pixels of frames as one array, (frames, height, width, 3).

    Raises:
        SampleError: ``size-changes``: they are not of one size.
    """
    sizes = sorted({picture.pixels.shape[:2] for picture in pictures})
    if len(sizes) > 1:
        told = " and ".join(f"{width} x {height}" for height, width in sizes[:3])
        raise SampleError(
            f"the video changes its size: frames of {told} pixels. Give a size to scale all to", reason="size-changes"
        )
    if not sizes:
        return np.zeros((0, 0, 0, 3), np.uint8)
    return np.stack([picture.pixels for picture in pictures])


class VideoTrack:
    """A video stream of an open container.

    Args:
        media: the container.
        number: which of its video streams.
        rotate: turn frames as the container says they are shown.
        strict: refuse damaged frames; otherwise the decoder conceals what it can.
        threads: how many pieces between key frames are decoded at once; ``None``: see `spare_threads`.

    Attributes:
        stream: PyAV's.
        begin: time of the first frame in ticks, as the header says.
        frame_ticks: length of a frame on average.
        is_counted: the container does not tell when frames are shown: they follow each other at the average rate.
        turns: quarters counterclockwise by which frames are turned; known once one was decoded.

    Raises:
        SampleError: ``no-video``: there is no such stream; ``no-decoder``; ``too-large``.
    """

    def __init__(
        self, media: Media, *, number: int = 0, rotate: bool = True, strict: bool = True, threads: int | None = None
    ) -> None:
        streams: Any = media.container.streams.video
        if number >= len(streams):
            kinds = ", ".join(stream.type for stream in media.container.streams) or "nothing"
            raise SampleError(
                f"video stream {number} was asked for; the container holds {kinds}. For sound use read_audio",
                reason="no-video",
            )
        self.media = media
        self.stream: Any = streams[number]
        self._number, self._rotate, self._strict, self._threads = number, rotate, strict, threads
        context: Any = self.stream.codec_context
        if context is None:
            raise SampleError(f"FFmpeg has no decoder for video stream {number}", reason="no-decoder")
        if context.width * context.height > MAX_PIXELS:
            raise _too_large(context.width, context.height)
        if not context.is_open:
            context.options = {"err_detect": "explode"} if strict else {}
        self.begin: int = self.stream.start_time or 0
        self.frame_ticks = float(1 / ((self.stream.average_rate or 25) * self.stream.time_base))
        # AVI keeps no time of presentation; what FFmpeg makes up for reordered frames is wrong.
        self.is_counted = "avi" in media.formats and bool(context.has_b_frames)
        self.turns = 0
        self._shown_size: tuple[int, int] | None = None
        self._measured_end: float | None = None
        self._reformatter = load_av().video.reformatter.VideoReformatter()

    @property
    def seconds_a_tick(self) -> float:
        """Length of a tick."""
        return float(self.stream.time_base)

    def seconds(self, ticks: float) -> float:
        """Ticks in seconds, rounded once."""
        return float(ticks * self.stream.time_base)

    def ticks(self, seconds: float) -> float:
        """A time in ticks, rounded as containers do: to the nearest tick, by half a millisecond at most."""
        if math.isinf(seconds):
            return seconds
        return math.floor(seconds / self.seconds_a_tick + min(0.5, _ROUNDING_SECONDS / self.seconds_a_tick))

    def declared_end(self) -> tuple[float | None, bool]:
        """Where the last frame ends as the header says, in ticks, and whether that is said of this stream."""
        if self._measured_end is not None:
            return self._measured_end, True
        if self.stream.duration:
            return self.begin + self.stream.duration, True
        tag = _TAG.match(self.stream.metadata.get("DURATION", ""))
        if tag:
            hours, minutes, seconds = tag.groups()
            return float((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) / self.stream.time_base), False
        container = self.media.container
        if container.duration:
            microseconds = container.duration + max(0, container.start_time or 0)
            return float(microseconds / 1_000_000 / self.stream.time_base), False
        return None, False

    def end(self) -> float:
        """Where the last frame ends, in ticks; read through once where no header says it."""
        declared, _ = self.declared_end()
        return self.measure() if declared is None else declared

    def measure(self) -> float:
        """Where the last frame ends, in ticks, by reading all packets; nothing is decoded."""
        if self._measured_end is None:
            self.media.select(self.stream)
            self.media.rewind(self.stream)
            end, frames = float(self.begin), 0
            with self.media.errors():
                for packet in self.media.container.demux(self.stream):
                    self.media.file.progress()
                    frames += bool(packet.size)
                    time = packet.dts if packet.pts is None else packet.pts
                    if packet.size and time is not None:
                        end = max(end, time + (packet.duration or self.frame_ticks))
            self._measured_end = end if end > self.begin else self.begin + frames * self.frame_ticks
        return self._measured_end

    def shown_size(self) -> tuple[int, int]:
        """(width, height) of the first frame as it is shown; it is decoded once for that."""
        if self._shown_size is None:
            height, width = self.read([Range(self.begin, self.begin)])[0][0].pixels.shape[:2]
            self._shown_size = width, height
        return self._shown_size

    def read(self, ranges: Sequence[Range], *, size: tuple[int, int] | None = None) -> list[list[Picture]]:
        """The frames of ranges, in the ranges' order.

        Args:
            ranges: in any order.
            size: (width, height) to which frames are scaled, bilinearly.

        Returns:
            One list per range, sorted by time; empty where the range begins after the end of the last frame.

        Raises:
            SampleError: ``corrupt-media``: a wanted frame cannot be decoded; ``truncated-media``: the data end before
                the time that the header says, and frames after it are wanted; ``no-key-frame``; ``not-seekable``;
                ``too-slow``; ``too-large``.
        """
        self.media.file.progress()
        if self.is_counted:
            return self._read_blindly(ranges, size)
        order = sorted(range(len(ranges)), key=lambda number: (ranges[number].latest, ranges[number].last))
        in_order = [ranges[number] for number in order]
        results: list[list[Picture]] = [[] for _ in ranges]
        for number, pictures in zip(order, self._read_side_by_side(in_order, size), strict=True):
            results[number] = pictures
        return results

    def _read_side_by_side(self, ranges: Sequence[Range], size: tuple[int, int] | None) -> list[list[Picture]]:
        """As `read`, of ranges by their begin: in shares of about the same work, each by a decoder of its own."""
        threads = spare_threads() if self._threads is None else self._threads
        if threads < 2 or len(ranges) < 2:
            return self._read_in_order(ranges, size)
        work = self._work(ranges)
        worth = int(sum(work) / (_SHARE_FRAMES * self.frame_ticks))
        mine, *others = equal_shares(work, max(1, min(threads, worth)))
        if not others:
            return self._read_in_order(ranges, size)
        try:
            found = self._read_shares([[ranges[place] for place in share] for share in (mine, *others)], size)
        except SampleError:  # told by one pass, the error does not hang on the number of threads
            return self._read_in_order(ranges, size)
        at = dict(zip([place for share in (mine, *others) for place in share], found, strict=True))
        return [at[place] for place in range(len(ranges))]

    def _read_shares(self, shares: Sequence[Sequence[Range]], size: tuple[int, int] | None) -> list[list[Picture]]:
        """The frames of all shares, one after another; the first is read here, the others in threads."""
        first, *others = shares
        with contextlib.ExitStack() as opened:
            tracks = [self._beside(opened.enter_context(self.media.beside())) for _ in others]
            with ThreadPoolExecutor(len(tracks), "omniloom-video") as pool:
                found = [
                    pool.submit(track._read_in_order, share, size) for track, share in zip(tracks, others, strict=True)
                ]
                pictures = self._read_in_order(first, size)
            self.media.file.read_bytes += sum(track.media.file.read_bytes for track in tracks)
            return [*pictures, *(one for future in found for one in future.result())]

    def _beside(self, media: Media) -> VideoTrack:
        """The same stream of the same source, opened once more."""
        return VideoTrack(media, number=self._number, rotate=self._rotate, strict=self._strict, threads=1)

    def _work(self, ranges: Sequence[Range]) -> list[float]:
        """Ticks that are decoded for each range; those that are decoded with the one before it count there.

        A range begins anew at a key frame that the container's index shows behind the range before.
        """
        index, (declared, _) = self.stream.index_entries, self.declared_end()
        work = [0.0]
        begun = 0
        reached = -math.inf
        for number, one in enumerate(ranges):
            place = index.search_timestamp(int(max(-FARTHEST, min(one.latest, FARTHEST))), backward=True)
            key = float(index[place].timestamp) if place >= 0 else -math.inf
            end = max(one.first, min(one.last, math.inf if declared is None else declared))
            if key > reached and number:
                begun = number
            start = max(reached, key, self.begin)
            work[begun] += max(0.0, end - start) + self.frame_ticks if math.isfinite(end) else 0.0
            reached = max(reached, end)
            work.append(0.0)
        return work[:-1]

    def _read_in_order(self, ranges: Sequence[Range], size: tuple[int, int] | None) -> list[list[Picture]]:
        """As `read`, of ranges by their begin, in one pass."""
        walk = Walk(self.media, self.stream, ranges, begin=self.begin)
        pictures: dict[float, Picture] = {}
        for frame in walk.frames():
            pictures[frame.pts] = self._picture(frame, frame.pts, size)
        if walk.is_blind:
            return self._read_blindly(ranges, size)
        if walk.missing and walk.damage is None:
            return self._read_blindly(ranges, size)
        if walk.missing:
            seconds = min(walk.missing) * self.seconds_a_tick
            raise SampleError(
                f"the frame at {seconds:.3f} s cannot be decoded: {walk.damage}", reason="corrupt-media"
            ) from walk.damage
        self._check_end(ranges, walk.data_end)
        return [[pictures[time] for time in times] for times in walk.chosen]

    def _check_end(self, ranges: Sequence[Range], data_end: float | None) -> None:
        """See that nothing was asked for that the header promises and the data do not hold."""
        if data_end is None:
            return
        declared, by_stream = self.declared_end()
        if not by_stream or declared is None:
            self._measured_end = data_end
            return
        slack = max(_SLACK_SECONDS / self.seconds_a_tick, 2 * self.frame_ticks)
        asked = max(one.first if math.isinf(one.last) else one.last for one in ranges)
        whole = any(math.isinf(one.last) for one in ranges)
        if data_end < declared - slack and (whole or asked >= data_end + slack):
            raise SampleError(
                f"the video's data end at {data_end * self.seconds_a_tick:.3f} s of "
                f"{declared * self.seconds_a_tick:.3f} s: the file was cut",
                reason="truncated-media",
            )

    def _read_blindly(self, ranges: Sequence[Range], size: tuple[int, int] | None) -> list[list[Picture]]:
        """As `read`, by decoding everything from the begin: for containers that do not tell when a frame is shown."""
        results: list[list[Picture]] = [[] for _ in ranges]
        until = max((max(one.first, one.last) for one in ranges), default=-math.inf)
        previous: tuple[float, Any] | None = None
        is_first = True

        def keep(time: float, end: float, frame: Any) -> None:
            picture = None
            for one, found in zip(ranges, results, strict=True):
                if (end > one.first and time <= one.last) or (is_first and one.first < time and not found):
                    picture = picture or self._picture(frame, time, size)._replace(end=end)
                    found.append(picture)

        with contextlib.closing(
            decode_all(self.media, self.stream, begin=self.begin, counted=self.is_counted)
        ) as frames:
            for time, frame in frames:
                if previous is not None:
                    keep(previous[0], time, previous[1])
                    is_first = False
                previous = time, frame
                if time > until:
                    break
        if previous is None:
            raise SampleError("no frame of the video can be decoded", reason="corrupt-media")
        end = previous[0] + (previous[1].duration or self.frame_ticks)
        keep(previous[0], end, previous[1])
        self._check_end(ranges, end if previous[0] <= until else None)
        return results

    def _picture(self, frame: Any, time: float, size: tuple[int, int] | None) -> Picture:
        if frame.width * frame.height > MAX_PIXELS:
            raise _too_large(frame.width, frame.height)
        turns = self.turns = round(frame.rotation / 90) % 4 if self._rotate else 0
        width, height = size or (None, None)
        if turns % 2:
            width, height = height, width
        with self.media.errors():
            shown = self._reformatter.reformat(
                frame, width, height, "rgb24", interpolation="BILINEAR", threads=1
            )  # one thread: the scaler's own would be as many as the machine has
        plane = shown.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(shown.height, plane.line_size)[:, : 3 * shown.width]
        pixels = rows.reshape(shown.height, shown.width, 3)
        return Picture(time, time + (frame.duration or self.frame_ticks), np.rot90(pixels, turns) if turns else pixels)


def _too_large(width: int, height: int) -> SampleError:
    return SampleError(
        f"frames of {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} pixels are decoded", reason="too-large"
    )
