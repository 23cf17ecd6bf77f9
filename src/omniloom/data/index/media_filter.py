"""Which members of a data set are media: by extension, by content, or by patterns of names; Energon's three ways."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Self

from omniloom.data.media.av_kinds import is_av
from omniloom.data.media.image_kinds import sniff_image
from omniloom.data.media.metadata import MediaMetadataType
from omniloom.errors import ConfigError

_EXTENSIONS: dict[str, MediaMetadataType] = {
    **dict.fromkeys("bmp gif ico j2k jp2 jpx jpeg jpg png tif tiff webp".split(), MediaMetadataType.IMAGE),  # noqa: SIM905
    **dict.fromkeys("aac avi flac m4a m4v mkv mov mp3 mp4 ogg wav webm".split(), MediaMetadataType.AV),  # noqa: SIM905
}


class MediaFilterStrategy(str, Enum):  # noqa: UP042 - Energon's: str() of it is as there
    """Ways to tell media."""

    EXTENSION = "EXTENSION"
    HEADER = "HEADER"
    GLOB = "GLOB"


@dataclass(frozen=True)
class MediaFilterConfig:
    """Which members are media.

    Attributes:
        strategy: how that is told.
        patterns: with ``GLOB``: patterns such as ``*.jpg``, of which one has to match the name, in any case of letters.
    """

    strategy: MediaFilterStrategy
    patterns: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, glob: str | None, header: bool, extension: bool) -> Self:
        """A filter of command-line options; exactly one has to be given.

        Args:
            glob: patterns, separated by commas.
            header: by content.
            extension: by extension.

        Raises:
            ConfigError: none or several are given, or a pattern is empty.
        """
        if sum(map(bool, (glob, header, extension))) != 1:
            raise ConfigError(
                "exactly one of --media-metadata-by-glob, --media-metadata-by-header and --media-metadata-by-extension "
                "says which files are media; several patterns are separated by commas"
            )
        if glob:
            patterns = [pattern.strip() for pattern in glob.split(",")]
            if not all(patterns):
                raise ConfigError(
                    f"--media-metadata-by-glob {glob!r}: a pattern is empty; expected such as '*.jpg,*.png'"
                )
            return cls(MediaFilterStrategy.GLOB, patterns)
        return cls(MediaFilterStrategy.HEADER if header else MediaFilterStrategy.EXTENSION)

    @property
    def patterns_text(self) -> str:
        """The patterns as ``media_filters`` keeps them."""
        return ",".join(self.patterns)

    def should_consider_all(self) -> bool:
        """Whether the content of every member has to be looked at."""
        return self.strategy is MediaFilterStrategy.HEADER

    def should_consider_media(self, name: str) -> bool:
        """Whether a member can be a medium, going by its name alone."""
        if self.strategy is MediaFilterStrategy.EXTENSION:
            return type_by_extension(name) is not None
        if self.strategy is MediaFilterStrategy.HEADER:
            return True
        plain = name.lower()
        return any(
            fnmatchcase(plain, pattern.lower()) or fnmatchcase(plain.rpartition("/")[2], pattern.lower())
            for pattern in self.patterns
        )

    def media_type(self, name: str, head: bytes) -> MediaMetadataType | None:
        """The kind of a member that was considered; ``None``: no medium.

        Args:
            name: its name.
            head: its first `av_kinds.PROBE_BYTES`.
        """
        by_name = type_by_extension(name)
        if self.strategy is MediaFilterStrategy.EXTENSION or (self.strategy is MediaFilterStrategy.GLOB and by_name):
            return by_name
        return type_by_content(head) or by_name


def type_by_extension(name: str) -> MediaMetadataType | None:
    """The kind of medium that an extension stands for."""
    base = name.rpartition("/")[2]
    stem, dot, extension = base.rpartition(".")
    return _EXTENSIONS.get(extension.lower()) if dot and stem else None


def type_by_content(head: bytes) -> MediaMetadataType | None:
    """The kind of medium that content begins as."""
    if is_av(head):
        return MediaMetadataType.AV
    return MediaMetadataType.IMAGE if sniff_image(head) is not None else None
