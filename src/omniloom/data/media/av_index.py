"""An index of the frames of a video stream, made by reading its packets: for containers that bring none."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple


class AVProbeIndexEntry(NamedTuple):
    """A packet of a video stream.

    Attributes:
        timestamp: when its frame is shown, in ticks of the stream's time base.
        is_keyframe: whether it is decoded alone.
    """

    timestamp: int
    is_keyframe: bool


class AVProbeIndex:
    """The packets of a video stream in decoding order, under Energon's names; reading them decodes nothing.

    Args:
        container: an open container of PyAV; it is read through and rewound.
        stream_idx: which of its video streams.
    """

    def __init__(self, container: Any, stream_idx: int = 0) -> None:
        self._entries: list[AVProbeIndexEntry] = []
        for packet in container.demux(video=stream_idx):
            if packet.pts is not None:
                self._entries.append(AVProbeIndexEntry(packet.pts, packet.is_keyframe))
        self._places = {
            False: sorted((one.timestamp, place) for place, one in enumerate(self._entries) if one.is_keyframe),
            True: sorted((one.timestamp, place) for place, one in enumerate(self._entries)),
        }
        container.seek(0)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, idx: int) -> AVProbeIndexEntry:
        return self._entries[idx]

    def __iter__(self) -> Iterator[AVProbeIndexEntry]:
        return iter(self._entries)

    def search_timestamp(self, timestamp: int, *, backward: bool = True, any_frame: bool = False) -> int:
        """Place of the frame nearest to a time.

        Args:
            timestamp: the time in ticks.
            backward: the last frame at or before it, or the first of all; otherwise the first at or after it.
            any_frame: any frame; otherwise key frames only.

        Returns:
            The place in this index; -1: there is none.
        """
        places = self._places[any_frame]
        at = bisect.bisect_left(places, (timestamp, -1))
        if backward and (at == len(places) or places[at][0] != timestamp):
            at = max(0, at - 1)
        return places[at][1] if at < len(places) else -1

    def times(self) -> list[int]:
        """When the frames are shown, in ticks, in the order in which they are."""
        return [timestamp for timestamp, _ in self._places[True]]
