"""A clip in memory that counts what is read of it."""

import io


class CountingFile(io.BytesIO):
    """Bytes as a file.

    Attributes:
        read_bytes: bytes read so far.
    """

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data
