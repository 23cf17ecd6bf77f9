"""Where the entries of a conversion come from: a JSON of LLaVA's form, or another data set's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from omniloom.data.convert.json_entries import RawEntry, read_entries
from omniloom.data.convert.llava_entry import LlavaEntry, read_llava_entry
from omniloom.data.convert.restart import file_digest
from omniloom.errors import ConfigError


@dataclass(frozen=True)
class Description:
    """What a converted data set's ``dataset.yaml`` says where the entries decide it.

    Attributes:
        sample_type: name of a sample type.
        fields: fields of it and the parts that fill them; ``{image}`` stands for the parts that images have.
    """

    sample_type: str
    fields: Mapping[str, str]


class EntrySource(Protocol):
    """Entries, one after the other, in an order that never changes.

    Attributes:
        path: what is converted, for messages.
        size_bytes: how much there is to read, for progress; at least 1.
        description: what the samples are; ``None``: it is decided by what was converted.
    """

    path: Path
    size_bytes: int
    description: Description | None

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on."""

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What an entry says. Called in threads. Raises SampleError with the reason why it is of no use."""

    def fingerprint(self) -> str:
        """Text that changes when the input is another one."""


class JsonEntries:
    """The entries of a JSON list or a JSONL file of LLaVA's, ShareGPT's or OpenAI's form.

    Args:
        path: the file.

    Raises:
        ConfigError: there is none.
    """

    description: Description | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = max(1, existing(path).stat().st_size)

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on."""
        return (raw for raw in read_entries(self.path) if raw.position >= start)

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What an entry says."""
        return read_llava_entry(value, position=position)

    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return file_digest(self.path)


def existing(path: Path) -> Path:
    """A path that is a file. Raises ConfigError where it is not."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Expected the data set's JSON or JSONL.")
    return path
