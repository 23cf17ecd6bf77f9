"""Entries of Parquet files of Hugging Face data sets: pictures and conversations in columns.

What the columns are is seen by their names:

=================== ==========================================================================================
images, image       bytes, a mapping with ``bytes`` or ``path``, a name, or a list of these
conversations,      turns, as in LLaVA's or OpenAI's form
messages
texts               The Cauldron's form: a list of ``user`` and ``assistant``; the images stand before the first
question, answer(s) one question and its answer; of several, the one that was given most often
choices, options    of the question, which is then answered by a letter; the answer is one of them, a number from 0
                    (also under correct_choice_idx) or a letter
hint                stands before the question
system              what the system says, before all else
caption, text       what is said of the image; of several, the first
id, question_id     the key; without it, the file's name and the row
=================== ==========================================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omniloom.data.convert.choice_text import LETTERS, choice_meant, choice_text
from omniloom.data.convert.entry_source import Description
from omniloom.data.convert.json_entries import RawEntry
from omniloom.data.convert.llava_entry import CONVERSATION_FIELDS, SYSTEM_FIELD, LlavaEntry, read_llava_entry
from omniloom.errors import ConfigError, DatasetError, SampleError

BATCH_ROWS = 64
IMAGE_COLUMNS = ("images", "image", "jpg", "png")
_ANSWERS = ("answers", "answer", "label")
_CHOICES, _CHOSEN = ("choices", "options"), ("correct_choice_idx", "correct_choice", *_ANSWERS)
_CAPTIONS = ("caption", "captions", "text")
_IDS = ("id", "question_id", "questionId")


class ParquetEntries:
    """The entries of a Parquet file, or of all in a folder, by name.

    Args:
        path: the file or the folder.

    Raises:
        ConfigError: there is no Parquet file, or pyarrow is not installed.
    """

    description: Description | None = None
    seeks = True  # what lies before the start of `entries` is not read

    def __init__(self, path: Path) -> None:
        self._parquet = _pyarrow()
        self.path = path
        self._files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not self._files or not all(file.is_file() for file in self._files):
            raise ConfigError(f"{path}: no such Parquet file, or a folder without any.")
        self.size_bytes = max(1, sum(file.stat().st_size for file in self._files))

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetEntries, (self.path,)

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on; row groups before it are not read."""
        position = read = 0
        for path in self._files:
            file = self._open(path)
            groups = file.metadata.num_row_groups
            rows = [file.metadata.row_group(number).num_rows for number in range(groups)]
            first = 0
            while first < groups and position + rows[first] <= start:
                position += rows[first]
                first += 1
            row = sum(rows[:first])
            for batch in file.iter_batches(BATCH_ROWS, row_groups=range(first, groups)):
                for value in batch.to_pylist():
                    if position >= start:
                        done = read + path.stat().st_size * (row + 1) // max(1, file.metadata.num_rows)
                        yield RawEntry(position, 0, (f"{path.stem}-{row:06d}", value), None, "", done)
                    position, row = position + 1, row + 1
            read += path.stat().st_size

    def read(self, value: Any, position: int) -> LlavaEntry:
        """What a row says."""
        name, row = value
        return row_entry(row, name=name, position=position)

    def fingerprint(self) -> str:
        """Digest of names, sizes and footers: reading terabytes of images would take too long."""
        digest = hashlib.sha256()
        for path in self._files:
            meta = self._open(path).metadata
            groups = [meta.row_group(n).total_byte_size for n in range(meta.num_row_groups)]
            digest.update(f"{path.name}\0{path.stat().st_size}\0{meta.num_rows}\0{groups}\0".encode())
        return f"parquet {digest.hexdigest()}"

    def _open(self, path: Path) -> Any:
        try:
            return self._parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: no sound Parquet file: {error}") from error


def row_entry(row: dict[str, Any], *, name: str, position: int) -> LlavaEntry:
    """The entry of a row, by the names of its columns.

    Args:
        row: values by column.
        name: the key of a row that brings none.
        position: number of the row among all.

    Raises:
        SampleError: ``bad-conversations``: no column says anything; ``bad-image-field``; or as `read_llava_entry`.
    """
    column = next((one for one in IMAGE_COLUMNS if one in row), None)
    names, pictures = _images(row.get(column) if column else None)
    used = {column, *CONVERSATION_FIELDS, "texts", "question", "query", "hint", *_CHOICES, *_CHOSEN, *_CAPTIONS, *_IDS}
    used |= {SYSTEM_FIELD}
    extra = {key: value for key, value in row.items() if key not in used and _is_plain(value)}
    identifier = next((row[one] for one in _IDS if row.get(one) not in (None, "")), name)
    turns = row_turns(row, images=len(names) + len(pictures))
    entry = read_llava_entry({"id": identifier, "images": names, "conversations": turns, **extra}, position=position)
    if not pictures:
        return entry
    notices = tuple(notice for notice in entry.notices if notice[0] != "placeholder-count")
    unnamed = ("",) * len(pictures)
    return entry._replace(images=unnamed, pictures=tuple(pictures), notices=notices)


def row_turns(row: Mapping[str, Any], *, images: int) -> list[Any]:
    """The turns of a row, by the names of its columns.

    Args:
        row: values by column.
        images: how many images it has; where no column says their places, they stand before the first text.

    Raises:
        SampleError: ``bad-conversations``: no column says anything, or one says it in a form that is not known;
            ``no-turns``: a question without answer; ``bad-choice``: an answer that is none of its choices.
    """
    return with_system(_turns(row, images), row.get(SYSTEM_FIELD))


def with_system(turns: list[Any], system: Any) -> list[Any]:
    """Turns after what the system says, where that stands beside them and not among them."""
    says = isinstance(system, str) and bool(system.strip())
    among = bool(turns) and turns[0].get("from", turns[0].get("role")) == SYSTEM_FIELD
    return [{"role": SYSTEM_FIELD, "content": system}, *turns] if says and turns and not among else turns


def _turns(row: Mapping[str, Any], images: int) -> list[Any]:
    for field in CONVERSATION_FIELDS:
        if row.get(field):
            return [_without_nulls(turn, field) for turn in _listed(row[field], field)]
    ahead = [{"type": "image"}] * images
    if row.get("texts"):
        return _pairs(_listed(row["texts"], "texts"), ahead)
    question = row.get("question", row.get("query"))
    if isinstance(question, str):
        asked, answer = _question(row, question)
        content = [*ahead, {"type": "text", "text": asked}]
        return [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    said = next((row[name] for name in _CAPTIONS if row.get(name)), None)
    if said is None:
        raise SampleError(f"no conversation among the columns {', '.join(map(str, row))}", reason="bad-conversations")
    caption = said[0] if isinstance(said, list) else said
    return [{"role": "user", "content": ahead}, {"role": "assistant", "content": str(caption)}]


def _listed(value: Any, field: str) -> list[Any]:
    """A column's list, which some data sets hold as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list):
        raise SampleError(f"{field} holds no list", reason="bad-conversations")
    return value


def _without_nulls(turn: Any, field: str) -> dict[str, Any]:
    if not isinstance(turn, Mapping):
        raise SampleError(f"{field} holds a {type(turn).__name__}; turns expected", reason="bad-conversations")
    return {key: value for key, value in turn.items() if value is not None}


def _pairs(texts: list[Any], ahead: list[dict[str, str]]) -> list[Any]:
    """The turns of The Cauldron's pairs."""
    turns: list[Any] = []
    for number, text in enumerate(texts):
        asked, answer = (text.get("user"), text.get("assistant")) if isinstance(text, Mapping) else (None, None)
        if not isinstance(asked, str) or not isinstance(answer, str):
            raise SampleError(
                f"texts hold a {type(text).__name__} as number {number}; pairs of user and assistant expected",
                reason="bad-conversations",
            )
        content = [*(ahead if number == 0 else []), {"type": "text", "text": asked}]
        turns += [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    return turns


def _question(row: Mapping[str, Any], question: str) -> tuple[str, str]:
    """What is asked, with choices if there are some, and the answer."""
    asked = "\n".join(text for text in (row.get("hint"), question) if isinstance(text, str) and text.strip())
    choices = next((row[name] for name in _CHOICES if isinstance(row.get(name), list) and len(row[name]) > 1), None)
    if choices is None:
        return asked, str(_answer(row, _ANSWERS))
    texts = [str(choice) for choice in choices]
    return choice_text(asked, texts), LETTERS[choice_meant(_answer(row, _CHOSEN), texts)]


def _answer(row: Mapping[str, Any], columns: tuple[str, ...]) -> Any:
    """The answer, of several the most frequent, of these the first; each may be a mapping with ``answer``."""
    found = next((row[name] for name in columns if row.get(name) not in (None, [], "")), None)
    several = [one.get("answer") if isinstance(one, Mapping) else one for one in _as_list(found)]
    given = Counter(one for one in several if one is not None and str(one).strip())
    if not given:
        raise SampleError("a question without answer", reason="no-turns")
    return given.most_common(1)[0][0]


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _images(found: Any) -> tuple[list[str], list[bytes]]:
    """Names and bytes of a row's images; all of one row are the one or the other."""
    names: list[str] = []
    pictures: list[bytes] = []
    for one in _as_list(found):
        data, path = (one.get("bytes"), one.get("path")) if isinstance(one, dict) else (one, one)
        if isinstance(data, bytes):
            pictures.append(data)
        elif isinstance(path, str) and path:
            names.append(path)
        elif one is not None:
            raise SampleError(f"an image that is a {type(one).__name__}", reason="bad-image-field")
    if names and pictures:
        raise SampleError("some images are names, others bytes", reason="bad-image-field")
    return names, pictures


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return value is not None


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("converting Parquet needs `pip install omniloom[tables]`") from error
    return pyarrow.parquet
