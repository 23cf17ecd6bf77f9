"""One pass through a video stream that decodes the frames of some time ranges, and as little else as can be.

Packets are read in decoding order and held back until it is known which frames are wanted; a frame's successor is
known once the decoding times have passed it. Then everything from the key frame on is decoded; frames that nobody wants
and no other frame refers to are left out by the decoder. Where the container's index shows a key frame between here
and the next range, the pass jumps there; where one turns up before the range, what was held back is dropped.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from omniloom.data.media.av_open import FARTHEST, Media, load_av
from omniloom.errors import SampleError

_STEPS_BACK_SECONDS = (0, 1, 4, 16, 64)
_HELD_BYTES = 64 << 20


class Range(NamedTuple):
    """What is wanted, in ticks of the stream's time base.

    Attributes:
        first: the frame shown at this time belongs to the range; before the stream's first frame that is its first,
            and after the end of its last there is none.
        last: each frame that begins until then, inclusively, belongs to it too; ``math.inf``: all the rest.
        tolerance: any one frame within this distance of ``first`` will do instead; a key frame is taken where there is
            one, for it is decoded alone.
    """

    first: float
    last: float
    tolerance: float = 0

    @property
    def latest(self) -> float:
        """The latest time at which its first frame may begin."""
        return self.first + self.tolerance


class Walk:
    """A pass for ranges that are sorted by ``first``.

    Args:
        media: the open container.
        stream: its video stream.
        ranges: what is wanted.
        begin: time of the stream's first frame, as the container says.

    Attributes:
        chosen: times of the wanted frames of each range, sorted; complete when the pass has ended.
        data_end: where the last frame of the stream ends; ``None`` while its end was not reached.
        is_blind: a packet without a time was met, so nothing can be chosen before it is decoded; the pass has ended.
        missing: wanted frames that have not come out of the decoder.
        damage: the last error of the decoder, if there was one.
    """

    def __init__(self, media: Media, stream: Any, ranges: Sequence[Range], *, begin: int) -> None:
        self.chosen: list[list[int]] = [[] for _ in ranges]
        self.data_end: float | None = None
        self.is_blind = False
        self.missing: set[int] = set()
        self.damage: Exception | None = None
        self._media = media
        self._stream = stream
        self._decoder = stream.codec_context
        self._ranges = ranges
        self._begin = begin
        self._frame_ticks = float(1 / ((stream.average_rate or 25) * stream.time_base))
        self._open = 0  # ranges before this one are known to the last frame
        self._floors: list[int | None] = [None for _ in ranges]
        self._held: deque[Any] = deque()
        self._held_bytes = 0
        self._times: list[int] = []
        self._keys: list[int] = []
        self._last_end = -math.inf
        self._held_wanted = 0  # how many of the missing are held
        self._out: set[int] = set()
        self._newest: float = -math.inf
        self._first_key_time: float = -math.inf
        self._has_advanced = False
        self._skips = False

    def frames(self) -> Iterator[Any]:
        """The wanted frames by time; one that several ranges share comes once."""
        self._media.select(self._stream)
        try:
            while self._open < len(self._ranges) and not self.is_blind and self.data_end is None:
                yield from self._stretch()
        finally:
            self._skip(False)
            self._decoder.flush_buffers()

    def _stretch(self) -> Iterator[Any]:
        """From a jump to the next one, or to the end of the stream."""
        for packet in self._from_key_frame(self._ranges[self._open].latest):
            if packet.pts is None:
                self.is_blind = True
                return
            if packet.is_keyframe and self._may_drop(packet.pts):
                yield from self._drain()
            self._hold(packet)
            self._choose()
            yield from self._send()
            self._advance()
            if self._may_leave():
                yield from self._drain()
                return
        self._newest = math.inf
        self.data_end = self._last_end
        self._choose()
        yield from self._send()
        yield from self._drain()

    def _from_key_frame(self, target: float) -> Iterator[Any]:
        """Packets from the last key frame that is shown at or before a time, else from the stream's first."""
        for back_seconds in (*_STEPS_BACK_SECONDS, math.inf):
            place = max(self._begin, target - back_seconds / self._stream.time_base)
            if place <= self._begin or not self._media.seek(place, self._stream):
                place = self._begin
                self._media.rewind(self._stream)
            self._decoder.flush_buffers()
            self._forget()
            packets = self._packets()
            first = next((packet for packet in packets if packet.is_keyframe), None)
            if first is not None and (first.pts is None or first.pts <= target or place <= self._begin):
                yield first
                yield from packets
                return
            if place <= self._begin:
                raise SampleError(
                    "there is no key frame in the video stream, so none of its frames can be decoded",
                    reason="no-key-frame",
                )

    def _packets(self) -> Iterator[Any]:
        self._media.is_fresh = False
        with self._media.errors():
            for packet in self._media.container.demux(self._stream):
                self._media.file.check()
                if packet.is_corrupt:
                    self.damage = SampleError("a packet is cut or damaged", reason="corrupt-media")
                elif packet.size:
                    yield packet

    def _hold(self, packet: Any) -> None:
        """Take a packet in, unless it refers to frames before the key frame that this stretch began with."""
        if packet.is_keyframe and not self._keys:
            self._first_key_time = packet.pts
        if packet.dts is not None:
            self._newest = max(self._newest, packet.dts)
        if packet.pts < self._first_key_time:
            return
        self._held.append(packet)
        self._held_bytes += packet.size
        if packet.is_keyframe:
            self._keys.append(packet.pts)
        if packet.is_discard:  # an edit list hides it; others may refer to it
            return
        bisect.insort(self._times, packet.pts)
        self._last_end = max(self._last_end, packet.pts + (packet.duration or self._frame_ticks))
        for number in range(self._open, len(self._ranges)):
            floor = self._floors[number]
            if floor is None:
                break
            if floor < packet.pts <= self._ranges[number].last and not self._ranges[number].tolerance:
                self._take(number, packet.pts)

    def _choose(self) -> None:
        """Find the first frames of ranges, as far as they are known, and with each those that follow."""
        for number in range(self._open, len(self._ranges)):
            one = self._ranges[number]
            if one.latest > self._newest:
                break
            if self._floors[number] is None and (floor := self._floor(one)) is not None:
                self._floors[number] = floor
                self._take(number, floor)
                if one.tolerance:
                    continue
                after = bisect.bisect_right(self._times, floor)
                for time in self._times[after : bisect.bisect_right(self._times, one.last)]:
                    self._take(number, time)

    def _floor(self, one: Range) -> int | None:
        """The first frame of a range whose surroundings are known; ``None`` where there is none, or not yet."""
        times = self._times
        if one.tolerance:
            near = [time for time in self._keys if abs(time - one.first) <= one.tolerance]
            if near:
                return min(near, key=lambda time: abs(time - one.first))
            at = bisect.bisect_left(times, one.first - one.tolerance)
            if at < len(times) and times[at] <= one.first:
                return times[at]
        at = bisect.bisect_right(times, one.first)
        if at == 0:
            return times[0] if times and times[0] <= self._newest else None
        if at == len(times) and self.data_end is not None and one.first >= self.data_end:
            return None
        return times[at - 1]

    def _take(self, number: int, time: int) -> None:
        bisect.insort(self.chosen[number], time)
        if time not in self._out and time not in self.missing:
            self.missing.add(time)
            self._held_wanted += 1

    def _advance(self) -> None:
        """Pass over ranges that are known to the last frame."""
        while self._open < len(self._ranges):
            floor = self._floors[self._open]
            if floor is None or self._newest <= max(floor, self._ranges[self._open].last):
                return
            self._open += 1
            self._has_advanced = True

    def _may_leave(self) -> bool:
        """Whether nothing is left to do here: all ranges are known, or the next one lies behind another key frame."""
        if not self._has_advanced or self._held_wanted:
            return False
        self._has_advanced = False
        if self._open == len(self._ranges):
            return True
        index = self._stream.index_entries
        place = index.search_timestamp(int(min(self._ranges[self._open].latest, FARTHEST)), backward=True)
        return bool(place >= 0 and index[place].timestamp > self._newest)

    def _may_drop(self, key_time: int) -> bool:
        """Whether nothing that is held back can be wanted any more, now that a key frame of this time has come."""
        return bool(self._held) and not self._held_wanted and key_time <= self._ranges[self._open].latest

    def _send(self) -> Iterator[Any]:
        """Give the decoder all packets up to the last one that is wanted."""
        while self._held and (self._held_wanted > 0 or self._held_bytes > _HELD_BYTES):
            packet = self._held[0]
            if self._may_be_first(packet.pts):
                return
            self._held.popleft()
            self._held_bytes -= packet.size
            wanted = packet.pts in self.missing
            self._held_wanted -= wanted
            self._skip(not wanted)
            yield from self._decoded(packet)

    def _may_be_first(self, time: int) -> bool:
        """Whether a frame could still turn out to be the first of a range."""
        for number in range(self._open, len(self._ranges)):
            if self._floors[number] is not None:
                continue
            one = self._ranges[number]
            at = bisect.bisect_right(self._times, one.first) - 1
            if one.first - one.tolerance <= time <= one.latest or (at >= 0 and self._times[at] == time):
                return True
            if one.first >= self._times[-1]:  # the same frame stands for all later ranges
                return False
        return False

    def _drain(self) -> Iterator[Any]:
        """Take from the decoder what it still has, and forget what is held back."""
        yield from self._decoded(None)
        self._decoder.flush_buffers()
        self._forget()

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = self._held_wanted = 0
        self._times.clear()
        self._keys.clear()
        self._newest = self._first_key_time = -math.inf

    def _decoded(self, packet: Any) -> Iterator[Any]:
        try:
            for frame in self._decoder.decode(packet):
                if frame.pts in self.missing:
                    self.missing.discard(frame.pts)
                    self._out.add(frame.pts)
                    self._media.file.progress()
                    yield frame
        except load_av().error.FFmpegError as error:
            self.damage = error

    def _skip(self, skips: bool) -> None:
        if skips is not self._skips:
            self._decoder.skip_frame = "NONREF" if skips else "DEFAULT"
            self._skips = skips


def decode_all(media: Media, stream: Any, *, begin: int, counted: bool) -> Generator[tuple[float, Any]]:
    """Every frame from the first key frame on, with its time in ticks. Damaged packets are passed over.

    Args:
        media: the open container.
        stream: its video stream.
        begin: time of the first frame.
        counted: the container tells no time that could be relied on: frames follow each other at the average rate.
    """
    media.select(stream)
    media.rewind(stream)
    decoder = stream.codec_context
    decoder.flush_buffers()
    frame_ticks = float(1 / ((stream.average_rate or 25) * stream.time_base))
    expected = float(begin)
    has_begun = False
    with media.errors():
        for packet in media.container.demux(stream):
            media.file.check()
            has_begun = has_begun or packet.is_keyframe
            if not has_begun or packet.is_corrupt:
                continue
            try:
                frames = decoder.decode(packet if packet.size else None)
            except load_av().error.FFmpegError:
                continue
            for frame in frames:
                time = expected
                if not counted:
                    time = next((float(tick) for tick in (frame.pts, frame.dts) if tick is not None), expected)
                expected = time + (frame_ticks if counted else frame.duration or frame_ticks)
                media.file.progress()
                yield time, frame
    decoder.flush_buffers()
