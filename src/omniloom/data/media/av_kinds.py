"""Containers of video and audio: what parts of them are called, and their first bytes."""

from __future__ import annotations

AV_EXTENSIONS = frozenset("aac avi flac flv m4a m4v mkv mov mp3 mp4 oga ogg opus wav webm".split())  # noqa: SIM905
"""Parts with these extensions are video or sound."""

AV_DECODES = ("AVDecoder", "torch", "pyav", "raw")
"""What may become of such parts; see `av_parts.decode_av`."""

PROBE_BYTES = 512

# Where a mark stands and what it is; all marks of a row have to be there.
_MARKS: tuple[tuple[tuple[int, bytes], ...], ...] = (
    ((4, b"ftyp"),),
    ((4, b"moov"),),
    ((4, b"mdat"),),
    ((0, b"\x1a\x45\xdf\xa3"),),  # Matroska, WebM
    ((0, b"RIFF"), (8, b"AVI ")),
    ((0, b"RIFF"), (8, b"WAVE")),
    ((0, b"RF64"), (8, b"WAVE")),
    ((0, b"fLaC"),),
    ((0, b"OggS"),),
    ((0, b"ID3"),),
    ((0, b"FLV\x01"),),
    ((0, b"FORM"), (8, b"AIFF")),
    ((0, b"\x00\x00\x01\xba"),),  # MPEG programme stream
    ((0, b"\x00\x00\x01\xb3"),),
    ((0, b"G"), (188, b"G"), (376, b"G")),  # MPEG transport stream
    ((0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),),  # ASF, WMV
    ((0, b"#!AMR"),),
)
_IMAGE_BRANDS = (b"heic", b"heix", b"heif", b"mif1", b"msf1", b"avif", b"avis", b"hevc", b"hevx", b"jxl ", b"crx ")


def is_av(head: bytes) -> bool:
    """Whether content begins as a container of video or audio does.

    Args:
        head: its first `PROBE_BYTES`.
    """
    if head[4:8] == b"ftyp" and head[8:12] in _IMAGE_BRANDS:
        return False
    if any(all(head.startswith(mark, at) for at, mark in marks) for marks in _MARKS):
        return True
    return _is_mpeg_audio(head)


def _is_mpeg_audio(head: bytes) -> bool:
    """The head of a frame of MP1, MP2, MP3 or ADTS: eleven set bits, then fields with a few values that are illegal."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    layer = head[1] >> 1 & 3
    if layer == 0:  # ADTS says so with twelve bits
        return head[1] & 0xF6 == 0xF0 and head[2] >> 2 & 15 < 13
    return head[1] >> 3 & 3 != 1 and head[2] >> 4 not in (0, 15) and head[2] >> 2 & 3 != 3
